"""Animals, facing right."""

from __future__ import annotations

from capgrade.pipelines.sources.scenes.drawings.pen import INK, METAL, Pen, Rgb, dark, light, mix

PINK: Rgb = (246, 170, 180)
BEAK: Rgb = (244, 160, 40)


def dog(pen: Pen, colour: Rgb) -> None:
    pen.bar([(0.10, 0.88), (0.03, 0.66), (0.07, 0.52)], colour, 0.08)
    pen.ellipse(0.06, 0.44, 0.64, 1.0, colour)
    pen.poly([(0.34, 0.40), (0.66, 0.36), (0.70, 0.96), (0.44, 0.96)], colour)
    pen.rect(0.46, 0.62, 0.58, 1.0, colour, 0.3)
    pen.rect(0.62, 0.62, 0.74, 1.0, colour, 0.3)
    pen.ellipse(0.30, 0.04, 0.80, 0.50, colour)
    pen.ellipse(0.62, 0.22, 1.0, 0.46, light(colour, 0.25))
    pen.ellipse(0.90, 0.22, 1.0, 0.32, INK)
    pen.poly([(0.32, 0.08), (0.48, 0.0), (0.46, 0.30), (0.36, 0.50), (0.24, 0.36)], dark(colour, 0.4))
    pen.line([(0.36, 0.50), (0.68, 0.48)], (214, 48, 49), 2.5)
    pen.eye(0.66, 0.19, 0.04)


def cat(pen: Pen, colour: Rgb) -> None:
    pen.bar([(0.28, 0.92), (0.08, 0.86), (0.05, 0.60), (0.14, 0.48)], colour, 0.09)
    pen.ellipse(0.20, 0.42, 0.80, 1.0, colour)
    pen.ellipse(0.40, 0.56, 0.68, 0.98, light(colour), edge=False)
    pen.rect(0.40, 0.72, 0.52, 1.0, colour, 0.4)
    pen.rect(0.56, 0.72, 0.68, 1.0, colour, 0.4)
    pen.poly([(0.26, 0.24), (0.26, 0.0), (0.50, 0.12)], colour)
    pen.poly([(0.88, 0.24), (0.88, 0.0), (0.64, 0.12)], colour)
    pen.poly([(0.31, 0.16), (0.31, 0.07), (0.40, 0.12)], PINK, edge=False)
    pen.poly([(0.83, 0.16), (0.83, 0.07), (0.74, 0.12)], PINK, edge=False)
    pen.ellipse(0.22, 0.08, 0.92, 0.52, colour)
    for x in (0.43, 0.71):
        pen.ellipse(x - 0.08, 0.21, x + 0.08, 0.33, (190, 220, 90))
        pen.eye(x, 0.27, 0.035)
    pen.poly([(0.53, 0.37), (0.61, 0.37), (0.57, 0.42)], PINK)
    pen.line([(0.28, 0.38), (0.08, 0.34)], METAL)
    pen.line([(0.86, 0.38), (1.0, 0.34)], METAL)
    pen.line([(0.86, 0.43), (1.0, 0.44)], METAL)


def rabbit(pen: Pen, colour: Rgb) -> None:
    pen.ellipse(0.0, 0.70, 0.20, 0.90, light(colour, 0.7))
    pen.ellipse(0.06, 0.48, 0.78, 1.0, colour)
    for x in (0.46, 0.64):
        pen.ellipse(x - 0.09, 0.0, x + 0.09, 0.42, colour)
        pen.ellipse(x - 0.04, 0.06, x + 0.04, 0.36, PINK, edge=False)
    pen.ellipse(0.40, 0.28, 1.0, 0.70, colour)
    pen.ellipse(0.50, 0.88, 0.86, 1.0, colour)
    pen.ellipse(0.10, 0.86, 0.44, 1.0, colour)
    pen.eye(0.76, 0.44, 0.045)
    pen.ellipse(0.92, 0.46, 1.0, 0.53, PINK)
    pen.poly([(0.84, 0.60), (0.92, 0.60), (0.90, 0.68), (0.85, 0.68)], (255, 255, 255))


def _legs(pen: Pen, xs: tuple[float, ...], top: float, width: float, colour: Rgb, hoof: Rgb) -> None:
    for x in xs:
        pen.rect(x, top, x + width, 1.0, colour)
        pen.rect(x, 0.93, x + width, 1.0, hoof)


