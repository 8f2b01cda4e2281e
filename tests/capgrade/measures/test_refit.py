"""What a manifest names is opened only where the user names it too; what is published names no
place."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.measures.params import MeasuresParams
from capgrade.measures.refit import EXACT, params_to_refit
from capgrade.schemas.errors import InputError
from tests.conftest import call, random_sets

MADE = Path("dataset")
FILES = ("df.arrow", "coco#train", "/home/them/df.arrow", "../df.arrow")
ENCODERS = ("someone/encoder", "encoder", ".", "/home/them/encoder", "../encoder")


def params(blocks: dict[str, Any]) -> MeasuresParams:
    return MeasuresParams.model_validate(blocks)


BASES = {"sbert": {"model": "encoder"}, "cider": {"document_frequency": "coco#train"}}
PATHS = {"sbert": {"model": "/models/encoder"}, "cider": {"document_frequency": "/data/coco#train"}}


@pytest.mark.parametrize(("made", "given", "found"), [
    # the default one
    ({"sbert": {"references": "mean"}, "cider": {"sigma": 3}}, {"sbert": {"model": "mine"}}, "made"),
    (BASES, PATHS, "given"),  # a last name stands for any path, whose content is compared
    # the user's own
    ({"sbert": {"device": "cuda"}, "spice": {"cache": "/home/them", "memory": "900G"}}, {}, "given"),
    ({"sbert": {"model": "encoder"}}, {"sbert": {"model": "/other/name"}}, "given"),
])  # fmt: skip
def test_what_is_opened(made: dict, given: dict, found: str) -> None:
    assert params_to_refit(params(made), params(given), MADE) == params(
        {"made": made, "given": given}[found]
    )


@pytest.mark.parametrize(("block", "key", "value"), [
    *(("sbert", "model", model) for model in ENCODERS),
    *((name, "document_frequency", file) for name in ("cider", "cider_plain") for file in FILES),
])  # fmt: skip
def test_what_labels_name_is_refused_until_the_user_names_it(
    block: str, key: str, value: str
) -> None:
    made = params({block: {key: value}})
    others = [{block: {key: "/models/other"}}] if "/" in value else []
    for given in ({}, *others):
        with pytest.raises(InputError) as caught:
            params_to_refit(made, params(given), MADE)
        assert (
            str(caught.value)
            == f"dataset: its labels were made with {block}.{key} '{value}', which is not opened"
            f" unasked -> if you trust it, name it: --set measures.{block}.{key}={value}"
        )
    assert params_to_refit(made, made, MADE) == made
    with pytest.raises(InputError, match=rf"name it: exact\(..., {key}='"):
        params_to_refit(made, MeasuresParams(), MADE, EXACT)


def test_no_file_of_a_published_folder_names_a_place(tmp_path: Path) -> None:
    root = tmp_path / "home-of-ann"
    root.mkdir()
    sets = random_sets(8, seed=5)
    rows = [
        f"i{i}\ti{i}#{k}\t{text}" for i, texts in enumerate(sets) for k, text in enumerate(texts)
    ]
    (root / "c.tsv").write_text("image_id\tcaption_id\tcaption\n" + "\n".join(rows) + "\n")
    np.save(root / "mine.npy", np.random.default_rng(0).random((8, len(rows)), np.float32))
    given = f"--measures cider,mine={root}/mine.npy"
    counted = f"--set measures.cider.document_frequency={root}/df.arrow"
    for line in (
        f"captions --source tsv --input {root}/c.tsv --split test --out {root}/c",
        f"frequencies --captions {root}/c --out {root}/df.arrow",
        f"shards --captions {root}/c {given} {counted} --out {root}/s",
        f"relevance --captions {root}/c {given} --out {root}/r",
        (
            f"publish --captions {root}/c --shards {root}/s --relevance {root}/r --license mit"
            f" --out {root}/d"
        ),
    ):
        assert call(*line.split()) == 0
    for path in (path for path in (root / "d").rglob("*") if path.is_file()):
        assert b"home-of-ann" not in path.read_bytes(), path
    card = (root / "d" / "README.md").read_text()
    assert (
        "input: c.tsv" in card
        and "mine: mine.npy" in card
        and "document_frequency: df.arrow" in card
    )
