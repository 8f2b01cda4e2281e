"""Tables of one's own: columns, quoting, splits, and any Unicode text there and back."""

import csv
import io
import json
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.sources import read_source
from capgrade.pipelines.sources.table import read_table
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError

from .conftest import Read

TSV = "image_id\tcaption\n7\tA dog.\n8\tA cat.\n7\tA brown dog.\n"
WITH_SPLIT = "image_id\tcaption_id\tsplit\tcaption\n7\tx\ttrain\tA dog.\n8\ty\ttest\tA cat.\n"
captions_without_breaks = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r")),
    min_size=1,
    max_size=5,
)


def test_ids_count_within_an_image(read: Read, tmp_path: Path) -> None:
    captions = read("tsv", TSV)
    assert captions[2] == Caption(
        "7", "7#1", "all", "A brown dog.", str(tmp_path / "captions.tsv"), 4
    )
    assert [c.caption_id for c in captions] == ["7#0", "8#0", "7#1"]
    assert {c.split for c in read("tsv", TSV, split="dev")} == {"dev"}


def test_columns_called_caption_id_and_split_are_used(read: Read) -> None:
    captions = read("tsv", WITH_SPLIT)
    assert [(c.caption_id, c.split) for c in captions] == [("x", "train"), ("y", "test")]
    assert [c.caption_id for c in read("tsv", WITH_SPLIT, split="test")] == ["y"]


def test_columns_may_have_any_name(read: Read) -> None:
    text = "text,file,id,part\r\nA dog.,7.jpg,1,train\r\n"
    columns = {"image_id": "file", "caption_id": "id", "caption": "text", "split": "part"}
    (caption,) = read("csv", text, columns=columns)
    assert (caption.image_id, caption.caption_id, caption.split, caption.text) == (
        "7.jpg",
        "1",
        "train",
        "A dog.",
    )
    with pytest.raises(
        InputError, match=r"row 1: no column 'x' for the split -> .*--columns split=NAME"
    ):
        read("csv", text, columns={**columns, "split": "x"})


def test_quotes_are_text_in_tsv_and_quoting_in_csv(read: Read) -> None:
    assert read("tsv", 'image_id\tcaption\n7\t"A dog", he "said\n')[0].text == '"A dog", he "said'
    captions = read("csv", 'image_id,caption\n7,"A dog, ""said"" he\r\nand left"\n8,A cat.\n')
    assert [(c.text, c.row) for c in captions] == [
        ('A dog, "said" he\r\nand left', 2),
        ("A cat.", 4),
    ]


def test_json_lines_hold_one_caption_or_several(read: Read) -> None:
    rows = [
        {"image_id": 7, "caption": ["A dog.", "A brown dog."]},
        {"image_id": "8", "caption": "A cat."},
        {"image_id": 7, "caption": "A hound."},
    ]
    captions = read("jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [(c.image_id, c.caption_id, c.text, c.row) for c in captions] == [
        ("7", "7#0", "A dog.", 1),
        ("7", "7#1", "A brown dog.", 1),
        ("8", "8#0", "A cat.", 2),
        ("7", "7#2", "A hound.", 3),
    ]
    one, two = read(
        "jsonl", '{"image_id": 7, "caption": ["A", "B"], "caption_id": [1, "x"], "split": "dev"}'
    )
    assert (one.caption_id, two.caption_id, one.split) == ("1", "x", "dev")
    assert read("jsonl", "") == []


@pytest.mark.parametrize("field", ["caption_id", "split"])
def test_an_optional_field_is_in_all_rows_of_json_lines_or_in_none(read: Read, field: str) -> None:
    """Were it read off the first row, captions of a test split would become training captions
    without a word."""
    row = {"image_id": 7, "caption": "A dog."}
    later = json.dumps(row) + "\n" + json.dumps({**row, field: "test"})
    problem = (
        rf"row 2: '{field}', which rows before this one do not have -> give it in every row, or in"
        r" none"
    )
    with pytest.raises(InputError, match=problem):
        read("jsonl", later)
    earlier = json.dumps({**row, field: "test"}) + "\n" + json.dumps(row)
    with pytest.raises(
        InputError, match=rf"row 2: no '{field}' \(there is .*\) -> give every row the fields"
    ):
        read("jsonl", earlier)
    renamed = {"caption_id": "own"} if field == "caption_id" else {"split": "own"}
    named = "".join(
        json.dumps({**row, "own": k, **extra}) + "\n" for k, extra in enumerate([{}, {field: "x"}])
    )
    assert len(read("jsonl", named, columns=renamed)) == 2, "a column that was not asked for"


