"""How often two prompts of a judge disagree, against counts by hand; such a table as judgements and
as a measure."""

from pathlib import Path

import numpy as np
import pytest

from capgrade.agreement.contradictions import contradictions
from capgrade.agreement.judgement_files import read_people, read_raters
from capgrade.measures.pair_files import read_pairs
from capgrade.schemas.errors import InputError
from tests.conftest import make_captions

CAPTIONS = make_captions([["a dog"], ["a cat"]])
PAIRS = [("i0", "i0#0"), ("i0", "i1#0"), ("i1", "i0#0"), ("i1", "i1#0")]


def table(
    file: Path, scores: dict[str, list[float]], scale: str = "0..5", rater: str = "m"
) -> Path:
    """Of each prompt a score of each pair."""
    rows = [
        f"{image},{caption},{given[k]},{rater},{scale},{prompt}"
        for k, (image, caption) in enumerate(PAIRS)
        for prompt, given in scores.items()
        if k < len(given)
    ]
    file.write_text("\n".join(["image_id,caption_id,score,rater,scale,prompt", *rows]) + "\n")
    return file


@pytest.mark.parametrize(("scale", "given", "people", "accept", "grade", "verdict"), [
    # verdicts: 2 | 3 and 3 | 1
    ("0..5", {"a": [5, 0, 2, 3], "b": [5, 1, 3, 1]}, (0, 5), None, 1 / 4, 2 / 4),
    ("0..5", {"a": [5, 0, 2, 3], "b": [5, 1, 3, 1]}, (0, 5), 1.0, 1 / 4, 1 / 4),  # 0 | 1
    # accept is of another scale
    ("0..5", {"a": [5, 0, 2, 3], "b": [5, 1, 3, 1]}, (0, 1), 1.0, 1 / 4, 2 / 4),
    # of three the two ends
    ("0..5", {"a": [4, 0], "b": [4, 0], "c": [2.5, 0.9]}, None, None, 1 / 2, 1 / 2),
    # .1 | .35, .4 | .6
    ("0..1", {"a": [0.9, 0.1, 0.4, 0.7], "b": [0.8, 0.35, 0.6, 0.9]}, (0, 5), 4.0, 1 / 4, 1 / 4),
    # the middle accepts
    ("1..9", {"a": [1, 4, 9, 9], "b": [2, 6, 9, 9]}, (0, 5), None, 1 / 4, 1 / 4),
])  # fmt: skip
def test_the_shares_are_those_by_hand(
    scale: str,
    given: dict,
    people: tuple | None,
    accept: float | None,
    grade: float,
    verdict: float,
    tmp_path: Path,
) -> None:
    found = contradictions(table(tmp_path / "m.csv", given, scale), people, accept)
    assert found == {"pairs": len(given["a"]), "grade": grade, "verdict": verdict}


def test_one_prompt_cannot_contradict_itself(tmp_path: Path) -> None:
    assert contradictions(table(tmp_path / "m.csv", {"a": [1, 2, 3, 4]}), None, None) is None
    some = table(tmp_path / "m.csv", {"a": [1, 2, 3, 4], "b": [1]})
    assert contradictions(some, None, None) == {"pairs": 1, "grade": 0, "verdict": 0}
    (tmp_path / "plain.csv").write_text("image_id,caption_id,score\ni0,i0#0,1\n")
    assert contradictions(tmp_path / "plain.csv", None, None) is None
    (tmp_path / "plain.csv").write_text(
        "image_id,caption_id,score,rater,prompt\ni0,i0#0,1,m,a\ni0,i0#0,1,m,b\n"
    )
    with pytest.raises(InputError, match="several prompts, and no scale -> add a column"):
        contradictions(tmp_path / "plain.csv", None, None)


def test_the_mean_over_prompts_is_the_judges_score(tmp_path: Path) -> None:
    file = table(tmp_path / "m.csv", {"a": [5, 0, 2, 3], "b": [4, 1, 2, 0]})
    means = [4.5, 0.5, 2, 1.5]
    people = read_people(file, CAPTIONS)
    assert people.score.tolist() == means and people.ratings is None, (
        "one rater, however often asked"
    )
    assert read_raters(file) == ({"m": dict(zip(PAIRS, means, strict=True))}, (0, 5))
    np.testing.assert_array_equal(read_pairs(file, CAPTIONS)[1], np.float32(means))
    file.write_text(file.read_text() + "i0,i0#0,5,m,0..5,a\n")
    with pytest.raises(InputError, match=r"row 10: m rated image 'i0', caption 'i0#0' twice"):
        read_people(file, CAPTIONS)


def test_each_pair_may_say_how_it_was_come_by(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    head = "image_id,caption_id,score,sampling\n"
    file.write_text(f"{head}i0,i0#0,1,chosen\ni0,i1#0,2,random\n")
    people = read_people(file, CAPTIONS)
    assert people.random.tolist() == [False, True]  # type: ignore[union-attr]
    assert people.sampling == "chosen", "one chosen pair makes it no random sample"
    file.write_text(f"{head}i0,i0#0,1,random\ni0,i1#0,2,random\n")
    assert read_people(file, CAPTIONS).sampling == "random"
    file.write_text(f"{head}i0,i0#0,1,often\n")
    with pytest.raises(InputError, match="row 2: sampling 'often' -> write chosen or random"):
        read_people(file, CAPTIONS)
