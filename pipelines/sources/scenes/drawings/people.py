"""People with one hand out to the right; the colour is that of their clothes."""

from __future__ import annotations

from capgrade.pipelines.sources.scenes.drawings.pen import INK, Pen, Rgb, dark, light

TROUSERS: tuple[Rgb, ...] = ((62, 74, 110), (84, 70, 58), (52, 52, 60))


def _limbs(pen: Pen, shoulder: float, sleeve: Rgb) -> None:
    """An arm held out to HAND of the placing module, the other one down."""
    pen.bar([(0.66, shoulder + 0.03), (0.82, 0.46), (0.93, 0.38)], sleeve, 0.12)
    pen.bar([(0.20, shoulder + 0.03), (0.08, 0.46), (0.07, 0.56)], sleeve, 0.12)
    pen.ellipse(0.86, 0.33, 1.0, 0.40, pen.skin)
    pen.ellipse(0.0, 0.54, 0.14, 0.61, pen.skin)


def _face(pen: Pen, bottom: float) -> None:
    pen.ellipse(0.22, 0.03, 0.66, bottom, pen.skin)
    middle = 0.03 + 0.52 * (bottom - 0.03)
    pen.eye(0.40, middle, 0.026)
    pen.eye(0.56, middle, 0.026)
    pen.arc(0.38, middle, 0.58, bottom - 0.03, 30, 150, dark(pen.skin, 0.5))


def _short_hair(pen: Pen, bottom: float) -> None:
    pen.pie(0.20, 0.0, 0.68, bottom + 0.02, 170, 350, pen.hair)


def man(pen: Pen, colour: Rgb) -> None:
    trousers = TROUSERS[pen.look % 3]
    for x in (0.24, 0.45):
        pen.rect(x, 0.56, x + 0.20, 0.97, trousers)
        pen.rect(x - 0.02, 0.95, x + 0.24, 1.0, INK, 0.5)
    _limbs(pen, 0.24, colour)
    pen.rect(0.18, 0.21, 0.70, 0.62, colour, 0.25)
    pen.line([(0.44, 0.23), (0.44, 0.60)], dark(colour), 1)
    _face(pen, 0.21)
    _short_hair(pen, 0.16)


def woman(pen: Pen, colour: Rgb) -> None:
    pen.rect(0.20, 0.04, 0.68, 0.32, pen.hair, 0.45)
    for x in (0.28, 0.48):
        pen.rect(x, 0.76, x + 0.12, 0.98, pen.skin)
        pen.rect(x - 0.02, 0.95, x + 0.16, 1.0, dark(colour, 0.5), 0.5)
    _limbs(pen, 0.25, pen.skin)
    pen.poly([(0.24, 0.23), (0.64, 0.23), (0.60, 0.46), (0.80, 0.82), (0.08, 0.82), (0.28, 0.46)], colour)
    pen.line([(0.28, 0.46), (0.60, 0.46)], light(colour, 0.6), 2)
    _face(pen, 0.22)
    _short_hair(pen, 0.15)


def boy(pen: Pen, colour: Rgb) -> None:
    for x in (0.25, 0.46):
        pen.rect(x + 0.02, 0.74, x + 0.16, 0.97, pen.skin)
        pen.rect(x, 0.64, x + 0.19, 0.80, TROUSERS[pen.look % 3])
        pen.rect(x - 0.02, 0.94, x + 0.22, 1.0, (240, 240, 240), 0.5)
    _limbs(pen, 0.34, colour)
    pen.rect(0.20, 0.31, 0.68, 0.69, colour, 0.25)
    pen.line([(0.22, 0.48), (0.66, 0.48)], light(colour, 0.7), 2.5)
    _face(pen, 0.33)
    pen.pie(0.18, 0.0, 0.70, 0.28, 180, 360, dark(colour, 0.2))
    pen.rect(0.44, 0.12, 0.82, 0.16, dark(colour, 0.2), 0.5)


def girl(pen: Pen, colour: Rgb) -> None:
    for x in (0.12, 0.60):
        pen.ellipse(x, 0.14, x + 0.17, 0.34, pen.hair)
    for x in (0.28, 0.48):
        pen.rect(x, 0.76, x + 0.12, 0.98, pen.skin)
        pen.rect(x - 0.03, 0.94, x + 0.16, 1.0, (214, 48, 49), 0.5)
    _limbs(pen, 0.35, pen.skin)
    pen.poly([(0.26, 0.32), (0.62, 0.32), (0.60, 0.50), (0.82, 0.80), (0.06, 0.80), (0.28, 0.50)], colour)
    pen.ellipse(0.38, 0.56, 0.48, 0.63, light(colour, 0.7), edge=False)
    pen.ellipse(0.52, 0.64, 0.62, 0.71, light(colour, 0.7), edge=False)
    pen.ellipse(0.24, 0.66, 0.34, 0.73, light(colour, 0.7), edge=False)
    _face(pen, 0.33)
    _short_hair(pen, 0.24)
