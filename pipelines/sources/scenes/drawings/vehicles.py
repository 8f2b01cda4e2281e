"""Vehicles, facing right."""

from __future__ import annotations

from capgrade.pipelines.sources.scenes.drawings.pen import GLASS, INK, METAL, WHEEL, Pen, Rgb, dark, light

LAMP: Rgb = (255, 240, 150)


def _wheels(pen: Pen, xs: tuple[float, ...], radius: float) -> None:
    """Round wheels that touch the ground; `radius` is a share of the box's width."""
    high = radius * (pen.box[2] - pen.box[0]) / (pen.box[3] - pen.box[1])
    for x in xs:
        pen.ellipse(x - radius, 1 - 2 * high, x + radius, 1.0, WHEEL)
        pen.ellipse(x - radius / 2, 1 - 1.5 * high, x + radius / 2, 1 - high / 2, METAL)


def car(pen: Pen, colour: Rgb) -> None:
    pen.poly([(0.16, 0.46), (0.28, 0.02), (0.66, 0.0), (0.84, 0.46)], colour)
    pen.poly([(0.23, 0.42), (0.31, 0.10), (0.46, 0.10), (0.46, 0.42)], GLASS)
    pen.poly([(0.51, 0.42), (0.51, 0.10), (0.64, 0.10), (0.76, 0.42)], GLASS)
    pen.rect(0.0, 0.40, 1.0, 0.82, colour, 0.4)
    pen.line([(0.49, 0.44), (0.49, 0.78)], dark(colour))
    pen.ellipse(0.92, 0.46, 0.99, 0.60, LAMP)
    pen.rect(0.0, 0.48, 0.04, 0.60, (200, 30, 30))
    _wheels(pen, (0.22, 0.78), 0.105)


def bus(pen: Pen, colour: Rgb) -> None:
    pen.rect(0.0, 0.0, 1.0, 0.88, colour, 0.12)
    for x in (0.05, 0.22, 0.39, 0.56):
        pen.rect(x, 0.12, x + 0.14, 0.42, GLASS)
    pen.rect(0.73, 0.12, 0.86, 0.84, GLASS)
    pen.rect(0.90, 0.12, 1.0, 0.48, GLASS)
    pen.rect(0.0, 0.52, 0.70, 0.60, light(colour, 0.6), edge=False)
    pen.ellipse(0.94, 0.62, 1.0, 0.72, LAMP)
    _wheels(pen, (0.20, 0.62), 0.09)


def truck(pen: Pen, colour: Rgb) -> None:
    pen.rect(0.0, 0.72, 0.96, 0.84, INK)
    pen.rect(0.0, 0.0, 0.64, 0.76, light(colour, 0.75))
    pen.rect(0.06, 0.28, 0.58, 0.46, colour)
    pen.poly([(0.67, 0.16), (0.88, 0.16), (0.98, 0.46), (1.0, 0.82), (0.67, 0.82)], colour)
    pen.poly([(0.72, 0.23), (0.86, 0.23), (0.93, 0.46), (0.72, 0.46)], GLASS)
    pen.ellipse(0.93, 0.58, 1.0, 0.70, LAMP)
    _wheels(pen, (0.14, 0.32, 0.82), 0.085)


def bicycle(pen: Pen, colour: Rgb) -> None:
    radius = 0.23
    high = radius * (pen.box[2] - pen.box[0]) / (pen.box[3] - pen.box[1])
    for x in (radius, 1 - radius):
        pen.ring(x - radius, 1 - 2 * high, x + radius, 1.0, WHEEL, 3)
        for dx, dy in ((radius, 0.0), (0.0, high), (0.7 * radius, 0.7 * high), (0.7 * radius, -0.7 * high)):
            pen.line([(x - dx, 1 - high - dy), (x + dx, 1 - high + dy)], METAL, 0.6)
    hub = 1 - high
    pen.line([(0.23, hub), (0.48, hub), (0.68, 0.26), (0.36, 0.26), (0.23, hub)], colour, 3.5)
    pen.line([(0.48, hub), (0.34, 0.14)], colour, 3.5)
    pen.line([(0.77, hub), (0.66, 0.04), (0.78, 0.0)], colour, 3.5)
    pen.rect(0.25, 0.08, 0.43, 0.16, INK, 0.5)
    pen.ellipse(0.43, hub - 0.08, 0.53, hub + 0.08, METAL)
    pen.rect(0.74, 0.0, 0.84, 0.06, INK, 0.5)


def boat(pen: Pen, colour: Rgb) -> None:
    pen.rect(0.47, 0.0, 0.52, 0.76, (120, 84, 50))
    pen.poly([(0.56, 0.04), (0.96, 0.66), (0.56, 0.66)], (250, 250, 244))
    pen.poly([(0.43, 0.12), (0.43, 0.66), (0.10, 0.66)], light(colour, 0.45))
    pen.poly([(0.0, 0.74), (1.0, 0.74), (0.84, 1.0), (0.14, 1.0)], colour)
    pen.line([(0.04, 0.81), (0.95, 0.81)], light(colour, 0.6), 2)


def airplane(pen: Pen, colour: Rgb) -> None:
    pen.poly([(0.10, 0.50), (0.0, 0.0), (0.12, 0.0), (0.26, 0.42)], dark(colour, 0.2))
    pen.poly([(0.46, 0.36), (0.38, 0.08), (0.46, 0.08), (0.62, 0.38)], dark(colour, 0.2))
    pen.rect(0.05, 0.32, 1.0, 0.70, colour, 0.5)
    for x in (0.30, 0.38, 0.46, 0.54, 0.62, 0.70):
        pen.ellipse(x, 0.42, x + 0.04, 0.51, GLASS)
    pen.poly([(0.86, 0.42), (0.94, 0.42), (0.98, 0.52), (0.86, 0.52)], GLASS)
    pen.poly([(0.44, 0.58), (0.66, 0.58), (0.42, 1.0), (0.30, 1.0)], dark(colour, 0.25))
