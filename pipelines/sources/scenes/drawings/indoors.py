"""Furniture, household things and food."""

from __future__ import annotations

from math import cos, pi, sin

from capgrade.pipelines.sources.scenes.drawings.pen import INK, METAL, Pen, Rgb, dark, light

WOOD: Rgb = (140, 96, 58)
LEAF: Rgb = (74, 150, 70)


def chair(pen: Pen, colour: Rgb) -> None:
    pen.rect(0.0, 0.0, 0.15, 1.0, colour)
    pen.rect(0.85, 0.56, 1.0, 1.0, colour)
    pen.rect(0.0, 0.0, 0.32, 0.10, colour)
    pen.rect(0.12, 0.16, 0.26, 0.50, light(colour, 0.25))
    pen.rect(0.0, 0.54, 1.0, 0.65, light(colour, 0.15))
    pen.line([(0.14, 0.82), (0.88, 0.82)], dark(colour), 2)


def sofa(pen: Pen, colour: Rgb) -> None:
    for x in (0.08, 0.86):
        pen.rect(x, 0.88, x + 0.06, 1.0, WOOD)
    pen.rect(0.06, 0.0, 0.94, 0.70, colour, 0.25)
    pen.line([(0.50, 0.04), (0.50, 0.56)], dark(colour), 1.5)
    for x in (0.13, 0.50):
        pen.rect(x, 0.54, x + 0.37, 0.76, light(colour, 0.2), 0.35)
    pen.rect(0.08, 0.72, 0.92, 0.92, colour)
    for x in (0.0, 0.85):
        pen.rect(x, 0.32, x + 0.15, 0.92, dark(colour, 0.12), 0.4)


def bench(pen: Pen, colour: Rgb) -> None:
    for x in (0.08, 0.84):
        pen.rect(x, 0.06, x + 0.07, 1.0, INK)
    for y in (0.0, 0.20):
        pen.rect(0.0, y, 1.0, y + 0.15, colour)
    pen.rect(0.0, 0.46, 1.0, 0.62, light(colour, 0.15))


def table(pen: Pen, colour: Rgb) -> None:
    for x in (0.06, 0.86):
        pen.rect(x, 0.14, x + 0.08, 1.0, dark(colour, 0.12))
    pen.rect(0.10, 0.14, 0.90, 0.30, dark(colour, 0.2))
    pen.rect(0.0, 0.0, 1.0, 0.17, colour, 0.2)


def bed(pen: Pen, colour: Rgb) -> None:
    pen.rect(0.0, 0.0, 0.07, 1.0, WOOD)
    pen.rect(0.93, 0.38, 1.0, 1.0, WOOD)
    pen.rect(0.04, 0.62, 0.96, 0.86, (236, 228, 214))
    pen.rect(0.08, 0.38, 0.30, 0.60, (252, 252, 252), 0.4)
    pen.rect(0.24, 0.48, 0.95, 0.84, colour, 0.2)
    pen.rect(0.24, 0.48, 0.36, 0.84, light(colour, 0.5), 0.2)


def lamp(pen: Pen, colour: Rgb) -> None:
    pen.rect(0.45, 0.46, 0.55, 0.90, METAL)
    pen.ellipse(0.22, 0.84, 0.78, 1.0, METAL)
    pen.ellipse(0.40, 0.44, 0.60, 0.60, (255, 250, 190))
    pen.poly([(0.28, 0.0), (0.72, 0.0), (1.0, 0.52), (0.0, 0.52)], colour)
    pen.line([(0.10, 0.46), (0.90, 0.46)], light(colour, 0.6), 1.5)


