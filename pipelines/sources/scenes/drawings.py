"""Pictures of scenes: a pen draws the shapes that drawings.yaml lists for each place and kind."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from math import cos, pi, sin
from pathlib import Path

import numpy as np
import yaml
from PIL import Image, ImageColor, ImageDraw

from capgrade.pipelines.sources.scenes.scene import Box, Scene, SceneObject
from capgrade.pipelines.sources.scenes.world import OBJECT_COLOURS

# Scenes are drawn at three times their size and then averaged, because Pillow's edges are hard.
SUPERSAMPLING = 3
BANDS = 48  # how many bands of one colour make a gradient
Rgb = tuple[int, ...]
_Numbers = Sequence[float]
DRAWINGS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def blend(colour: Rgb, other: Rgb, share: float) -> Rgb:
    """`colour` with `share` of it replaced by `other`."""
    return tuple(round(a + (b - a) * share) for a, b in zip(colour, other, strict=True))


def _darken(colour: Rgb) -> Rgb:
    return blend(colour, (0, 0, 0), 0.35)


class _Pen:
    """Draws shapes in the unit square of a box, from (0, 0), upper left, to (1, 1), facing right
    unless flipped.

    Each method is a shape: `at` holds its coordinates as shares of the box, then come its colours
    and options.
    """

    def __init__(
        self,
        canvas: ImageDraw.ImageDraw,
        box: Box,
        words: Mapping[str, str],
        stroke: int,
        look: int,
        flip: bool,
    ) -> None:
        self.canvas, self.box, self.words, self.stroke = canvas, box, words, stroke
        self.look, self.flip = look, flip

    def draw(self, shapes: Sequence[Mapping[str, str | None]]) -> None:
        """Draw shapes in order; drawings.yaml explains how it lists them."""
        for head, places in (pair for shape in shapes for pair in shape.items()):
            shape, *words = head.split()
            colours = [self.colour(word) for word in words if "=" not in word]
            options = {
                name: float(value)
                for name, value in (word.split("=") for word in words if "=" in word)
            }
            for place in (places or "").split(","):
                at = [float(number) for number in place.split()]
                getattr(self, shape)(at, *colours, **options)

    def colour(self, word: str) -> Rgb:
        """The colour of a word: a name, or red, green and blue in hexadecimal; `a/b/share` mixes
        two."""
        name, *mixed = self.words.get(word, word).split("/")
        if mixed:
            return blend(self.colour(name), self.colour(mixed[0]), float(mixed[1]))
        if looks := DRAWINGS["looks"].get(name):
            return self.colour(looks[self.look % len(looks)])
        return ImageColor.getrgb(f"#{DRAWINGS['colours'].get(name, name)}")

    def ellipse(self, at: _Numbers, fill: Rgb, edge: float = 1) -> None:
        self.canvas.ellipse(self._rectangle(at), fill, _darken(fill) if edge else None, self.stroke)

    def rect(self, at: _Numbers, fill: Rgb, round: float = 0, edge: float = 1) -> None:  # noqa: A002
        """`round` is the corners' radius as a share of the shorter side."""
        x0, y0, x1, y1 = box = self._rectangle(at)
        radius = round * min(x1 - x0, y1 - y0)
        self.canvas.rounded_rectangle(
            box, radius, fill, _darken(fill) if edge else None, self.stroke
        )

    def poly(self, at: _Numbers, fill: Rgb, edge: float = 1) -> None:
        self.canvas.polygon(self._points(at), fill, _darken(fill) if edge else fill, self.stroke)

    def line(self, at: _Numbers, fill: Rgb, width: float = 1) -> None:
        """`width` in strokes."""
        self.canvas.line(self._points(at), fill, max(1, round(width * self.stroke)), joint="curve")

    def bar(self, at: _Numbers, fill: Rgb, width: float) -> None:
        """An outlined line; `width` is a share of the box's width."""
        thick = width * (self.box[2] - self.box[0]) / self.stroke
        self.line(at, _darken(fill), thick)
        self.line(at, fill, max(thick - 2, 1))

    def arc(self, at: _Numbers, fill: Rgb) -> None:
        """Part of an ellipse's edge: its box, then degrees clockwise from the right."""
        self.canvas.arc(self._rectangle(at), *self._degrees(at), fill, 2 * self.stroke)

    def pie(self, at: _Numbers, fill: Rgb) -> None:
        """A slice of an ellipse, as `arc` takes it."""
        self.canvas.pieslice(
            self._rectangle(at), *self._degrees(at), fill, _darken(fill), self.stroke
        )

    def ring(self, at: _Numbers, fill: Rgb, width: float) -> None:
        """An ellipse's edge; `width` in strokes."""
        self.canvas.ellipse(self._rectangle(at), None, fill, max(1, round(width * self.stroke)))

    def eye(self, at: _Numbers) -> None:
        """The middle, then the radius as a share of the box's width."""
        [(x, y)], r = self._points(at[:2]), max(at[2] * (self.box[2] - self.box[0]), self.stroke)
        self.canvas.ellipse((x - r, y - r, x + r, y + r), self.colour("ink"))

    def wheel(self, at: _Numbers) -> None:
        """Round, on the ground: the middle, and the radius as a share of the box's width."""
        x, radius = at
        high = self._height(radius)
        self.ellipse((x - radius, 1 - 2 * high, x + radius, 1), self.colour("tyre"))
        self.ellipse(
            (x - radius / 2, 1 - 1.5 * high, x + radius / 2, 1 - high / 2), self.colour("metal")
        )

    def bicycle(self, _: _Numbers, fill: Rgb, radius: float) -> None:
        high, ink, metal = self._height(radius), self.colour("ink"), self.colour("metal")
        hub = 1 - high
        for x in (radius, 1 - radius):
            self.ring((x - radius, 1 - 2 * high, x + radius, 1), self.colour("tyre"), 3)
            for across, down in ((1, 0), (0, 1), (0.7, 0.7), (0.7, -0.7)):
                dx, dy = across * radius, down * high
                self.line((x - dx, hub - dy, x + dx, hub + dy), metal, 0.6)
        self.line((0.23, hub, 0.48, hub, 0.68, 0.26, 0.36, 0.26, 0.23, hub), fill, 3.5)
        self.line((0.48, hub, 0.34, 0.14), fill, 3.5)
        self.line((0.77, hub, 0.66, 0.04, 0.78, 0), fill, 3.5)
        self.rect((0.25, 0.08, 0.43, 0.16), ink, 0.5)
        self.ellipse((0.43, hub - 0.08, 0.53, hub + 0.08), metal)
        self.rect((0.74, 0, 0.84, 0.06), ink, 0.5)

    def windows(self, _: _Numbers, lit: Rgb, unlit: Rgb) -> None:
        """Eight rows of three, a quarter of them lit."""
        for row, column in np.ndindex(8, 3):
            x, y = 0.10 + 0.29 * column, 0.19 + 0.095 * row
            fill = unlit if (row * 3 + column * 5 + self.look) % 4 else lit
            self.rect((x, y, x + 0.20, y + 0.055), fill, edge=0)

    def rays(self, _: _Numbers, fill: Rgb) -> None:
        for turn in range(12):
            angle = turn * pi / 6
            corners = [(0.5, angle), (0.3, angle - 0.16), (0.3, angle + 0.16)]
            self.poly([0.5 + r * axis(a) for r, a in corners for axis in (cos, sin)], fill)

    def hours(self, _: _Numbers, fill: Rgb) -> None:
        for turn in range(12):
            angle = turn * pi / 6
            self.line([0.5 + r * axis(angle) for r in (0.32, 0.38) for axis in (cos, sin)], fill)

    def banana(self, _: _Numbers, fill: Rgb) -> None:
        angles = [pi * t / 10 for t in range(11)]
        outer = [xy for a in angles for xy in (0.5 - 0.5 * cos(a), 0.06 + 0.94 * sin(a))]
        inner = [xy for a in angles for xy in (0.5 + 0.42 * cos(a), 0.06 + 0.44 * sin(a))]
        self.poly(outer + inner, fill)

    def crescent(self, _: _Numbers, fill: Rgb) -> None:
        angles = [pi * t / 16 for t in range(17)]
        outer = [xy for a in angles for xy in (1 - sin(a), 0.5 - 0.5 * cos(a))]
        inner = [xy for a in angles[1:-1] for xy in (1 - 0.55 * sin(a), 0.5 + 0.5 * cos(a))]
        self.poly(outer + inner, fill)

    def _height(self, width: float) -> float:
        """A share of the box's width as the same length in shares of its height."""
        return width * (self.box[2] - self.box[0]) / (self.box[3] - self.box[1])

    def _points(self, at: _Numbers) -> list[tuple[float, float]]:
        x0, y0, x1, y1 = self.box
        return [
            (x0 + (1 - x if self.flip else x) * (x1 - x0), y0 + y * (y1 - y0))
            for x, y in zip(at[::2], at[1::2], strict=True)
        ]

    def _rectangle(self, at: _Numbers) -> Box:
        (a, b), (c, d) = self._points(at[:4])
        return min(a, c), b, max(a, c), d

    def _degrees(self, at: _Numbers) -> tuple[float, float]:
        return (180 - at[5], 180 - at[4]) if self.flip else (at[4], at[5])


