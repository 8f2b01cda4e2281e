"""Toys, plants, buildings and what is in the sky."""

from __future__ import annotations

from math import cos, pi, sin

from capgrade.pipelines.sources.scenes.drawings.pen import GLASS, INK, Pen, Rgb, dark, light

TRUNK: Rgb = (122, 84, 50)
LEAF: Rgb = (58, 142, 66)
SNOW: Rgb = (250, 252, 255)
ROOFS: tuple[Rgb, ...] = ((168, 70, 52), (96, 84, 84), (120, 74, 46))


def ball(pen: Pen, colour: Rgb) -> None:
    pen.ellipse(0.0, 0.0, 1.0, 1.0, colour)
    for start in (20, 140, 260):
        pen.pie(0.03, 0.03, 0.97, 0.97, start, start + 55, (252, 252, 248))
    pen.ellipse(0.40, 0.40, 0.60, 0.60, light(colour, 0.3))


def kite(pen: Pen, colour: Rgb) -> None:
    pen.line([(0.5, 0.66), (0.42, 0.76), (0.58, 0.86), (0.5, 1.0)], (110, 100, 100), 1.4)
    pen.poly([(0.5, 0.0), (1.0, 0.30), (0.5, 0.68), (0.0, 0.30)], colour)
    pen.poly([(0.5, 0.0), (1.0, 0.30), (0.5, 0.30)], light(colour, 0.5))
    pen.poly([(0.0, 0.30), (0.5, 0.30), (0.5, 0.68)], dark(colour, 0.2))
    for x, y in ((0.46, 0.78), (0.54, 0.88)):
        pen.poly([(x - 0.14, y - 0.04), (x + 0.14, y + 0.04), (x + 0.14, y - 0.04), (x - 0.14, y + 0.04)], colour)


def balloon(pen: Pen, colour: Rgb) -> None:
    pen.line([(0.5, 0.60), (0.42, 0.74), (0.56, 0.86), (0.5, 1.0)], (100, 92, 92), 1.2)
    pen.poly([(0.5, 0.56), (0.36, 0.66), (0.64, 0.66)], dark(colour, 0.15))
    pen.ellipse(0.0, 0.0, 1.0, 0.62, colour)
    pen.ellipse(0.20, 0.08, 0.42, 0.26, light(colour, 0.6), edge=False)


def teddy_bear(pen: Pen, colour: Rgb) -> None:
    soft = light(colour, 0.5)
    for x in (0.12, 0.62):
        pen.ellipse(x, 0.0, x + 0.26, 0.22, colour)
        pen.ellipse(x + 0.07, 0.05, x + 0.19, 0.16, soft, edge=False)
    pen.ellipse(0.0, 0.44, 0.28, 0.74, colour)
    pen.ellipse(0.72, 0.44, 1.0, 0.74, colour)
    pen.ellipse(0.16, 0.42, 0.84, 0.98, colour)
    pen.ellipse(0.30, 0.54, 0.70, 0.88, soft, edge=False)
    for x in (0.04, 0.64):
        pen.ellipse(x, 0.76, x + 0.32, 1.0, colour)
        pen.ellipse(x + 0.08, 0.81, x + 0.24, 0.95, soft, edge=False)
    pen.ellipse(0.14, 0.04, 0.86, 0.52, colour)
    pen.ellipse(0.34, 0.26, 0.66, 0.48, soft)
    pen.ellipse(0.44, 0.27, 0.56, 0.35, INK)
    pen.eye(0.34, 0.22, 0.04)
    pen.eye(0.66, 0.22, 0.04)


def snowman(pen: Pen, colour: Rgb) -> None:
    pen.line([(0.24, 0.52), (0.0, 0.40)], TRUNK, 2.5)
    pen.line([(0.76, 0.52), (1.0, 0.38)], TRUNK, 2.5)
    pen.ellipse(0.10, 0.56, 0.90, 1.0, colour)
    pen.ellipse(0.20, 0.34, 0.80, 0.70, colour)
    pen.ellipse(0.28, 0.12, 0.72, 0.42, colour)
    pen.rect(0.22, 0.12, 0.78, 0.17, INK)
    pen.rect(0.32, 0.0, 0.68, 0.14, INK)
    pen.rect(0.26, 0.38, 0.74, 0.43, (214, 48, 49), 0.4)
    pen.poly([(0.52, 0.25), (0.80, 0.29), (0.52, 0.31)], (244, 140, 40))
    for x, y in ((0.42, 0.23), (0.60, 0.23), (0.50, 0.50), (0.50, 0.59)):
        pen.eye(x, y, 0.035)


def tree(pen: Pen, colour: Rgb) -> None:
    pen.poly([(0.42, 0.50), (0.58, 0.50), (0.64, 1.0), (0.36, 1.0)], TRUNK)
    crown = ((0.0, 0.26), (0.12, 0.08), (0.30, 0.0), (0.50, 0.08), (0.60, 0.26), (0.42, 0.34), (0.16, 0.34))
    for x, y in crown:
        pen.ellipse(x, y, x + 0.40, y + 0.32, colour)
    pen.ellipse(0.10, 0.10, 0.90, 0.58, colour, edge=False)
    for x, y in ((0.24, 0.20), (0.52, 0.14), (0.62, 0.40), (0.34, 0.44)):
        pen.ellipse(x, y, x + 0.10, y + 0.05, light(colour, 0.3), edge=False)


def pine(pen: Pen, colour: Rgb) -> None:
    pen.rect(0.42, 0.84, 0.58, 1.0, TRUNK)
    for top, bottom, half in ((0.50, 0.90, 0.50), (0.26, 0.66, 0.40), (0.0, 0.40, 0.29)):
        pen.poly([(0.5, top), (0.5 + half, bottom), (0.5 - half, bottom)], colour)
        pen.line([(0.5, top + 0.06), (0.5 - 0.5 * half, bottom - 0.08)], light(colour, 0.4), 1.5)


