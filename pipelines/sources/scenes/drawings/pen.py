"""A pen that draws in the unit square of an object's box, facing right unless flipped."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import ImageDraw

from capgrade.pipelines.sources.scenes.scene import Box

Rgb = tuple[int, int, int]
Point = tuple[float, float]
SKINS: tuple[Rgb, ...] = ((255, 219, 186), (238, 187, 140), (198, 134, 85), (141, 85, 48))
HAIRS: tuple[Rgb, ...] = ((66, 42, 28), (24, 22, 24), (190, 140, 60), (120, 60, 30), (150, 150, 150))
INK: Rgb = (40, 36, 40)
GLASS: Rgb = (184, 222, 240)
WHEEL: Rgb = (44, 44, 48)
METAL: Rgb = (176, 180, 188)


def mix(colour: Rgb, other: Rgb, share: float) -> Rgb:
    """`colour` with `share` of it replaced by `other`."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(colour, other, strict=True))
    return red, green, blue


def dark(colour: Rgb, share: float = 0.35) -> Rgb:
    return mix(colour, (0, 0, 0), share)


def light(colour: Rgb, share: float = 0.4) -> Rgb:
    return mix(colour, (255, 255, 255), share)


class Pen:
    """Shapes with a darker outline. Coordinates are shares of the box: (0, 0) upper left, (1, 1) lower right."""

    def __init__(self, canvas: ImageDraw.ImageDraw, box: Box, flip: bool, stroke: int, look: int) -> None:
        self.canvas, self.box, self.flip, self.stroke = canvas, box, flip, stroke
        self.skin, self.hair, self.look = SKINS[look % len(SKINS)], HAIRS[look % len(HAIRS)], look

    def ellipse(self, x0: float, y0: float, x1: float, y1: float, fill: Rgb, edge: bool = True) -> None:
        self.canvas.ellipse(self._rectangle(x0, y0, x1, y1), fill, dark(fill) if edge else None, self.stroke)

    def rect(
        self, x0: float, y0: float, x1: float, y1: float, fill: Rgb, round_: float = 0.0, edge: bool = True
    ) -> None:
        """`round_` is the corners' radius as a share of the shorter side."""
        a, b, c, d = self._rectangle(x0, y0, x1, y1)
        radius = round_ * min(c - a, d - b)
        outline = dark(fill) if edge else None
        self.canvas.rounded_rectangle((a, b, c, d), radius, fill, outline, self.stroke)

    def poly(self, points: Sequence[Point], fill: Rgb, edge: bool = True) -> None:
        where = [self._point(x, y) for x, y in points]
        self.canvas.polygon(where, fill, dark(fill) if edge else fill, self.stroke)

    def line(self, points: Sequence[Point], fill: Rgb, width: float = 1.0) -> None:
        """`width` in strokes."""
        where = [self._point(x, y) for x, y in points]
        self.canvas.line(where, fill, max(1, round(width * self.stroke)), joint="curve")

    def bar(self, points: Sequence[Point], fill: Rgb, width: float) -> None:
        """An outlined line; `width` is a share of the box's width."""
        thick = width * (self.box[2] - self.box[0]) / self.stroke
        self.line(points, dark(fill), thick)
        self.line(points, fill, max(thick - 2, 1))

    def arc(self, x0: float, y0: float, x1: float, y1: float, start: float, end: float, fill: Rgb) -> None:
        """Part of an ellipse's edge, degrees clockwise from the right."""
        if self.flip:
            start, end = 180 - end, 180 - start
        self.canvas.arc(self._rectangle(x0, y0, x1, y1), start, end, fill, 2 * self.stroke)

    def pie(self, x0: float, y0: float, x1: float, y1: float, start: float, end: float, fill: Rgb) -> None:
        """A slice of an ellipse, degrees clockwise from the right."""
        if self.flip:
            start, end = 180 - end, 180 - start
        self.canvas.pieslice(self._rectangle(x0, y0, x1, y1), start, end, fill, dark(fill), self.stroke)

    def ring(self, x0: float, y0: float, x1: float, y1: float, fill: Rgb, width: float = 2.0) -> None:
        """An ellipse's edge; `width` in strokes."""
        self.canvas.ellipse(self._rectangle(x0, y0, x1, y1), None, fill, max(1, round(width * self.stroke)))

    def eye(self, x: float, y: float, radius: float = 0.03) -> None:
        """A round eye; `radius` is a share of the box's width."""
        a, b = self._point(x, y)
        r = max(radius * (self.box[2] - self.box[0]), self.stroke)
        self.canvas.ellipse((a - r, b - r, a + r, b + r), INK)

    def _point(self, x: float, y: float) -> Point:
        x0, y0, x1, y1 = self.box
        return x0 + (1 - x if self.flip else x) * (x1 - x0), y0 + y * (y1 - y0)

    def _rectangle(self, x0: float, y0: float, x1: float, y1: float) -> Box:
        a, b = self._point(x0, y0)
        c, d = self._point(x1, y1)
        return min(a, c), b, max(a, c), d
