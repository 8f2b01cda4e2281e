"""`capgrade.grade` gives what the commands give, of captions in any form."""

import pickle
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import capgrade
from capgrade.schemas.errors import InputError
from tests.conftest import call, random_sets

SETS = {f"{k}.jpg": texts for k, texts in enumerate(random_sets(9, seed=5, least=2))}
MEASURES = ("cider", "rouge_l")
FORMS = {
    "dict": lambda sets: sets,
    "tuples": lambda sets: {image: tuple(texts) for image, texts in sets.items()},
    "rows": lambda sets: pa.Table.from_pylist(
        [{"image_id": i, "caption": t} for i, ts in sets.items() for t in ts]
    ),
    "lists": lambda sets: pa.table({"image_id": list(sets), "caption": list(sets.values())}),
    "pandas": lambda sets: pd.DataFrame({"image_id": list(sets), "caption": list(sets.values())}),
    "dataset": lambda sets: datasets.Dataset.from_dict(
        {"image_id": list(sets), "caption": list(sets.values())}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_captions_in_any_form(form: str) -> None:
    labels = capgrade.grade(FORMS[form](SETS), measures=MEASURES)
    assert labels.image_ids == list(SETS) and labels.texts == [
        text for texts in SETS.values() for text in texts
    ]
    expected = capgrade.grade(SETS, measures=MEASURES)
    for name in MEASURES:
        every = [
            one.block(SETS, range(one.n_captions), name).relevance for one in (labels, expected)
        ]
        np.testing.assert_array_equal(*every)


@given(
    st.lists(
        st.lists(st.text("ab c", min_size=1, max_size=12), min_size=1, max_size=3),
        min_size=2,
        max_size=6,
    )
)
@settings(max_examples=15, deadline=None)
def test_a_sample_has_the_values_of_every_pair(sets: list[list[str]]) -> None:
    given = {f"{k}": [f"x {text}" for text in texts] for k, texts in enumerate(sets)}
    whole = capgrade.grade(given, measures=MEASURES)
    some = capgrade.grade(given, measures=MEASURES, sample=capgrade.Sampling(top=1, uniform=1))
    for name in MEASURES:
        relevance, known, _ = some.block(range(len(sets)), range(some.n_captions), name)
        every = whole.block(range(len(sets)), range(some.n_captions), name).relevance
        assert known.any()
        np.testing.assert_array_equal(relevance[known], every[known])


def test_out_is_what_the_commands_write(tmp_path: Path) -> None:
    made = capgrade.grade(SETS, measures=MEASURES, out=tmp_path / "made")
    given = ("--captions", tmp_path / "made" / "captions", "--measures", "cider,rouge_l")
    assert call("relevance", *given, "--out", tmp_path / "relevance") == 0
    for name in MEASURES:
        ours, theirs = (
            tmp_path / folder / f"{name}.arrow" for folder in ("made/relevance", "relevance")
        )
        assert ours.read_bytes() == theirs.read_bytes()
    again = capgrade.Labels.load(
        tmp_path / "made" / "relevance", captions=tmp_path / "made" / "captions"
    )
    assert again.image_ids == made.image_ids
    sampled = capgrade.grade(
        tmp_path / "made" / "captions", measures="rouge_l", sample=capgrade.Sampling(top=2)
    )
    assert sampled.measures == ["rouge_l"] and sampled.stored.sampled


def test_splits_and_parameters() -> None:
    one, two = (
        {"image_id": ids, "caption": [SETS[i] for i in ids]}
        for ids in (list(SETS)[:4], list(SETS)[4:])
    )
    both = datasets.DatasetDict(
        train=datasets.Dataset.from_dict(one), test=datasets.Dataset.from_dict(two)
    )
    with pytest.raises(
        InputError, match="^captions: several splits: train, test -> choose one with split="
    ):
        capgrade.grade(both, measures="rouge_l")
    labels = capgrade.grade(
        both, measures="rouge_l", split="test", parameters={"rouge_l": {"references": "mean"}}
    )
    assert labels.image_ids == list(SETS)[4:]
    usual = capgrade.grade({image: SETS[image] for image in labels.image_ids}, measures="rouge_l")
    ends = [found.block(range(5), range(found.n_captions)).relevance for found in (labels, usual)]
    assert (ends[0] <= ends[1] + 1e-6).all() and not np.array_equal(*ends)


def test_a_dataset_without_the_columns_is_told_what_python_can_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = {"name": list(SETS), "text": list(SETS.values()), "img_id": list(SETS)}
    with pytest.raises(
        InputError,
        match="no column 'image_id' .* -> rename one to image_id; near it: img_id; choose from: name, text",
    ):
        capgrade.grade(datasets.Dataset.from_dict(table), measures="rouge_l")
    capgrade.grade(
        datasets.Dataset.from_dict({"name": list(SETS), "caption": list(SETS.values())}),
        measures="cider",
    )
    said = capsys.readouterr().err
    assert (
        "if a column has ids, rename one to image_id; there are: name, caption" in said
        and "--" not in said
    )


def test_a_file_is_no_folder_of_captions(tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text("image_id,caption\n1,a dog\n")
    with pytest.raises(
        InputError, match=r"captions.csv: .* -> read the file, as by pandas.read_csv"
    ):
        capgrade.grade(tmp_path / "captions.csv")


def test_measures_in_one_text() -> None:
    assert capgrade.grade(SETS, measures="cider, rouge_l").measures == ["cider", "rouge_l"]


def test_labels_in_memory_know_from_which_value_on_people_accept(tmp_path: Path) -> None:
    written = capgrade.grade(SETS, measures=("sbert", "cider"), out=tmp_path / "made")
    in_memory = capgrade.grade(SETS, measures=("sbert", "cider"))
    assert (
        capgrade.value_at(in_memory, 0.5, measure="sbert")
        == capgrade.value_at(written, 0.5, measure="sbert")
        > 0.8
    )


def test_labels_in_memory_are_pickled() -> None:
    labels = capgrade.grade(SETS, measures="rouge_l")
    again = pickle.loads(pickle.dumps(labels))
    blocks = [one.block(SETS, range(labels.n_captions)).relevance for one in (labels, again)]
    np.testing.assert_array_equal(*blocks)


@pytest.mark.parametrize(("given", "said"), [
    (3, "captions are int -> give a dict"),
    ([["a dog"]], "captions are list -> give a dict"),
    ({}, "no captions -> give a dict"),
    (pa.table({"image_id": ["1"], "text": ["a dog"]}), "no column 'caption' .* -> rename one to caption; choose from: image_id, text"),
    ({"1": ["a dog", None]}, r'captions row 1: caption .1#1. is absent; .* -> .*empty="drop"'),
    ({"1": ["a dog", 7]}, "captions row 1: 'caption' is 7, not a text"),
    ("nowhere", "nowhere: no such folder"),
])  # fmt: skip
def test_what_is_refused(given: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        capgrade.grade(given, measures="rouge_l")


def test_what_is_absent_is_left_out_where_asked_for() -> None:
    labels = capgrade.grade({**SETS, "bare.jpg": [""]}, measures="rouge_l", empty="drop")
    assert labels.image_ids == list(SETS)
