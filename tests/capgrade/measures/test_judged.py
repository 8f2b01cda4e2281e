"""Judgements as a measure: on the pairs that were judged, and on no other."""

import json
from pathlib import Path

import numpy as np
import pytest

from capgrade.explorer.judgements import read_judged
from capgrade.measures.imported import FittedJudged, Imported
from capgrade.schemas.errors import InputError
from capgrade.schemas.reviews import POOL, Item, ReviewPlan
from tests.conftest import call, caption_table, make_captions, random_sets, write_captions_folder

SETS = random_sets(6, seed=2, least=2, most=3)
CAPTIONS = make_captions(SETS)


def write(path: Path, rows: list[tuple[int, int, float]]) -> Path:
    ids = [(CAPTIONS.image_ids[i], CAPTIONS.caption_ids[c], s) for i, c, s in rows]
    path.write_text("image_id,caption_id,score,rater,scale\n" + "".join(f"{i},{c},{s},m,0..5\n" for i, c, s in ids))
    return path


def test_the_mean_of_each_pair_and_nothing_for_others(tmp_path: Path) -> None:
    path = write(tmp_path / "j.csv", [(3, 2, 4), (0, 1, 1), (3, 2, 5)])
    measure = Imported("people", str(path))
    fitted = measure.fit(CAPTIONS)
    assert isinstance(fitted, FittedJudged) and (measure.low, measure.high) == (1, 4.5)
    np.testing.assert_array_equal(fitted.pairs(np.array([0, 3]), np.array([1, 2])), np.float32([1, 4.5]))
    assert fitted.score(np.array([3]), np.array([2])).tolist() == [[4.5]]
    fitted.save(tmp_path / "state")
    assert FittedJudged.load(tmp_path / "state").score(np.array([0]), np.array([1])).tolist() == [[1]]
    with pytest.raises(InputError, match="1 of 2 pairs were not judged, image 'i3', caption 'i0#0'"):
        fitted.score(np.array([3]), np.array([0, 2]))


def test_a_table_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    """As Excel writes UTF-8: with a byte order mark and Windows' line ends."""
    path = write(tmp_path / "j.csv", [(3, 2, 4), (0, 1, 1)])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    fitted = Imported("people", str(path)).fit(CAPTIONS)
    assert fitted.score(np.array([3]), np.array([2])).tolist() == [[4]]
    plan = ReviewPlan(POOL, "", 0, (Item("i3", CAPTIONS.caption_ids[2]),))
    assert read_judged([path], plan) == ({"m": {0: 4}}, (0, 5))


def test_agree_compares_a_judge_with_people_and_with_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captions = write_captions_folder(tmp_path / "captions", [caption_table(SETS)])
    random = np.random.default_rng(0)
    pairs = [(int(i), int(c)) for i in range(6) for c in random.permutation(CAPTIONS.n_captions)[:5]]
    people = write(tmp_path / "people.csv", [(i, c, (i * 7 + c) % 6) for i, c in pairs])
    judge = write(tmp_path / "judge.csv", [(i, c, ((i * 7 + c) % 6) / 5) for i, c in pairs])
    line = ["agree", "--captions", str(captions), "--judgements", str(people), "--measures"]
    assert call(*line, f"rouge_l,judge={judge}", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["judge"]["pearson"]["all"] == pytest.approx(1) and found["rouge_l"]["pearson"]["all"] < 0.9
    out = ["relevance", "--captions", str(captions), "--measures", f"judge={judge}", "--out", str(tmp_path / "r")]
    assert call(*out) == 2
    assert "were not judged" in capsys.readouterr().err
    whole = [(i, c, (i + c) % 6) for i in range(6) for c in range(CAPTIONS.n_captions)]
    write(judge, whole)  # type: ignore[arg-type]
    assert call(*out) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n", "no columns"),
        ("image_id,caption_id,score\n", "no judgements"),
        ("image_id,caption_id,score\ni0,nobody,1\n", "row 2: image 'i0', caption 'nobody'"),
        ("image_id,caption_id,score\ni0,i0#0,nan\n", "row 2: score 'nan' is not a number"),
        ("image_id,caption_id,score\ni0,i0#0,-1e39\n", r"row 2: score '-1e39' is beyond 3.4e\+38"),
        ("image_id,caption_id,score\ni0,i0#0\n", "row 2: the row has 2 fields, the header 3"),
    ],
)
def test_another_table_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "j.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        Imported("x", str(tmp_path / "j.csv")).fit(CAPTIONS)