class _Ground(_Pen):
    """Shapes of a place; `rng` varies the texture, never the layout."""

    def __init__(self, canvas: ImageDraw.ImageDraw, side: int, rng: np.random.Generator) -> None:
        super().__init__(canvas, (0, 0, side, side), {}, stroke=1, look=0, flip=False)
        self.rng, self.side = rng, side

    def flat(self, at: _Numbers, fill: Rgb) -> None:
        self.canvas.rectangle(self._rectangle(at), fill)

    def area(self, at: _Numbers, fill: Rgb) -> None:
        self.canvas.polygon(self._points(at), fill)

    def dash(self, at: _Numbers, fill: Rgb) -> None:
        """A dash of a road's middle line; `at` has its left end."""
        self.area((at[0], 0.835, at[0] + 0.15, 0.835, at[0] + 0.14, 0.86, at[0] - 0.01, 0.86), fill)

    def fade(self, at: _Numbers, above: Rgb, below: Rgb) -> None:
        """A vertical gradient from one height to another."""
        top, step = at[0], (at[1] - at[0]) / BANDS
        for band in range(BANDS):
            self.flat(
                (0, top + band * step, 1, top + (band + 1) * step),
                blend(above, below, band / (BANDS - 1)),
            )

    def hill(self, at: _Numbers, fill: Rgb) -> None:
        """`at` has the middle, the top, the width and the foot."""
        x, top, wide, foot = at
        self.ellipse((x - wide / 2, top, x + wide / 2, 2 * foot - top), fill, edge=0)

    def specks(self, at: _Numbers, fill: Rgb) -> None:
        """`at` has their number, two heights to stay between, width and height. Lower specks are
        larger, because they look nearer."""
        count, top, bottom, wide, high = at
        for x, t in self.rng.random((int(count), 2)).tolist():
            y, scale = top + (bottom - top) * t, 0.5 + 0.7 * t
            a, b = x * self.side, y * self.side
            w, h = wide * scale * self.side, high * scale * self.side
            self.canvas.ellipse((a - w, b - h, a + w, b + h), fill)

    def houses(self, _: _Numbers) -> None:
        for i in range(7):
            top, shade = 0.30 + 0.16 * self.rng.random(), int(self.rng.integers(168, 206))
            self.flat((i / 7, top, (i + 1) / 7, 0.60), (shade, shade, shade + 10))

    def wallpaper(self, _: _Numbers, *walls: Rgb) -> None:
        wall = walls[int(self.rng.integers(len(walls)))]
        self.flat((0, 0, 1, 0.72), wall)
        for i in range(0, 12, 2):
            self.flat((i / 12, 0, (i + 1) / 12, 0.72), blend(wall, (0, 0, 0), 0.04))
        self.flat((0, 0.69, 1, 0.72), blend(wall, (255, 255, 255), 0.6))

    def joints(self, _: _Numbers, fill: Rgb) -> None:
        for x in self.rng.random(9).tolist():
            self.flat((x, 0.77, x + 0.004, 0.83), fill)

    def tiles(self, _: _Numbers, *tiles: Rgb) -> None:
        tile = tiles[int(self.rng.integers(len(tiles)))]
        self.flat((0, 0, 1, 0.76), tile)
        for i in range(1, 10):
            self.flat((i / 10, 0, i / 10 + 0.005, 0.46), blend(tile, (0, 0, 0), 0.1))
            self.flat((0, i / 10, 1, i / 10 + 0.005), blend(tile, (0, 0, 0), 0.1))

    def checks(self, _: _Numbers, fill: Rgb) -> None:
        for row in range(4):
            for column in range(row % 2, 12, 2):
                top = 0.76 + row * 0.06
                self.flat((column / 12, top, (column + 1) / 12, top + 0.06), fill)

    def trunks(self, _: _Numbers, fill: Rgb) -> None:
        for x in np.sort(self.rng.random(13)).tolist():
            self.flat((x, 0.10, x + (0.02 + 0.02 * self.rng.random()), 0.62), fill)

    def blocks(self, _: _Numbers, wall: Rgb, window: Rgb) -> None:
        for i in range(9):
            top = 0.28 + 0.22 * self.rng.random()
            self.flat((i / 9, top, (i + 1) / 9 - 0.006, 0.66), wall)
            for row, column in np.argwhere(self.rng.random((6, 3)) < 0.4).tolist():
                x, y = i / 9 + 0.018 + column * 0.03, top + 0.03 + row * 0.05
                if y < 0.60:
                    self.flat((x, y, x + 0.016, y + 0.022), window)


