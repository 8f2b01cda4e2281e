"""Scenes to pictures. The drawing of each kind, `draw(pen, colour)`, fills the unit square of the pen."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import numpy as np
from PIL import Image, ImageDraw

from capgrade.pipelines.sources.scenes.drawings import animals, indoors, outdoors, people, vehicles
from capgrade.pipelines.sources.scenes.drawings.pen import Pen, Rgb
from capgrade.pipelines.sources.scenes.drawings.places import PLACES, Ground
from capgrade.pipelines.sources.scenes.scene import Scene, SceneObject
from capgrade.pipelines.sources.scenes.world import COLOURS, KINDS

FINER = 3  # drawn at this many times the size, then averaged: Pillow's shapes have hard edges
_FUNCTIONS = {k: v for module in (animals, people, vehicles, indoors, outdoors) for k, v in vars(module).items()}
DRAWINGS: dict[str, Callable[[Pen, Rgb], None]] = {kind: _FUNCTIONS[kind.replace(" ", "_")] for kind in KINDS}


def draw(scene: Scene) -> Image.Image:
    """The picture of a scene: RGB, `scene.size` pixels square, the same pixels every time."""
    side = scene.size * FINER
    image = Image.new("RGB", (side, side))
    canvas = ImageDraw.Draw(image)
    PLACES[scene.background](Ground(canvas, side, np.random.default_rng(scene.variant)))
    for item in scene.objects:  # from back to front
        draw_object(canvas, item, side)
    return image.reduce(FINER)


def draw_object(canvas: ImageDraw.ImageDraw, item: SceneObject, side: int) -> None:
    """One object onto a canvas of `side` pixels that is FINER times the scene's size."""
    x0, y0, x1, y1 = (edge * FINER for edge in item.box)
    stroke = max(1, round(side / 224 / 1.4))
    # Pillow paints the lower and right edge itself, one pixel beyond the box.
    pen = Pen(canvas, (x0, y0, x1 - 1, y1 - 1), item.flip, stroke, item.look)
    DRAWINGS[item.kind](pen, COLOURS[item.colour])


def png(scene: Scene) -> bytes:
    """`draw` as a PNG file."""
    out = BytesIO()
    draw(scene).save(out, "PNG", compress_level=4)
    return out.getvalue()
