"""From an audit's list to labels: two people rate it, and what they say is judgements, a
calibration and a measure of some pairs."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from capgrade import Labels
from capgrade.apps.explorer.ratings import ReviewRatings
from capgrade.schemas.captions import read_captions
from capgrade.schemas.relevance import read_relevance
from tests.conftest import call, caption_table, printed, random_sets, refusal, write_captions_folder


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty listed pairs, the likeliest by ROUGE-L, rated by two people."""
    folder: Path = tmp_path_factory.mktemp("loop")
    captions = write_captions_folder(
        folder / "captions", [caption_table(random_sets(20, seed=4, least=2))]
    )
    given = ("--captions", captions, "--measures", "rouge_l,bleu")
    assert call("relevance", *given, "--out", folder / "relevance") == 0
    table = read_captions(captions)
    value = read_relevance(folder / "relevance" / "rouge_l.arrow").matrix()
    own = table.owner == np.arange(table.n_images)[:, None]
    best = np.argsort(np.where(own, -1, value), axis=None)[::-1][:30]
    pairs = [divmod(int(code), table.n_captions) for code in best]
    lines = [f"{table.image_ids[i]},{table.caption_ids[c]},{value[i, c]}" for i, c in pairs]
    (folder / "likely.csv").write_text("\n".join(["image_id,caption_id,value", *lines]) + "\n")
    sample = ("explore", "sample", "--captions", captions, "--relevance", folder / "relevance")
    assert call(*sample, "--pairs", folder / "likely.csv", "--out", folder / "listed") == 0
    ratings = ReviewRatings.open(folder / "listed")
    assert [(one.image_id, one.caption_id) for one in ratings.plan.items] == [
        (table.image_ids[i], table.caption_ids[c]) for i, c in pairs
    ]
    for item in range(30):
        ratings.rate("ann", item, item % 6)
        ratings.rate("bo", item, min(item % 6 + item % 2, 5))
    assert call("explore", "export", folder / "listed", "--out", folder / "people.csv") == 0
    return folder


def test_ratings_are_judgements(here: Path) -> None:
    found = printed("agree", "raters", here / "listed")
    assert found["protocol"] == "listed" and found["items"] == 30
    line = ("agree", "--captions", here / "captions", "--judgements", here / "people.csv")
    agreed = printed(*line, "--measures", "rouge_l")
    assert agreed["judgements"]["pairs"] == 30
    audit = ("audit", "--captions", here / "captions", "--relevance", here / "relevance")
    judged = ("--measure", "people", "--judgements", here / "people.csv")
    said = refusal(*audit, *judged, "--out", here / "a.html")
    assert "people" in said  # it was not computed here


def test_ratings_are_labels_of_some_pairs(here: Path) -> None:
    measures = ("--measures", f"rouge_l,reviewed={here / 'people.csv'}")
    sizes = ("--top", "40", "--uniform", "40")
    shards = ("shards", "--captions", here / "captions", *measures, *sizes)
    assert call(*shards, "--out", here / "shards") == 0
    labels = Labels.load(here / "shards", captions=here / "captions")
    block = labels.block(range(20), range(labels.n_captions), "reviewed")
    assert block.known.sum() == 30
    publish = ("publish", "--captions", here / "captions", "--shards", here / "shards")
    assert call(*publish, "--license", "cc0-1.0", "--out", here / "dataset") == 0
    column = pq.read_table(here / "dataset" / "relevance")["reviewed"]
    assert len(column) - column.null_count == 30


@pytest.mark.parametrize(("row", "said"), [
    ("nobody,i0#0", "row 2: image_id 'nobody' is not in the captions -> name their --split"),
    ("i0,nobody", "row 2: caption_id 'nobody' is not in the captions"),
    ("i0,i1#0\ni0,i1#0", "row 3: the pair of row 2 again -> list each pair once"),
])  # fmt: skip
def test_a_list_that_does_not_fit(here: Path, tmp_path: Path, row: str, said: str) -> None:
    (tmp_path / "l.csv").write_text(f"image_id,caption_id\n{row}\n")
    sample = ("explore", "sample", "--captions", here / "captions", "--relevance")
    line = (*sample, here / "relevance", "--pairs", tmp_path / "l.csv", "--out", tmp_path / "o")
    assert said in refusal(*line)