def test_the_image_s_file_is_a_column_or_an_id_that_is_a_path(read: Read) -> None:
    text = "image_id,caption,{}\n7,A dog.,a/7.jpg\n8,A cat.,\n"
    for name in ("image_file", "file_name", "filename"):
        assert [c.image_file for c in read("csv", text.format(name))] == ["a/7.jpg", None]
    assert [c.image_file for c in read("csv", text.format("at"), columns={"image_file": "at"})] == [
        "a/7.jpg",
        None,
    ]
    assert [c.image_file for c in read("csv", text.format("at"))] == [None, None]
    found = read(
        "tsv",
        "path\tcaption\nbatch 1/photo.JPG\tA dog.\nv1.2\tA cat.\n",
        columns={"image_id": "path"},
    )
    assert [(c.image_id, c.image_file) for c in found] == [
        ("batch 1/photo.JPG",) * 2,
        ("v1.2", None),
    ]


JSON_CELLS = (
    'image_id,caption,caption_id\n7,"[""A dog, wet."", ""A hound.""]","[1, 2]"\n8,"[""A'
    ' cat.""]","[3]"\n'
)
PYTHON_CELLS = "image_id\tcaption\n7\t['A dog, wet.', \"A man's hound.\"]\n8\t['A cat.']\n"


def test_a_column_of_lists_in_cells_is_lists(read: Read) -> None:
    found = read("csv", JSON_CELLS)
    assert [(c.caption_id, c.text) for c in found] == [
        ("1", "A dog, wet."),
        ("2", "A hound."),
        ("3", "A cat."),
    ]
    assert [c.caption_id for c in read("hub", JSON_CELLS, name="a.csv")] == ["1", "2", "3"]
    assert [c.text for c in read("tsv", PYTHON_CELLS)] == [
        "A dog, wet.",
        "A man's hound.",
        "A cat.",
    ]
    one_is_none = PYTHON_CELLS + "9\tA tree.\n"
    assert [c.text for c in read("tsv", one_is_none)][1:] == [
        "['A cat.']",
        "A tree.",
    ], "text, as it is"
    for cell in ("[A dog]", "['A dog.'", "[1, 2]", "[]"):
        assert [c.text for c in read("tsv", f"image_id\tcaption\n7\t{cell}\n")] == [cell], (
            "no list of texts"
        )
    with pytest.raises(
        InputError, match=r"row 2: 'caption' holds a list that neither JSON nor Python reads"
    ):
        read("tsv", "image_id\tcaption\n7\t['A dog.' 'A hound.']\n")  # as numpy prints it


def test_lists_as_tuples_and_arrays_and_with_gaps(read: Read) -> None:
    """A cell that pandas left empty does not make texts of the lists in the others."""
    for cells in (
        ["['A dog.', 'B']", "('A dog.', 'B')", "array(['A dog.', 'B'], dtype=object)"],
        ["array(['A dog.', 'B'], dtype='<U6')", "array(['A dog.',\n 'B'])", '["A dog.", "B"]'],
    ):
        rows = "".join(
            '{},"{}"\n'.format(k, cell.replace('"', '""')) for k, cell in enumerate(cells)
        )
        for gaps in ("", '8,\n9,"[]"\n'):
            found = read("csv", f"image_id,caption\n{gaps}{rows}")
            assert [c.text for c in found if c.text] == ["A dog.", "B"] * 3
            assert len(found) == (8 if gaps else 6)
    plain = read("csv", 'image_id,caption\n7,(A dog)\n8,"(A ""cat"")"\n')
    assert [c.text for c in plain] == ["(A dog)", '(A "cat")']


def test_ids_that_pandas_made_floats_are_ids(read: Read) -> None:
    for source, text in (
        ("csv", "image_id,caption\n1.0,A dog.\n"),
        ("tsv", "image_id\tcaption\n1.0\tA dog.\n"),
        ("jsonl", '{"image_id": 1.0, "caption": "A dog."}'),
    ):
        assert [c.image_id for c in read(source, text)] == ["1"]
    assert [c.image_id for c in read("csv", "image_id,caption\n1.05,A\nv1.0,B\n")] == [
        "1.05",
        "v1.0",
    ]
    with pytest.raises(InputError, match=r"row 1: 'image_id' is 1.5, not an id"):
        read("jsonl", '{"image_id": 1.5, "caption": "A dog."}')