def draw_scene(scene: Scene) -> Image.Image:
    """The picture of a scene: RGB, `scene.size` pixels square, with the same pixels every time."""
    side = scene.size * SUPERSAMPLING
    image = Image.new("RGB", (side, side))
    canvas = ImageDraw.Draw(image)
    ground = _Ground(canvas, side, np.random.default_rng(scene.variant))
    ground.draw(DRAWINGS["places"][scene.background])
    for item in scene.objects:  # Objects come from back to front.
        _draw_object(canvas, item, stroke=max(1, round(side / 224 / 1.4)))
    return image.reduce(SUPERSAMPLING)


def _draw_object(canvas: ImageDraw.ImageDraw, item: SceneObject, stroke: int) -> None:
    x0, y0, x1, y1 = (edge * SUPERSAMPLING for edge in item.box)
    words = {"colour": bytes(OBJECT_COLOURS[item.colour]).hex()}
    for name, contrasts in DRAWINGS["contrasts"].items():
        words[name] = contrasts.get(item.colour, contrasts["others"])
    # Pillow includes the lower and right edge, so that a box ends one pixel earlier.
    pen = _Pen(canvas, (x0, y0, x1 - 1, y1 - 1), words, stroke, item.look, item.flip)
    pen.draw(DRAWINGS["kinds"][item.kind])


def encode_png(scene: Scene) -> bytes:
    """The picture of `draw_scene` as a PNG file."""
    out = BytesIO()
    draw_scene(scene).save(out, "PNG", compress_level=4)
    return out.getvalue()