def clock(pen: Pen, colour: Rgb) -> None:
    pen.ellipse(0.0, 0.0, 1.0, 1.0, dark(colour, 0.3))
    pen.ellipse(0.08, 0.08, 0.92, 0.92, colour)
    hands = INK if sum(colour) > 300 else (250, 250, 250)
    for hour in range(12):
        x, y = cos(hour * pi / 6), sin(hour * pi / 6)
        pen.line([(0.5 + 0.32 * x, 0.5 + 0.32 * y), (0.5 + 0.38 * x, 0.5 + 0.38 * y)], hands)
    pen.line([(0.5, 0.5), (0.5, 0.20)], hands, 1.6)
    pen.line([(0.5, 0.5), (0.70, 0.58)], hands, 2)


def cup(pen: Pen, colour: Rgb) -> None:
    pen.ring(0.62, 0.22, 1.0, 0.76, dark(colour, 0.2), 3)
    pen.poly([(0.0, 0.08), (0.80, 0.08), (0.72, 1.0), (0.10, 1.0)], colour)
    pen.ellipse(0.0, 0.0, 0.80, 0.20, light(colour, 0.4))
    pen.ellipse(0.10, 0.05, 0.70, 0.17, (96, 58, 34), edge=False)
    pen.rect(0.05, 0.50, 0.76, 0.64, light(colour, 0.55), edge=False)


def umbrella(pen: Pen, colour: Rgb) -> None:
    pen.line([(0.5, 0.10), (0.5, 1.0)], (104, 74, 48), 3)
    pen.pie(0.0, 0.04, 1.0, 0.96, 180, 360, colour)
    for x0, x1, fill in ((0.0, 0.28, light(colour)), (0.28, 0.72, colour), (0.72, 1.0, light(colour))):
        pen.poly([(0.5, 0.05), (x0, 0.49), ((x0 + x1) / 2, 0.45), (x1, 0.49)], fill)
    pen.rect(0.48, 0.0, 0.52, 0.07, INK)


def apple(pen: Pen, colour: Rgb) -> None:
    pen.ellipse(0.0, 0.18, 0.62, 1.0, colour)
    pen.ellipse(0.38, 0.18, 1.0, 1.0, colour)
    pen.ellipse(0.20, 0.26, 0.80, 0.98, colour, edge=False)
    pen.line([(0.50, 0.32), (0.54, 0.02)], (96, 62, 36), 2.5)
    pen.ellipse(0.54, 0.0, 0.88, 0.20, LEAF)
    pen.ellipse(0.16, 0.34, 0.32, 0.56, light(colour, 0.6), edge=False)


def banana(pen: Pen, colour: Rgb) -> None:
    outer = [(0.5 - 0.5 * cos(pi * t / 10), 0.06 + 0.94 * sin(pi * t / 10)) for t in range(11)]
    inner = [(0.5 + 0.42 * cos(pi * t / 10), 0.06 + 0.44 * sin(pi * t / 10)) for t in range(11)]
    pen.poly(outer + inner, colour)
    pen.line([(0.05, 0.10), (0.22, 0.55), (0.5, 0.72), (0.78, 0.55)], dark(colour, 0.25), 1)
    pen.rect(0.0, 0.0, 0.09, 0.14, (96, 70, 36))
    pen.rect(0.91, 0.0, 1.0, 0.12, INK)


def cake(pen: Pen, colour: Rgb) -> None:
    pen.ellipse(0.0, 0.84, 1.0, 1.0, (226, 232, 236))
    pen.rect(0.08, 0.58, 0.92, 0.94, colour, 0.15)
    pen.rect(0.18, 0.32, 0.82, 0.62, light(colour, 0.3), 0.15)
    pen.rect(0.08, 0.56, 0.92, 0.66, (255, 252, 246), 0.4)
    pen.rect(0.18, 0.30, 0.82, 0.39, (255, 252, 246), 0.4)
    for x in (0.30, 0.50, 0.70):
        pen.rect(x - 0.03, 0.12, x + 0.03, 0.32, (110, 170, 230))
        pen.ellipse(x - 0.05, 0.0, x + 0.05, 0.13, (255, 176, 40))
