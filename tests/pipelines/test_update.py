"""Shards that are updated have the bytes of a run from the start; what might not is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.execution.parts import Part
from capgrade.pipelines.measures.ngrams import document_frequencies
from capgrade.pipelines.shards import join_shards, shards_part
from capgrade.pipelines.update import saved, update_shards
from capgrade.pipelines.verify import verify
from capgrade.schemas.captions import SCHEMA, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import self_digest
from capgrade.schemas.params import MeasuresParams, ShardsParams, WindowsParams
from tests.conftest import call, make_captions, random_sets, write_captions_folder

NAMES = ("cider", "rouge_l", "bleu")
ALL = ShardsParams(
    measures=NAMES, top=4, uniform=3, windows=WindowsParams(per_window=2, width=0.3, stride=0.2, counts=True),
    block_images=7,
)  # fmt: skip
PLANS = {
    "windows": ALL,
    "a share": ALL.model_copy(update={"windows": ALL.windows.model_copy(update={"among": 0.3})}),
    "tops": ALL.model_copy(update={"windows": WindowsParams(per_window=0), "top": 6}),
    "no tops": ALL.model_copy(update={"top": 0}),
}
Row = tuple[str, str, str]  # image, caption id, text


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> MeasuresParams:
    file = tmp_path_factory.mktemp("fixed") / "frequencies.arrow"
    document_frequencies(make_captions(random_sets(40, seed=9))).save(file)
    return MeasuresParams.model_validate({"cider": {"document_frequency": str(file)}})


def captions_folder(folder: Path, rows: Sequence[Row]) -> Path:
    columns = [[row[k] for row in rows] for k in range(3)]
    table = pa.table(
        {
            "image_id": columns[0], "caption_id": columns[1], "split": ["train"] * len(rows), "caption": columns[2],
            "tokens": [text.split() for text in columns[2]], "image_file": pa.nulls(len(rows), pa.string()),
        },
        schema=SCHEMA,
    )  # fmt: skip
    return write_captions_folder(folder, [table])


def rows_of(n_images: int, seed: int) -> list[Row]:
    sets = random_sets(n_images, seed=seed)
    return [(f"i{i}", f"i{i}#{k}", text) for i, one in enumerate(sets) for k, text in enumerate(one)]


def changed(rows: list[Row], seed: int) -> list[Row]:
    """Captions and images that go, captions of old and new images that come, anywhere."""
    random = np.random.default_rng(seed)
    gone_images = set(random.choice([row[0] for row in rows], random.integers(0, 3)))
    few = random.choice([0.0, 0.02, 0.2])
    kept = [row for row in rows if row[0] not in gone_images and random.random() >= few]
    texts = [text for one in random_sets(6, seed=seed + 1) for text in one][: random.integers(0, 12)]
    for k, text in enumerate(texts):
        image = random.choice([f"new{k % 3}", *[row[0] for row in kept[:3]]], p=None)
        kept.insert(int(random.integers(0, len(kept) + 1)), (str(image), f"added{k}", text))
    return kept or rows[:1]


def data(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".arrow"}


def make(captions: Path, out: Path, plan: ShardsParams, measures: MeasuresParams) -> None:
    shards_part(captions, out, plan, measures, Part(1, 1))
    join_shards(captions, out, plan, measures)


def check(folder: Path, before: list[Row], after: list[Row], plan: ShardsParams, measures: MeasuresParams) -> dict:
    """Updated and made from the start; the manifest of the update."""
    old, new = captions_folder(folder / "old", before), captions_folder(folder / "new", after)
    make(old, folder / "before", plan, measures)
    make(new, folder / "anew", plan, measures)
    manifest = update_shards(new, folder / "before", old, folder / "updated", plan, measures)
    assert data(folder / "updated") == data(folder / "anew")
    return manifest


@pytest.mark.parametrize("plan", PLANS)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_any_changes(tmp_path_factory: pytest.TempPathFactory, fixed: MeasuresParams, plan: str, seed: int) -> None:
    before = rows_of(12 + seed % 20, seed)
    check(tmp_path_factory.mktemp("update"), before, changed(before, seed), PLANS[plan], fixed)


def test_only_what_came_and_went_is_scored(tmp_path: Path, fixed: MeasuresParams) -> None:
    before = rows_of(60, 5)
    rest = [row for row in before if row[0] not in ("i7", "i20")]
    after = [*rest, ("new", "new#0", "a red dog sits near the big street"), ("new", "new#1", "the cat")]
    manifest = check(tmp_path, before, after, PLANS["windows"], fixed)
    n, came, went = len(after), 2, len(before) - len(rest)
    anew = [(scored - 58 * (came + went)) / n for scored in manifest["scored"].values()]
    assert len({*anew}) == 1
    assert anew[0] == int(anew[0])
    assert (
        1 <= anew[0] < 50
    )  # images that were scored in full, the new one among them; so few captions are in few samples
    assert f"cider: {manifest['scored']['cider']:,} pairs scored, of {n * 59:,}" in saved(manifest, 59)
    assert not verify(tmp_path / "updated").problems
    manifest = check(tmp_path / "same", before, before, PLANS["a share"], fixed)
    assert manifest["scored"] == dict.fromkeys(NAMES, 0)


def test_nothing_remains_of_what_went(tmp_path: Path, fixed: MeasuresParams) -> None:
    before = [*rows_of(20, 5), ("asked-to-go", "secret#0", "a man whom nobody should see"), ("last", "last#0", "a dog")]
    check(tmp_path, before, [row for row in before if row[0] != "asked-to-go"], PLANS["windows"], fixed)
    was = b"".join(path.read_bytes() for path in (tmp_path / "before").iterdir())
    left = [path for path in (tmp_path / "updated").rglob("*") if path.is_file()]
    assert b"asked-to-go" in was
    assert {path.name for path in left} == {*data(tmp_path / "updated"), "manifest.json"}
    assert not any(b"asked-to-go" in path.read_bytes() or b"secret" in path.read_bytes() for path in left)


def test_what_cannot_be_exact_is_refused(tmp_path: Path, fixed: MeasuresParams) -> None:
    rows, plan = rows_of(12, 3), PLANS["windows"]
    old, new = captions_folder(tmp_path / "old", rows), captions_folder(tmp_path / "new", rows[1:])
    make(old, tmp_path / "before", plan, fixed)

    def refused(match: str, captions: Path = new, like: ShardsParams = plan, measures: MeasuresParams = fixed) -> None:
        with pytest.raises(InputError, match=match):
            update_shards(captions, tmp_path / "before", old, tmp_path / "out", like, measures)
        assert not (tmp_path / "out").exists()

    refused("document frequencies are those of the captions", measures=MeasuresParams())
    refused("sbert cannot be updated", like=plan.model_copy(update={"measures": ("sbert",)}))
    refused("the shards do not say", like=plan.model_copy(update={"windows": WindowsParams()}))
    refused("made with another shards.seed", like=plan.model_copy(update={"seed": 1}))
    refused("made with another measures.bleu", like=plan.model_copy(update={"measures": ("rouge_l",)}))
    refused("shards.group_captions", like=plan.model_copy(update={"group_captions": 5}))
    refused(
        "made with another measures.bleu.n",
        measures=fixed.model_copy(update={"bleu": fixed.bleu.model_copy(update={"n": 2})}),
    )
    changes = {
        "another text": [(rows[0][0], rows[0][1], "other words"), *rows[1:]],
        "another image": [("i5", rows[0][1], rows[0][2]), *rows[1:]],
        "changed places": [*rows[2:], rows[0]],
    }
    for k, (match, others) in enumerate(changes.items()):
        refused(match, captions_folder(tmp_path / f"changed{k}", others))
    frequencies = document_frequencies(read_captions(old))
    frequencies.save(Path(fixed.cider.document_frequency or ""))
    refused("made of another measures.cider.document_frequency")


def test_old_shards_that_are_not_what_they_were(tmp_path: Path, fixed: MeasuresParams) -> None:
    rows, plan = rows_of(12, 3), PLANS["tops"].model_copy(update={"measures": ("rouge_l",)})
    old, new = captions_folder(tmp_path / "old", rows), captions_folder(tmp_path / "new", rows[1:])
    make(old, tmp_path / "before", plan, fixed)
    with pytest.raises(InputError, match="made from another captions table"):
        update_shards(old, tmp_path / "before", new, tmp_path / "out", plan, fixed)
    with pytest.raises(InputError, match="the folder that --update reads"):
        update_shards(new, tmp_path / "before", old, tmp_path / "before", plan, fixed)
    manifest = tmp_path / "before" / "manifest.json"
    whole = manifest.read_text()
    other = json.loads(whole) | {"package": "0.0.1"}
    other["sha256"] = self_digest(other)
    manifest.write_text(json.dumps(other))
    with pytest.raises(InputError, match="made by version 0.0.1"):
        update_shards(new, tmp_path / "before", old, tmp_path / "out", plan, fixed)
    other = json.loads(whole)
    for sampler in (None, 1):  # of the rules by which samples were drawn, the first had no number
        other["params"] = {k: v for k, v in other["params"].items() if k != "sampler"} | (
            {"sampler": 1} if sampler else {}
        )
        other["sha256"] = self_digest(other)
        manifest.write_text(json.dumps(other))
        with pytest.raises(InputError, match="made with another sampler"):
            update_shards(new, tmp_path / "before", old, tmp_path / "out", plan, fixed)
    manifest.write_text(whole)
    file = next((tmp_path / "before").glob("*.arrow"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="not as it was written"):
        update_shards(new, tmp_path / "before", old, tmp_path / "out", plan, fixed)


def test_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(12, 3)
    old, new = (
        captions_folder(tmp_path / "old", rows),
        captions_folder(tmp_path / "new", [*rows[1:], ("x", "x#0", "a")]),
    )
    common = ["--measures", "rouge_l", "--top", "3", "--set", "shards.windows.counts=true"]
    assert call("shards", "--captions", str(old), "--out", str(tmp_path / "before"), *common) == 0
    assert call("shards", "--captions", str(new), "--out", str(tmp_path / "anew"), *common) == 0
    update = ["shards", "--captions", str(new), "--out", str(tmp_path / "out"), *common]
    update += ["--update", str(tmp_path / "before")]
    assert call(*update) == 2
    assert "--update goes with --old-captions" in capsys.readouterr().err
    assert call(*update, "--old-captions", str(old)) == 0
    assert "rouge_l: " in capsys.readouterr().out
    assert data(tmp_path / "out") == data(tmp_path / "anew")
    assert call(*update, "--old-captions", str(old), "--join") == 2