@pytest.mark.parametrize("cell", ["1.23457E+11", "1,23457E+11", "1e+15", "9007199254740993.0"])
@pytest.mark.parametrize("source", ["csv", "tsv", "jsonl"])
def test_an_id_that_a_spreadsheet_rounded_is_named(read: Read, source: str, cell: str) -> None:
    """Two ids may have become one."""
    text = {
        "csv": f'image_id,caption\n"{cell}",A dog.\n',
        "tsv": f"image_id\tcaption\n{cell}\tA dog.\n",
        "jsonl": json.dumps({"image_id": cell, "caption": "A dog."}),
    }[source]
    problem = rf"row \d: 'image_id' is '{re.escape(cell)}', a number that a spreadsheet or a float"
    with pytest.raises(InputError, match=problem):
        read(source, text)


def test_ids_that_look_like_numbers_are_kept(read: Read) -> None:
    ids = ["1E5", "007", "12345678901234567890", "5e-05", "1.10", "NA", "None", "nan", "-1"]
    rows = "".join(f"{one},A dog.\n" for one in ids)
    assert [c.image_id for c in read("csv", f"image_id,caption\n{rows}")] == ids
    assert [c.image_id for c in read("csv", "image_id,caption\n900719925474099.0,A\n")] == [
        "900719925474099"
    ]


def test_nan_is_an_absent_caption_or_file(read: Read) -> None:
    """pandas writes it for None. As an id it is refused."""
    rows = (
        '{"image_id": 1, "caption": NaN, "file_name": NaN}\n'
        '{"image_id": 2, "caption": ["A dog.", NaN], "file_name": "2.jpg"}\n'
    )
    found = [(c.caption_id, c.text, c.image_file) for c in read("jsonl", rows)]
    assert found == [("1#0", "", None), ("2#0", "A dog.", "2.jpg"), ("2#1", "", "2.jpg")]
    coco = {
        "annotations": [{"image_id": 1, "id": 1, "caption": float("nan")}],
        "images": [{"id": 1}],
    }
    assert [c.text for c in read("coco", coco)] == [""]
    sentences = [{"raw": float("nan"), "sentid": 1}]
    karpathy = {"images": [{"filename": "a.jpg", "split": "test", "sentences": sentences}]}
    assert [c.text for c in read("karpathy", karpathy)] == [""]
    with pytest.raises(InputError, match="row 1: 'image_id' is nan, not an id"):
        read("jsonl", '{"image_id": NaN, "caption": "A dog."}')


def test_a_file_that_only_later_rows_name_is_not_lost(read: Read) -> None:
    rows = (
        '{"image_id": 1, "caption": "A"}\n{"image_id": 2, "caption": "B", "file_name": "2.jpg"}\n'
    )
    with pytest.raises(InputError, match="row 2: 'file_name', which rows before this one do not"):
        read("jsonl", rows)


def test_remedies_for_tables_of_another_kind(read: Read) -> None:
    with pytest.raises(InputError, match="this is Flickr30K's table: --source flickr"):
        read("csv", "image_name| comment_number| comment\na.jpg| 0| A dog.\n")
    with pytest.raises(
        InputError, match="the first row has no names but data .* write a row of names above it"
    ):
        read("tsv", "a dog on the beach\thttps://example.org/1.jpg\n")


def test_an_absent_caption_is_an_empty_one(read: Read) -> None:
    rows = [
        {"image_id": k, "caption": caption} for k, caption in enumerate([None, [], ["A", None], ""])
    ]
    found = read("jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [(c.caption_id, c.text) for c in found] == [
        ("0#0", ""),
        ("1#0", ""),
        ("2#0", "A"),
        ("2#1", ""),
        ("3#0", ""),
    ]
    row = {"image_id": 7, "caption": [], "caption_id": []}
    assert [c.caption_id for c in read("jsonl", json.dumps(row))] == ["7#0"]


def test_rows_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "captions.tsv"
    path.write_bytes(TSV.encode() + b"\xff")
    captions = read_table(str(path), CaptionsParams(source="tsv", input=str(path)), Counter())
    assert next(captions).text == "A dog."


@settings(deadline=None)  # files are written, and a busy machine is slow
@given(captions_without_breaks)
def test_any_caption_comes_back_from_any_table(captions: list[str]) -> None:
    written = io.StringIO(newline="")
    csv.writer(written).writerows(
        [["image_id", "caption"], *([k, c] for k, c in enumerate(captions))]
    )
    texts: dict[Any, str] = {
        "tsv": "".join(f"{k}\t{c}\n" for k, c in [("image_id", "caption"), *enumerate(captions)]),
        "csv": written.getvalue(),
        "jsonl": "".join(
            json.dumps({"image_id": k, "caption": c}) + "\n" for k, c in enumerate(captions)
        ),
    }
    for source, text in texts.items():
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(text.encode())
            params = CaptionsParams(source=source, input=file.name)
            assert [c.text for c in read_source(params)] == captions, source
