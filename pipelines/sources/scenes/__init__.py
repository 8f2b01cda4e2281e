"""The embedded world: generated scenes, five captions each, and their exact relevance to each
other."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from capgrade.pipelines.sources.scenes.drawings import encode_png
from capgrade.pipelines.sources.scenes.grammar import make_captions
from capgrade.pipelines.sources.scenes.sampling import sample_scene
from capgrade.pipelines.sources.scenes.scene import SPLITS, Meaning, Scene
from capgrade.pipelines.sources.scenes.truth import truth
from capgrade.pipelines.sources.scenes.world import OBJECT_COLOURS, OBJECT_KINDS, PREDICATES, SIZES
from capgrade.pipelines.stages.captions import ScenesParams
from capgrade.schemas.arrow import with_metadata, write_arrow
from capgrade.schemas.captions import Caption
from capgrade.schemas.progress import progress
from capgrade.schemas.relevance import relevance_batch, relevance_schema
from capgrade.schemas.scenes import MEANINGS, SCENE_IMAGES, SCENE_TABLE

_BATCH = 128  # rows of a record batch


@dataclass(frozen=True)
class World:
    """Scenes in the order train, val, test; captions in the order of scenes, a meaning for each."""

    scenes: list[Scene]
    captions: list[Caption]
    meanings: list[Meaning]


def generate(params: ScenesParams) -> World:
    """The world of a seed. A scene depends on (seed, split, index) alone, so that a larger split
    begins with the scenes of a smaller one."""
    scenes: list[Scene] = []
    records: list[Caption] = []
    meanings: list[Meaning] = []
    for split in SPLITS:
        for index in range(getattr(params, split)):
            scene = sample_scene(params.seed, split, index, params.size)
            scenes.append(scene)
            for text, meaning in make_captions(scene, params.seed, params.captions_per_image):
                row = f"captions[{len(records)}]"
                file = f"{scene.image_id}.png"
                ids = scene.image_id, meaning.caption_id
                records.append(Caption(*ids, split, text, "scenes", row, file))
                meanings.append(meaning)
    return World(scenes, records, meanings)


def write(world: World, out: Path) -> dict[str, int]:
    """Write `images.arrow`, `scenes.arrow`, `meanings.arrow` and `truth-<split>.arrow` into `out`.

    Returns the number of rows by file.
    """
    # A detector's class and attribute numbers are the places of kinds and colours in these lists.
    names = {
        "kinds": list(OBJECT_KINDS),
        "colours": list(OBJECT_COLOURS),
        "sizes": list(SIZES),
        "predicates": list(PREDICATES),
    }
    rows = {}
    with progress("drawing scenes", len(world.scenes)) as advance:

        def image_row(scene: Scene) -> dict[str, Any]:
            advance()
            size = {"width": scene.size, "height": scene.size}
            return {
                "image_id": scene.image_id,
                "split": scene.split,
                **size,
                "png": encode_png(scene),
            }

        def scene_row(scene: Scene) -> dict[str, Any]:
            corners = "x0", "y0", "x1", "y1"
            objects = [
                {**asdict(item), **dict(zip(corners, item.box, strict=True))}
                for item in scene.objects
            ]
            return {**asdict(scene), "objects": objects}

        tables: Any = {
            "images": (SCENE_IMAGES, world.scenes, image_row),
            "scenes": (SCENE_TABLE, world.scenes, scene_row),
            "meanings": (MEANINGS, world.meanings, asdict),
        }
        for name, (schema, items, row) in tables.items():
            schema = with_metadata(schema, {"kind": "scenes", "vocabulary": names})
            batches = _batches(items, row, schema)
            rows[f"{name}.arrow"] = write_arrow(out / f"{name}.arrow", schema, batches)
    split_of = [caption.split for caption in world.captions]
    for split in dict.fromkeys(split_of):
        scenes = [scene for scene in world.scenes if scene.split == split]
        meanings = [
            meaning for meaning, s in zip(world.meanings, split_of, strict=True) if s == split
        ]
        schema = relevance_schema(len(meanings), "float32", {"measure": "truth", "split": split})
        values, ids = truth(scenes, meanings), [scene.image_id for scene in scenes]
        batches = (
            relevance_batch(ids[start : start + _BATCH], values[start : start + _BATCH], schema)
            for start in range(0, len(ids), _BATCH)
        )
        rows[f"truth-{split}.arrow"] = write_arrow(out / f"truth-{split}.arrow", schema, batches)
    return rows


def _batches(items: Sequence[Any], row: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(items), _BATCH):
        rows = [row(item) for item in items[start : start + _BATCH]]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)
