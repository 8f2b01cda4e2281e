"""The generated world: deterministic, true to itself, and graded."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageChops

from capgrade.pipelines.sources.scenes import World, generate, truth, write
from capgrade.pipelines.sources.scenes.drawings import DRAWINGS, draw_scene
from capgrade.pipelines.sources.scenes.scene import Meaning, Mention, Scene, SceneObject
from capgrade.pipelines.sources.scenes.world import BACKGROUNDS, HYPERNYMS, OBJECT_KINDS, is_a
from capgrade.pipelines.stages.captions import ScenesParams
from capgrade.schemas.arrow import read_arrow
from capgrade.schemas.relevance import read_relevance

PARAMS = ScenesParams(train=150, val=20, test=40, size=96)


@pytest.fixture(scope="module")
def world() -> World:
    return generate(PARAMS)


def test_the_same_seed_gives_the_same_bytes(world: World, tmp_path: Path) -> None:
    small = generate(PARAMS.model_copy(update={"train": 4, "val": 0, "test": 3}))
    for name in "ab":
        write(small, tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert generate(PARAMS.model_copy(update={"seed": 1})).captions != world.captions


def test_a_scene_does_not_depend_on_the_sizes(world: World) -> None:
    other = generate(ScenesParams(train=5, val=0, test=60, size=96, captions_per_image=8))
    test, more = ([s for s in w.scenes if s.split == "test"] for w in (world, other))
    assert test == more[:40]
    texts = {c.caption_id: c.text for c in other.captions}
    assert all(texts[c.caption_id] == c.text for c in world.captions if c.split == "test")


def test_captions_differ_and_vary(world: World) -> None:
    texts = [c.text for c in world.captions]
    assert len(texts) == 5 * len(world.scenes)
    for at in range(0, len(texts), 5):
        assert len({t.lower().rstrip(".") for t in texts[at : at + 5]}) == 5
    lengths = [len(t.split()) for t in texts]
    assert min(lengths) >= 1
    assert 25 < max(lengths) <= 40
    assert len({w.lower().strip(".,") for t in texts for w in t.split()}) > 200
    assert len(set(texts)) > 0.95 * len(texts)
    assert not [t for t in texts if "  " in t or " ," in t or t != t.strip()]


def test_articles_fit(world: World) -> None:
    pairs = [
        (a.lower(), b)
        for c in world.captions
        for a, b in zip(c.text.split(), c.text.split()[1:], strict=False)
    ]
    assert not [(a, b) for a, b in pairs if a == "a" and b[0] in "aeio"]
    assert not [(a, b) for a, b in pairs if a == "an" and b[0] not in "aeiou"]


def test_own_captions_are_wholly_true(world: World) -> None:
    values = truth(world.scenes, world.meanings)
    own = np.repeat(np.arange(len(world.scenes)), 5)
    assert (values[own, np.arange(len(own))] == 1).all()
    assert values.min() >= 0
    assert values.max() <= 1
    assert ((values > 0.1) & (values < 0.9)).mean() > 0.2


def slow_object_credit(mention: Mention, item: SceneObject) -> float:
    if is_a(item.kind, mention.concept):
        credit = 1.0
    else:
        below = [k for k in OBJECT_KINDS.values() if mention.concept in (k.name, k.group, k.family)]
        a_family = any(k.family == mention.concept for k in below)
        same_group = not a_family and OBJECT_KINDS[item.kind].group in {k.group for k in below}
        credit = (
            0.5
            if same_group
            else 0.2
            if OBJECT_KINDS[item.kind].family in {k.family for k in below}
            else 0.0
        )
    credit *= 0.65 if mention.colour and mention.colour != item.colour else 1
    return credit * (0.85 if mention.size and mention.size != item.size else 1)


def slow_truth(scene: Scene, meaning: Meaning) -> float:
    facts = []
    for m in meaning.mentions:
        facts.append((2.0, max(slow_object_credit(m, o) for o in scene.objects)))
        if m.count:
            found = [
                o for o in scene.objects if is_a(o.kind, m.concept) and m.colour in ("", o.colour)
            ]
            facts.append((1.0, min(len(found), m.count) / m.count))
    for r in meaning.relations:
        a, b = meaning.mentions[r.subject], meaning.mentions[r.object]
        pairs = [(scene.objects[f.subject], scene.objects[f.object]) for f in scene.relations
                 if f.predicate == r.predicate]  # fmt: skip
        credits = [
            slow_object_credit(a, one) * slow_object_credit(b, other) for one, other in pairs
        ]
        facts.append((2.0, max(credits, default=0.0)))
    if meaning.background:
        said, there = BACKGROUNDS[meaning.background], BACKGROUNDS[scene.background]
        alike = 0.4 if said.group == there.group else 0.1 * (said.setting == there.setting)
        facts.append((1.5, 1.0 if said.name == there.name else alike))
    return sum(w * c for w, c in facts) / sum(w for w, _ in facts)


def test_truth_is_the_documented_rule(world: World) -> None:
    some, meanings = world.scenes[:30], world.meanings[:120]
    expected = [[slow_truth(scene, meaning) for meaning in meanings] for scene in some]
    np.testing.assert_allclose(truth(some, meanings), expected, atol=1e-6)


def test_boxes_lie_inside_and_things_can_be_seen(world: World) -> None:
    for scene in world.scenes[:40]:
        assert 1 <= len(scene.objects) <= 8
        for k, item in enumerate(scene.objects):
            x0, y0, x1, y1 = item.box
            assert 0 <= x0 < x1 <= scene.size
            assert 0 <= y0 < y1 <= scene.size
            assert item.visible > 0.2
            without = replace(scene, objects=scene.objects[:k] + scene.objects[k + 1 :])
            changed = ImageChops.difference(draw_scene(scene), draw_scene(without)).getbbox()
            assert changed is not None
            assert (
                changed[0] >= x0 - 2
                and changed[1] >= y0 - 2
                and changed[2] <= x1 + 2
                and changed[3] <= y1 + 2
            )


def test_every_kind_and_place_has_a_drawing() -> None:
    assert (
        DRAWINGS["kinds"].keys() == OBJECT_KINDS.keys()
        and DRAWINGS["places"].keys() == BACKGROUNDS.keys()
    )


def test_relations_hold_in_the_picture(world: World) -> None:
    for scene in world.scenes:
        for fact in scene.relations:
            a, b = scene.objects[fact.subject].box, scene.objects[fact.object].box
            across, down = (b[0] + b[2]) - (a[0] + a[2]), (b[1] + b[3]) - (a[1] + a[3])
            right = {
                "left of": across > 0, "right of": across < 0, "above": down > 0, "below": down < 0,
                "in front of": scene.objects[fact.subject].depth > scene.objects[fact.object].depth,
                "behind": scene.objects[fact.subject].depth < scene.objects[fact.object].depth,
            }  # fmt: skip
            assert right.get(fact.predicate, True), (scene.image_id, fact)


def test_spans_name_what_they_speak_of(world: World) -> None:
    kinds = {s.image_id: s.objects for s in world.scenes}
    for caption, meaning in zip(world.captions, world.meanings, strict=True):
        words = caption.text.lower().replace(",", "").rstrip(".").split()
        assert caption.caption_id == meaning.caption_id
        assert len(meaning.spans) == len(meaning.mentions)
        for span in meaning.spans:
            phrase = " ".join(words[span.start : span.end])
            kind = kinds[caption.image_id][span.objects[0]].kind
            names = [OBJECT_KINDS[kind].names, *(HYPERNYMS[h] for h in HYPERNYMS if is_a(kind, h))]
            assert any(word in phrase for pairs in names for pair in pairs for word in pair), (
                caption.text,
                phrase,
            )


def test_files_hold_the_world(world: World, tmp_path: Path) -> None:
    rows = write(world, tmp_path)
    assert rows["images.arrow"] == rows["scenes.arrow"] == len(world.scenes)
    assert rows["meanings.arrow"] == len(world.captions)
    images = read_arrow(tmp_path / "images.arrow")
    first = Image.open(io.BytesIO(images["png"][0].as_py()))
    assert first.size == (96, 96)
    assert first.convert("RGB").tobytes() == draw_scene(world.scenes[0]).tobytes()
    objects = read_arrow(tmp_path / "scenes.arrow")["objects"][7].as_py()
    assert [(o["kind"], o["colour"]) for o in objects] == [
        (o.kind, o.colour) for o in world.scenes[7].objects
    ]
    assert objects[0]["x1"] == pytest.approx(world.scenes[7].objects[0].box[2], abs=1e-3)
    assert read_arrow(tmp_path / "meanings.arrow")["caption_id"].to_pylist() == [
        c.caption_id for c in world.captions
    ]
    test = [s for s in world.scenes if s.split == "test"]
    meanings = [m for m, c in zip(world.meanings, world.captions, strict=True) if c.split == "test"]
    assert np.array_equal(
        read_relevance(tmp_path / "truth-test.arrow").matrix(), truth(test, meanings)
    )
