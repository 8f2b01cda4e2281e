"""What an error says: the names near an unknown one, and what to do as Python or as a shell takes
it."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capgrade.pipelines.options import option_of
from capgrade.schemas.errors import InputError, choose_from, nearest
from tests.conftest import caption_table, refusal, write_captions_folder

MANY = ["bleu", "cider", "cider_plain", "meteor", "people", "rouge_l", "sbert", "spice", "zipf"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("cidre", ["cider"]),
        ("CIDEr", ["cider", "cider_plain"]),
        ("rouge-l", ["rouge_l"]),
        ("peple", ["people"]),
        ("qqqq", []),
        ("", []),
    ],
)
def test_the_nearest_names_come_first(name: str, near: list[str]) -> None:
    assert nearest(name, MANY)[: len(near) or None] == near


def test_a_long_list_is_printed_only_where_no_name_is_near() -> None:
    assert choose_from("cidre", MANY) == "near it: cider"
    assert choose_from("cidre", MANY, "capgrade list x") == "near it: cider; all: capgrade list x"
    assert choose_from("qqqq", MANY) == f"choose from: {', '.join(MANY)}"
    assert choose_from("tset", ["val", "test"]) == "near it: test; choose from: val, test"
    numbers = [f"column {k}" for k in range(1000)]
    assert len(choose_from("qqqq", numbers)) < 600
    assert choose_from("x", []) == "choose from: none"


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    table = caption_table([["a dog", "a cat", "a red bus"]] * 4)
    write_captions_folder(folder / "c", [table])
    (folder / "t.csv").write_text("image_id,capton,x\na,b,c\n")
    np.save(folder / "s.npy", np.random.default_rng(0).random((4, 12)))
    Image.new("RGB", (9, 9)).save(folder / "a.png")
    (folder / "a.json").write_text('[{"image_id": 1, "caption": "a dog"}]')
    (folder / "b.json").write_text('{"annotations": [{"image_id": 1, "caption": "a dog"}]}')
    return folder


# A command (c: the folder above) => the name that its one line suggests.
UNKNOWN = """
captoins --out o => captions
regions shwo => show
captions --spilt x --out o => --split
captions --source kaprathy --input x --out o => karpathy
captions --source csv --input {c}/t.csv --split a --out o => capton
captions --source scenes --set captions.tokenizer=ptbpy --out o => ptb_py
captions --source scenes --set captions.tokeniser=ptb --out o => tokenizer
relevance --captions {c}/c --measures cidre --out o => cider
relevance --captions {c}/c --measures cider --split tset --out o => test
relevance --captions {c}/c --measures cider --set relevnce.split=a --out o => relevance
shards --captions {c}/c --measures peple --out o => people
train --captions {c}/c --preset tripelt --out o => triplet
evaluate --captions {c}/c --similarity {c}/s.npy --metric recal@5 => recall@K
evaluate --captions {c}/c --similarity {c}/s.npy --split tset => test
evaluate --lists coco-5 --similarity x.npy => coco-5k
score --candidates {c}/a.json --references {c}/b.json --measures cidre => cider
init --template flikr8k o => flickr8k
list mesures => measures
regions --images {c}/a.png --detector botom_up --out o => bottom_up
regions --format lxmrt --features x --out o => lxmert
"""


@pytest.mark.parametrize("case", UNKNOWN.strip().splitlines())
def test_every_unknown_name_is_answered_with_the_nearest(
    case: str, captions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line, near = case.split(" => ")
    said = refusal(*line.format(c=captions).split())
    assert f"near it: {near}" in said


def test_arguments_are_named_as_the_road_takes_them() -> None:
    keys = "split", "above", "parameters.sbert.model", "sample.top"
    remedy = " ".join(f"{{{key}}}" for key in keys)
    error = InputError("no {split}", file="{above}", remedy=remedy, keys=keys)
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert str(copy) == (
            "{above}: no {split} -> split above parameters['sbert']['model'] sample['top']"
        )
        assert copy.at_shell(option_of) == (
            "{above}: no {split} -> --split --set evaluate.above.MEASURE=VALUE"
            " --set measures.sbert.model --set shards.top"
        )
    assert str(error.of("b")).startswith("b: no {split} -> split above")


def test_a_remedy_without_arguments_is_left_as_it_is() -> None:
    """Braces of a user's text are no arguments."""
    error = InputError("no column", remedy="there are: {split}")
    assert str(error) == error.at_shell(option_of) == "no column -> there are: {split}"
