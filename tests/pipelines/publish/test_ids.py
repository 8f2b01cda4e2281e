"""Captions that may not be copied: a dataset of ids and digests, joined with texts where they are."""

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import load_dataset

import capgrade
from capgrade.labels import Labels
from capgrade.labels.digests import text_digest
from capgrade.pipelines.publish.check import check
from capgrade.pipelines.publish.folder import publish
from capgrade.schemas.captions import CAPTIONS_FILE, read_captions
from capgrade.schemas.errors import InputError
from tests.conftest import call, caption_table, write_captions_folder

from .conftest import PARAMS, SETS

IDS = PARAMS.model_copy(update={"captions": "ids"})


@pytest.fixture(scope="module")
def dataset(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ids") / "out"
    publish(made / "captions", [made / "train"], out, IDS)
    return out


def test_no_text_is_anywhere(made: Path, dataset: Path, tmp_path: Path) -> None:
    """Neither in a table nor in the card, Croissant or a benchmark, whose words are searched."""
    params = IDS.model_copy(
        update={"layout": "mteb", "measure": "rouge_l", "grades": {"fits": 0.5}}
    )
    publish(made / "captions", [made / "dense"], tmp_path / "mteb", params)
    texts = {text for text in read_captions(made / "captions", "train").texts if " " in text}
    assert len(texts) > 20
    for folder in (dataset, tmp_path / "mteb"):
        for file in (file for file in folder.rglob("*") if file.is_file()):
            said = file.read_bytes().decode(errors="replace")
            if file.suffix == ".parquet":
                said = str(pa.parquet.read_table(file).to_pydict())
                assert "'tokens'" not in said and "'caption'" not in said
            assert not [text for text in texts if text in said], file
        assert check(str(folder)).problems == ()
        assert "## Texts" in (folder / "README.md").read_text()
    loaded = load_dataset(
        str(dataset), "captions", split="train", cache_dir=str(tmp_path / "cache")
    )
    assert loaded.column_names == ["image_id", "caption_id", "caption_sha256", "image_file"]
    captions = read_captions(made / "captions", "train")
    assert loaded["caption_sha256"][:] == [text_digest(text) for text in captions.texts]


def test_labels_have_ids_and_say_where_texts_are_needed(dataset: Path, made: Path) -> None:
    labels, known = Labels.load(dataset), Labels.load(made / "out", split="train")
    assert labels.caption_ids == known.caption_ids and (labels.owner == known.owner).all()
    block = labels.image_ids, labels.caption_ids, "cider"
    assert np.array_equal(labels.block(*block)[0], known.block(*block)[0])
    for wanted in (
        lambda: labels.texts,
        lambda: capgrade.exact(labels, "rouge_l"),
        labels.table.tokens,
    ):
        with pytest.raises(InputError, match="have no text here, but ids -> give captions: "):
            wanted()


def test_texts_are_joined_by_their_digests(dataset: Path, made: Path, tmp_path: Path) -> None:
    """In another order, under other ids and another split, with other white space."""
    texts = [[f"  {text.replace(' ', '  ')}\n" for text in own] for own in SETS["train"][::-1]]
    other = write_captions_folder(tmp_path / "other", [caption_table(texts, "whole", "other")])
    known = Labels.load(made / "out", split="train")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = Labels.load(dataset, captions=other)
        same = Labels.load(dataset, captions=made / "captions")
    assert [" ".join(text.split()) for text in labels.texts] == known.texts == same.texts
    exact = capgrade.exact(labels, "rouge_l").block(labels.image_ids, labels.caption_ids)
    assert np.array_equal(
        exact[0], capgrade.exact(known, "rouge_l").block(known.image_ids, known.caption_ids)[0]
    )


def test_what_does_not_fit_is_counted_by_reason(dataset: Path, tmp_path: Path) -> None:
    sets = [list(own) for own in SETS["train"]]
    sets[0][0], gone = "another text", len(sets[1]) - 1
    sets[1] = sets[1][:1] if gone else sets[1]
    lost, sets = len(sets[-1]), sets[:-1]
    folder = write_captions_folder(tmp_path / "some", [caption_table(sets, "train", "ti")])
    with pytest.warns(UserWarning, match="captions do not fit: ") as said:
        labels = Labels.load(dataset, captions=folder)
    message = str(said[0].message)
    assert "1 have another text under their id" in message
    assert f"{gone} are of images that have no such caption there" in message
    assert f"{lost} are of images that are not there" in message
    missing = labels.table.table["caption"].null_count
    assert missing == 1 + gone + lost
    with pytest.raises(InputError, match=f"{missing} of .* captions have no text here"):
        _ = labels.texts


def test_captions_of_something_else_and_other_tokens_are_refused(
    dataset: Path, made: Path, tmp_path: Path
) -> None:
    other = write_captions_folder(tmp_path / "other", [caption_table([["x y"]], "train", "ti")])
    with pytest.raises(InputError, match="no text of these labels: .* 1 have another text"):
        Labels.load(dataset, captions=other)
    line = f"captions --source csv --input {tmp_path}/c.csv --set captions.tokenizer=ptb"
    rows = read_captions(made / "captions", "train").table
    columns = ("image_id", "caption_id", "caption")
    lines = zip(*(rows[name].to_pylist() for name in columns), strict=True)
    text = "".join(f"{image},{caption},{words}\n" for image, caption, words in lines)
    (tmp_path / "c.csv").write_text(f"{','.join(columns)}\n{text}")
    assert call(*line.split(), "--out", str(tmp_path / "ptb")) == 0
    assert (tmp_path / "ptb" / CAPTIONS_FILE).is_file()
    with pytest.raises(InputError, match="tokens by ptb, and the labels are by lower_split -> "):
        Labels.load(dataset, captions=tmp_path / "ptb")


def test_what_counts_in_a_digest() -> None:
    assert text_digest("a  dog\n") == text_digest(" a dog") == text_digest("a\u00a0dog")
    assert text_digest("caf\u00e9") == text_digest("cafe\u0301")
    assert len({text_digest(text) for text in ("a dog", "A dog", "a dog.", "a d\u00f6g")}) == 4
