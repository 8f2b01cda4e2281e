"""What a manifest names is opened only where the user names it too; what is published names no
place."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.labels.params import EXACT, base_names, params_to_refit
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.errors import InputError
from tests.conftest import call, random_sets

MADE = Path("dataset")
ELSEWHERE = ("/home/them/df.arrow", "../df.arrow", "/data/coco#train")
ENCODERS = ("someone/encoder", "/home/them/encoder", "encoder", "../encoder", ".")


def params(blocks: dict[str, Any]) -> MeasuresParams:
    return MeasuresParams.model_validate(blocks)


BASES = {"sbert": {"model": "encoder"}, "cider": {"document_frequency": "coco#train"}}
PATHS = {"sbert": {"model": "/models/encoder"}, "cider": {"document_frequency": "/data/coco#train"}}


@pytest.mark.parametrize(("made", "given", "found"), [
    # the default one
    ({"sbert": {"references": "mean"}, "cider": {"sigma": 3}}, {"sbert": {"model": "mine"}}, "made"),
    (BASES, PATHS, "given"),  # a published base name stands for the path
    # the user's own
    ({"sbert": {"device": "cuda"}, "spice": {"cache": "/home/them", "memory": "900G"}}, {}, "given"),
    # below the folder where the command runs
    ({"cider": {"document_frequency": "data/df.arrow"}}, {}, "made"),
])  # fmt: skip
def test_what_is_opened(
    made: dict, given: dict, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "df.arrow").touch()
    assert params_to_refit(params(made), params(given), MADE) == params(
        {"made": made, "given": given}[found]
    )


@pytest.mark.parametrize(("block", "key", "value"), [
    *(("sbert", "model", model) for model in ENCODERS),
    *((name, "document_frequency", file) for name in ("cider", "cider_plain") for file in ELSEWHERE),
])  # fmt: skip
def test_what_labels_name_is_refused_until_the_user_names_it(
    block: str, key: str, value: str
) -> None:
    made = params({block: {key: value}})
    for given in ({}, {block: {key: "/models/other"}}):
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


@pytest.mark.parametrize(("given", "found"), [
    ({"cider": {"document_frequency": "/home/ann/captions#val", "sigma": 6.0}},
     {"cider": {"document_frequency": "captions#val", "sigma": 6.0}}),
    ({"sbert": {"model": "/home/ann/models/mine", "references": "max"}},
     {"sbert": {"model": "mine", "references": "max"}}),
    ({"both": {"weights": {"mine": 1.0}, "measures": {"mine": {"imported": "../ann/m.npy"}}}},
     {"both": {"weights": {"mine": 1.0}, "measures": {"mine": {"imported": "m.npy"}}}}),
    ({"source": "flickr", "input": "/home/ann/f.token", "split_lists": {"dev": "/home/ann/dev.txt"}},
     {"source": "flickr", "input": "f.token", "split_lists": {"dev": "dev.txt"}}),
    ({"spice": {"cache": "/home/ann/spice"}, "imported": {"x": "a/b/c.npy"}},
     {"spice": {"cache": "spice"}, "imported": {"x": "c.npy"}}),
    ({"source": "tsv", "input": "ann/c.tsv"}, {"source": "tsv", "input": "c.tsv"}),
    ({"source": "hub", "input": "ann/saved"}, {"source": "hub", "input": "saved"}),  # which is here
    ({"sbert": {"model": "ann/saved"}}, {"sbert": {"model": "saved"}}),
    ({"source": "hub", "input": "some-org/flickr30k"}, None),
    ({"sbert": {"model": "org/model-v2"}}, None),
])  # fmt: skip
def test_paths_become_their_last_names_and_ids_of_the_hub_stay(
    given: dict, found: dict | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ann" / "saved").mkdir(parents=True)
    assert base_names(given) == (given if found is None else found)


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
        f"captions --input {root}/c --frequencies {root}/df.arrow",
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