def flower(pen: Pen, colour: Rgb) -> None:
    pen.line([(0.5, 0.40), (0.5, 1.0)], LEAF, 3)
    pen.ellipse(0.04, 0.66, 0.50, 0.80, LEAF)
    pen.ellipse(0.50, 0.60, 0.96, 0.74, LEAF)
    for turn in range(6):
        x, y = 0.5 + 0.30 * cos(turn * pi / 3), 0.27 + 0.165 * sin(turn * pi / 3)
        pen.ellipse(x - 0.20, y - 0.11, x + 0.20, y + 0.11, colour)
    pen.ellipse(0.32, 0.17, 0.68, 0.37, (250, 196, 50) if colour[2] > 120 or colour[1] < 120 else (150, 84, 40))


def cactus(pen: Pen, colour: Rgb) -> None:
    pen.bar([(0.42, 0.66), (0.10, 0.62), (0.10, 0.34)], colour, 0.18)
    pen.bar([(0.58, 0.56), (0.90, 0.52), (0.90, 0.22)], colour, 0.18)
    pen.ellipse(0.0, 0.26, 0.20, 0.42, colour)
    pen.ellipse(0.80, 0.14, 1.0, 0.30, colour)
    pen.rect(0.34, 0.0, 0.66, 1.0, colour, 0.45)
    for x in (0.43, 0.5, 0.57):
        pen.line([(x, 0.10), (x, 0.96)], dark(colour, 0.25), 0.8)


def house(pen: Pen, colour: Rgb) -> None:
    roof = ROOFS[pen.look % 3]
    pen.rect(0.72, 0.04, 0.84, 0.30, dark(roof, 0.2))
    pen.rect(0.08, 0.40, 0.92, 1.0, colour)
    pen.poly([(0.5, 0.0), (1.0, 0.44), (0.0, 0.44)], roof)
    pen.rect(0.42, 0.64, 0.60, 1.0, dark(roof, 0.15))
    pen.eye(0.57, 0.83, 0.012)
    for x in (0.15, 0.68):
        pen.rect(x, 0.54, x + 0.18, 0.74, GLASS)
        pen.line([(x + 0.09, 0.54), (x + 0.09, 0.74)], (250, 250, 250))
        pen.line([(x, 0.64), (x + 0.18, 0.64)], (250, 250, 250))


def tower(pen: Pen, colour: Rgb) -> None:
    pen.line([(0.5, 0.0), (0.5, 0.08)], INK, 1.5)
    pen.rect(0.14, 0.06, 0.86, 0.20, dark(colour, 0.15))
    pen.rect(0.0, 0.14, 1.0, 1.0, colour)
    for row in range(8):
        for column in range(3):
            x, y = 0.10 + 0.29 * column, 0.19 + 0.095 * row
            lit = (row * 3 + column * 5 + pen.look) % 4 == 0
            pen.rect(x, y, x + 0.20, y + 0.055, (255, 232, 130) if lit else GLASS, edge=False)
    pen.rect(0.36, 0.93, 0.64, 1.0, INK)


def tent(pen: Pen, colour: Rgb) -> None:
    pen.poly([(0.5, 0.03), (1.0, 1.0), (0.0, 1.0)], colour)
    pen.poly([(0.5, 0.03), (0.70, 1.0), (0.30, 1.0)], dark(colour, 0.55))
    pen.poly([(0.5, 0.03), (0.42, 0.60), (0.22, 1.0), (0.36, 1.0)], light(colour, 0.35))
    pen.line([(0.46, 0.0), (0.54, 0.09)], TRUNK, 2)
    pen.line([(0.54, 0.0), (0.46, 0.09)], TRUNK, 2)


def sun(pen: Pen, colour: Rgb) -> None:
    for turn in range(12):
        a = turn * pi / 6
        left, right = a - 0.16, a + 0.16
        pen.poly(
            [(0.5 + 0.5 * cos(a), 0.5 + 0.5 * sin(a)), (0.5 + 0.3 * cos(left), 0.5 + 0.3 * sin(left)),
             (0.5 + 0.3 * cos(right), 0.5 + 0.3 * sin(right))],
            light(colour, 0.2),
        )  # fmt: skip
    pen.ellipse(0.18, 0.18, 0.82, 0.82, colour)


def moon(pen: Pen, colour: Rgb) -> None:
    outer = [(1.0 - sin(pi * t / 16), 0.5 - 0.5 * cos(pi * t / 16)) for t in range(17)]
    inner = [(1.0 - 0.55 * sin(pi * t / 16), 0.5 + 0.5 * cos(pi * t / 16)) for t in range(1, 16)]
    pen.poly(outer + inner, colour)
    pen.ellipse(0.12, 0.42, 0.24, 0.54, dark(colour, 0.12), edge=False)
    pen.ellipse(0.24, 0.66, 0.33, 0.74, dark(colour, 0.12), edge=False)


def cloud(pen: Pen, colour: Rgb) -> None:
    for x, y, wide, high in ((0.0, 0.42, 0.34, 0.58), (0.16, 0.14, 0.40, 0.70), (0.40, 0.0, 0.42, 0.80),
                             (0.68, 0.36, 0.32, 0.62)):  # fmt: skip
        pen.ellipse(x, y, x + wide, y + high, colour)
    pen.rect(0.14, 0.60, 0.86, 1.0, colour, 0.5)
    pen.ellipse(0.12, 0.34, 0.86, 0.96, colour, edge=False)