def cow(pen: Pen, colour: Rgb) -> None:
    spots = (52, 48, 48) if sum(colour) > 400 else (240, 240, 236)
    pen.line([(0.04, 0.26), (0.02, 0.60)], dark(colour, 0.5), 2.5)
    pen.ellipse(0.0, 0.56, 0.05, 0.70, INK)
    _legs(pen, (0.10, 0.20, 0.52, 0.62), 0.55, 0.075, colour, INK)
    pen.ellipse(0.24, 0.62, 0.40, 0.76, PINK)
    pen.rect(0.03, 0.20, 0.74, 0.70, colour, 0.4)
    pen.ellipse(0.10, 0.24, 0.28, 0.50, spots, edge=False)
    pen.ellipse(0.36, 0.34, 0.54, 0.64, spots, edge=False)
    pen.ellipse(0.52, 0.22, 0.64, 0.36, spots, edge=False)
    pen.poly([(0.70, 0.10), (0.69, 0.0), (0.76, 0.08)], (236, 226, 200))
    pen.poly([(0.88, 0.08), (0.93, 0.0), (0.93, 0.11)], (236, 226, 200))
    pen.ellipse(0.62, 0.08, 0.72, 0.18, dark(colour, 0.3))
    pen.rect(0.68, 0.06, 0.94, 0.46, colour, 0.45)
    pen.ellipse(0.72, 0.30, 1.0, 0.52, PINK)
    pen.eye(0.80, 0.19, 0.022)
    pen.eye(0.92, 0.40, 0.014)


def horse(pen: Pen, colour: Rgb) -> None:
    mane = dark(colour, 0.5) if sum(colour) > 200 else (110, 100, 100)
    pen.poly([(0.10, 0.38), (0.0, 0.48), (0.02, 0.76), (0.10, 0.66), (0.14, 0.48)], mane)
    _legs(pen, (0.14, 0.25, 0.58, 0.68), 0.60, 0.075, colour, INK)
    pen.poly([(0.54, 0.42), (0.68, 0.08), (0.86, 0.14), (0.80, 0.56)], colour)
    pen.ellipse(0.07, 0.34, 0.82, 0.72, colour)
    pen.poly([(0.58, 0.42), (0.64, 0.40), (0.78, 0.40), (0.76, 0.60), (0.60, 0.60)], colour, edge=False)
    pen.poly([(0.68, 0.06), (0.82, 0.04), (1.0, 0.24), (0.97, 0.34), (0.88, 0.34), (0.76, 0.26)], colour)
    pen.poly([(0.70, 0.10), (0.72, 0.0), (0.78, 0.06)], colour)
    pen.poly([(0.68, 0.04), (0.62, 0.06), (0.46, 0.38), (0.56, 0.42), (0.70, 0.14)], mane)
    pen.eye(0.82, 0.14, 0.022)
    pen.eye(0.96, 0.26, 0.012)


def sheep(pen: Pen, colour: Rgb) -> None:
    face = (62, 54, 54) if sum(colour) > 250 else (150, 140, 136)
    _legs(pen, (0.16, 0.28, 0.54, 0.66), 0.68, 0.07, face, INK)
    wool = ((0.0, 0.30), (0.06, 0.12), (0.22, 0.02), (0.40, 0.0), (0.52, 0.08), (0.56, 0.28), (0.50, 0.44))
    for x, y in (*wool, (0.34, 0.50), (0.18, 0.50), (0.05, 0.44)):
        pen.ellipse(x, y, x + 0.26, y + 0.34, colour)
    pen.ellipse(0.08, 0.10, 0.74, 0.76, colour, edge=False)
    pen.ellipse(0.60, 0.24, 0.72, 0.36, face)
    pen.ellipse(0.68, 0.16, 1.0, 0.62, face)
    pen.ellipse(0.66, 0.06, 0.90, 0.28, colour)
    pen.ellipse(0.82, 0.30, 0.91, 0.41, (255, 255, 255), edge=False)
    pen.eye(0.87, 0.35, 0.016)


