"""The backgrounds, in shares of the picture's side; `rng` varies the texture, never the layout."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import ImageDraw

from capgrade.pipelines.sources.scenes.drawings.pen import Rgb, dark, light, mix
from capgrade.pipelines.sources.scenes.world import BACKGROUNDS


class Ground:
    """A square canvas of `side` pixels."""

    def __init__(self, canvas: ImageDraw.ImageDraw, side: int, rng: np.random.Generator) -> None:
        self.canvas, self.side, self.rng = canvas, side, rng

    def fade(self, top: float, bottom: float, above: Rgb, below: Rgb, bands: int = 48) -> None:
        """A vertical gradient."""
        step = (bottom - top) / bands
        for band in range(bands):
            self.rect(0, top + band * step, 1, top + (band + 1) * step, mix(above, below, band / (bands - 1)))

    def rect(self, x0: float, y0: float, x1: float, y1: float, fill: Rgb) -> None:
        side = self.side
        self.canvas.rectangle((x0 * side, y0 * side, x1 * side, y1 * side), fill)

    def hill(self, x: float, top: float, wide: float, foot: float, fill: Rgb) -> None:
        side = self.side
        box = ((x - wide / 2) * side, top * side, (x + wide / 2) * side, (2 * foot - top) * side)
        self.canvas.ellipse(box, fill)

    def poly(self, points: list[tuple[float, float]], fill: Rgb) -> None:
        self.canvas.polygon([(x * self.side, y * self.side) for x, y in points], fill)

    def specks(self, count: int, top: float, bottom: float, wide: float, high: float, fill: Rgb) -> None:
        """Small ellipses at random; lower ones are larger, as nearer ones look."""
        places = self.rng.random((count, 2))
        for x, t in places.tolist():
            y, scale = top + (bottom - top) * t, 0.5 + 0.7 * t
            a, b, w, h = x * self.side, y * self.side, wide * scale * self.side, high * scale * self.side
            self.canvas.ellipse((a - w, b - h, a + w, b + h), fill)


def meadow(g: Ground) -> None:
    g.fade(0, 0.58, (126, 194, 244), (214, 238, 252))
    g.hill(0.2, 0.44, 0.9, 0.60, (142, 196, 110))
    g.hill(0.85, 0.46, 0.8, 0.60, (128, 186, 100))
    g.fade(0.56, 1, (122, 188, 86), (92, 160, 66))
    g.specks(110, 0.60, 1, 0.004, 0.010, (78, 140, 56))
    g.specks(24, 0.62, 1, 0.006, 0.005, (250, 246, 200))


def street(g: Ground) -> None:
    g.fade(0, 0.60, (150, 200, 240), (226, 238, 246))
    for i in range(7):
        top, shade = 0.30 + 0.16 * g.rng.random(), int(g.rng.integers(168, 206))
        g.rect(i / 7, top, (i + 1) / 7, 0.60, (shade, shade, shade + 10))
    g.rect(0, 0.58, 1, 0.68, (196, 190, 182))
    g.rect(0, 0.67, 1, 0.69, (150, 146, 142))
    g.fade(0.69, 1, (112, 114, 120), (92, 94, 100))
    for x in (0.02, 0.30, 0.58, 0.86):
        g.poly([(x, 0.835), (x + 0.15, 0.835), (x + 0.14, 0.86), (x - 0.01, 0.86)], (240, 236, 214))


def room(g: Ground) -> None:
    wall = ((236, 222, 196), (206, 222, 214), (220, 208, 226))[int(g.rng.integers(3))]
    g.rect(0, 0, 1, 0.72, wall)
    for i in range(0, 12, 2):
        g.rect(i / 12, 0, (i + 1) / 12, 0.72, dark(wall, 0.04))
    g.rect(0, 0.69, 1, 0.72, light(wall, 0.6))
    g.fade(0.72, 1, (190, 138, 90), (168, 116, 72))
    for y in (0.77, 0.83, 0.90):
        g.rect(0, y, 1, y + 0.004, (140, 94, 56))
    for x in g.rng.random(9).tolist():
        g.rect(x, 0.77, x + 0.004, 0.83, (140, 94, 56))


def beach(g: Ground) -> None:
    g.fade(0, 0.48, (110, 190, 246), (206, 236, 252))
    g.fade(0.46, 0.68, (36, 124, 190), (110, 196, 214))
    g.specks(26, 0.50, 0.64, 0.03, 0.003, (178, 224, 236))
    g.hill(0.35, 0.64, 1.6, 0.72, (244, 250, 250))
    g.hill(0.35, 0.655, 1.6, 0.735, (240, 214, 158))
    g.fade(0.70, 1, (242, 216, 160), (228, 194, 132))
    g.specks(90, 0.72, 1, 0.004, 0.003, (208, 172, 112))


def kitchen(g: Ground) -> None:
    tile = ((222, 236, 240), (244, 236, 214), (226, 240, 224))[int(g.rng.integers(3))]
    g.rect(0, 0, 1, 0.76, tile)
    for i in range(1, 10):
        g.rect(i / 10, 0, i / 10 + 0.005, 0.46, dark(tile, 0.1))
        g.rect(0, i / 10, 1, i / 10 + 0.005, dark(tile, 0.1))
    g.rect(0, 0.47, 1, 0.51, (128, 110, 100))
    g.rect(0, 0.51, 1, 0.76, (206, 196, 184))
    for i in range(4):
        g.rect(i / 4 + 0.015, 0.53, i / 4 + 0.235, 0.74, (222, 214, 204))
        g.rect(i / 4 + 0.11, 0.56, i / 4 + 0.14, 0.57, (120, 114, 110))
    g.rect(0, 0.76, 1, 1, (236, 232, 222))
    for row in range(4):
        for column in range(row % 2, 12, 2):
            g.rect(column / 12, 0.76 + row * 0.06, (column + 1) / 12, 0.82 + row * 0.06, (170, 182, 190))


def forest(g: Ground) -> None:
    g.fade(0, 0.62, (176, 212, 190), (120, 170, 126))
    for x in np.sort(g.rng.random(13)).tolist():
        wide = 0.02 + 0.02 * g.rng.random()
        g.rect(x, 0.10, x + wide, 0.62, (96, 112, 84))
    for i in range(9):
        g.hill(i / 8, -0.12, 0.24, 0.10, (72, 124, 76))
        g.hill(i / 8 + 0.06, 0.50, 0.16, 0.64, (88, 140, 84))
    g.fade(0.60, 1, (96, 136, 74), (74, 108, 56))
    g.specks(80, 0.64, 1, 0.010, 0.004, (120, 96, 58))
    g.specks(60, 0.64, 1, 0.004, 0.010, (58, 96, 50))


def lake(g: Ground) -> None:
    g.fade(0, 0.46, (142, 200, 244), (222, 240, 250))
    g.poly([(0.0, 0.46), (0.18, 0.24), (0.34, 0.42), (0.52, 0.20), (0.74, 0.44), (0.88, 0.32), (1.0, 0.46)],
           (142, 158, 186))  # fmt: skip
    g.rect(0, 0.43, 1, 0.47, (96, 150, 92))
    g.fade(0.46, 0.84, (110, 174, 220), (62, 128, 190))
    g.specks(44, 0.50, 0.82, 0.035, 0.003, (160, 208, 236))
    g.hill(0.5, 0.81, 1.7, 0.93, (150, 170, 96))
    g.fade(0.88, 1, (128, 178, 86), (100, 152, 70))
    g.specks(40, 0.88, 1, 0.004, 0.008, (84, 136, 58))


def snow(g: Ground) -> None:
    g.fade(0, 0.60, (172, 190, 214), (222, 230, 240))
    g.hill(0.15, 0.46, 0.9, 0.64, (212, 222, 236))
    g.hill(0.80, 0.42, 1.0, 0.64, (202, 214, 230))
    g.fade(0.58, 1, (226, 234, 244), (208, 220, 234))
    g.specks(26, 0.64, 1, 0.04, 0.006, (238, 244, 250))
    g.specks(70, 0.02, 0.98, 0.006, 0.006, (255, 255, 255))


def night_city(g: Ground) -> None:
    g.fade(0, 0.62, (20, 24, 60), (62, 58, 110))
    g.specks(36, 0.02, 0.34, 0.003, 0.003, (255, 250, 214))
    for i in range(9):
        top = 0.28 + 0.22 * g.rng.random()
        g.rect(i / 9, top, (i + 1) / 9 - 0.006, 0.66, (36, 36, 66))
        lit = g.rng.random((6, 3)) < 0.4
        for row, column in np.argwhere(lit).tolist():
            y = top + 0.03 + row * 0.05
            if y < 0.60:
                x = i / 9 + 0.018 + column * 0.03
                g.rect(x, y, x + 0.016, y + 0.022, (226, 196, 110))
    g.rect(0, 0.64, 1, 0.72, (92, 90, 110))
    g.fade(0.71, 1, (58, 58, 74), (44, 44, 58))
    for x in (0.04, 0.32, 0.60, 0.88):
        g.rect(x, 0.84, x + 0.13, 0.86, (190, 180, 120))


def desert(g: Ground) -> None:
    g.fade(0, 0.60, (150, 206, 240), (250, 230, 190))
    g.poly([(0.05, 0.60), (0.16, 0.42), (0.36, 0.42), (0.44, 0.60)], (208, 140, 92))
    g.poly([(0.62, 0.60), (0.70, 0.47), (0.86, 0.47), (0.94, 0.60)], (198, 128, 84))
    g.fade(0.58, 1, (236, 194, 122), (216, 166, 96))
    g.hill(0.25, 0.70, 0.9, 0.78, (228, 182, 110))
    g.hill(0.85, 0.80, 0.9, 0.90, (222, 174, 102))
    g.specks(50, 0.62, 1, 0.005, 0.003, (186, 138, 78))


_ALL = (meadow, street, room, beach, kitchen, forest, lake, snow, night_city, desert)
PLACES: dict[str, Callable[[Ground], None]] = {place.__name__.replace("_", " "): place for place in _ALL}
assert PLACES.keys() == BACKGROUNDS.keys()