def elephant(pen: Pen, colour: Rgb) -> None:
    pen.line([(0.04, 0.36), (0.0, 0.60)], dark(colour), 2.5)
    for x in (0.08, 0.22, 0.44, 0.56):
        pen.rect(x, 0.55, x + 0.13, 1.0, colour, 0.2)
        pen.rect(x + 0.02, 0.94, x + 0.11, 1.0, light(colour, 0.6), edge=False)
    pen.ellipse(0.01, 0.12, 0.74, 0.80, colour)
    pen.bar([(0.88, 0.40), (0.94, 0.60), (0.91, 0.80), (0.98, 0.86)], colour, 0.09)
    pen.ellipse(0.60, 0.0, 0.96, 0.52, colour)
    pen.poly([(0.86, 0.46), (0.98, 0.56), (1.0, 0.52), (0.92, 0.42)], (250, 246, 230))
    pen.ellipse(0.46, 0.04, 0.74, 0.54, mix(colour, PINK, 0.25))
    pen.eye(0.84, 0.20, 0.02)


def bird(pen: Pen, colour: Rgb) -> None:
    pen.line([(0.46, 0.80), (0.44, 1.0), (0.54, 1.0)], BEAK, 2)
    pen.line([(0.56, 0.80), (0.56, 1.0), (0.66, 1.0)], BEAK, 2)
    pen.poly([(0.24, 0.46), (0.0, 0.40), (0.06, 0.62), (0.28, 0.66)], dark(colour, 0.3))
    pen.ellipse(0.14, 0.26, 0.80, 0.88, colour)
    pen.ellipse(0.42, 0.46, 0.80, 0.86, light(colour, 0.55), edge=False)
    pen.poly([(0.86, 0.20), (1.0, 0.28), (0.86, 0.36)], BEAK)
    pen.ellipse(0.50, 0.0, 0.90, 0.50, colour)
    pen.ellipse(0.20, 0.42, 0.56, 0.72, dark(colour, 0.25))
    pen.ellipse(0.70, 0.12, 0.80, 0.24, (255, 255, 255), edge=False)
    pen.eye(0.76, 0.18, 0.03)


def duck(pen: Pen, colour: Rgb) -> None:
    pen.poly([(0.20, 0.62), (0.0, 0.40), (0.02, 0.70)], colour)
    pen.ellipse(0.02, 0.46, 0.80, 1.0, colour)
    pen.poly([(0.52, 0.30), (0.76, 0.34), (0.78, 0.70), (0.54, 0.66)], colour, edge=False)
    pen.poly([(0.82, 0.18), (1.0, 0.24), (0.98, 0.34), (0.82, 0.32)], BEAK)
    pen.ellipse(0.48, 0.0, 0.88, 0.46, colour)
    pen.ellipse(0.16, 0.54, 0.56, 0.82, dark(colour, 0.18))
    pen.eye(0.74, 0.16, 0.035)


def fish(pen: Pen, colour: Rgb) -> None:
    pen.poly([(0.24, 0.50), (0.0, 0.06), (0.06, 0.50), (0.0, 0.94)], dark(colour, 0.2))
    pen.poly([(0.42, 0.16), (0.54, 0.0), (0.70, 0.14)], dark(colour, 0.2))
    pen.ellipse(0.16, 0.06, 1.0, 1.0, colour)
    pen.arc(0.50, 0.14, 0.74, 0.90, -70, 70, dark(colour))
    pen.poly([(0.50, 0.54), (0.36, 0.76), (0.58, 0.70)], dark(colour, 0.2))
    pen.ellipse(0.78, 0.26, 0.90, 0.52, (255, 255, 255), edge=False)
    pen.eye(0.84, 0.39, 0.03)


def butterfly(pen: Pen, colour: Rgb) -> None:
    for side in (-1, 1):
        pen.ellipse(0.5 + side * 0.27 - 0.23, 0.0, 0.5 + side * 0.27 + 0.23, 0.60, colour)
        pen.ellipse(0.5 + side * 0.22 - 0.18, 0.48, 0.5 + side * 0.22 + 0.18, 1.0, light(colour, 0.25))
        pen.ellipse(0.5 + side * 0.28 - 0.10, 0.14, 0.5 + side * 0.28 + 0.10, 0.42, light(colour, 0.7))
        pen.ellipse(0.5 + side * 0.22 - 0.07, 0.62, 0.5 + side * 0.22 + 0.07, 0.82, dark(colour))
        pen.line([(0.5, 0.22), (0.5 + side * 0.10, 0.02)], INK)
    pen.ellipse(0.455, 0.16, 0.545, 0.90, INK)
