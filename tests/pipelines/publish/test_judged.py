"""A benchmark of judgements, and thresholds that are probabilities: against plain loops."""

import ast
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import capgrade
from capgrade.labels import Labels
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.publish.folder import publish
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, read_manifest
from tests.conftest import agreement, call, refusal

from .conftest import PARAMS

GRADES = {"related": 2.0, "fits": 4.0}
JUDGED = PARAMS.model_copy(
    update={"layout": "mteb", "judgements": "", "split": "val", "grades": GRADES}
)
SCORES = {("vi0", "vi0#0"): (5, 4), ("vi0", "vi1#0"): (3,), ("vi1", "vi0#1"): (1, 2)}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `capgrade judge` writes them: two raters, a scale, and a pair of another split."""
    file = tmp_path_factory.mktemp("judged") / "judged.csv"
    rows = [
        f"{image},{caption},{score},r{k},1..5\n"
        for (image, caption), scores in {**SCORES, ("ti0", "ti0#0"): (5,)}.items()
        for k, score in enumerate(scores)
    ]
    file.write_text("image_id,caption_id,score,rater,scale\n" + "".join(rows))
    return file


def rows(folder: Path, name: str) -> dict[tuple[str, str], float]:
    table = pq.read_table(folder / name).to_pylist()
    return {(row["query-id"], row["corpus-id"]): [*row.values()][2] for row in table}


def test_grades_and_gains_are_of_the_mean_scores(
    made: Path, judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those of a folder, as `capgrade regrade` makes it. What is known of the other direction
    alone is no query."""
    out = tmp_path / "out"
    told = JUDGED.model_copy(update={"judgements": str(judged)})
    publish(made / "captions", [], out, told)
    assert "1 judgements are of other captions" in capsys.readouterr().err
    means = {pair: sum(scores) / len(scores) for pair, scores in SCORES.items()}
    # Own pairs that nobody judged count as the best; vi2 and its captions are no queries.
    own = {("vi0", "vi0#1"): 5.0, ("vi1", "vi1#0"): 5.0}
    every = {**means, **own}
    graded = {
        pair: sum(score >= edge for edge in GRADES.values())
        for pair, score in every.items()
        if score >= 2 or pair[1].startswith(pair[0])
    }
    assert rows(out, "i2t-qrels") == graded and rows(out, "t2i-qrels") == {
        pair[::-1]: grade for pair, grade in graded.items()
    }
    gains = {pair: score - 1 for pair, score in every.items()}  # the scale begins at 1
    assert rows(out, "i2t-gains") == gains
    assert rows(out, "t2i-gains") == {pair[::-1]: gain for pair, gain in gains.items()}
    assert len(pq.read_table(out / "images")) == 3 and len(pq.read_table(out / "texts")) == 4
    card = (out / "README.md").read_text()
    assert "3 judged pairs of `judged.csv`" in card and "2 own pairs, which nobody judged" in card
    assert "1 judgements of other captions were left out" in card and digest(judged) in card
    assert "machine-generated" not in card and "Measures are not people" not in card
    assert "annotations_creators" not in (out / "task.py").read_text()
    assert read_manifest(out, "publish")["inputs"]["judgements"] == digest(judged)
    publish(
        made / "captions",
        [],
        tmp_path / "again",
        told.model_copy(update={"judgements": str(judged.parent)}),
    )
    assert rows(tmp_path / "again", "i2t-gains") == gains


def test_a_probability_is_the_calibrations_value(made: Path, tmp_path: Path) -> None:
    """Which the card names, and the manifest. One that does not know the measure is refused."""
    dense, out = made / "dense", tmp_path / "agree"
    given: dict[str, Any] = {"split": "train", "calibrate": True, "accept": 0.3}
    judged = dense / "rouge_l.arrow"
    agreement(made / "captions", judged, ["rouge_l"], MeasuresParams(), out=out, **given)
    line = f"publish --layout mteb --captions {made}/captions --relevance {dense} --license mit"
    line += " --name tiny --language en --measure rouge_l --grades related=P0.2 --grades fits=P0.8"
    to = tmp_path / "out"
    assert "none of rouge_l" in refusal(*line.split(), "--out", to)
    file = out / "calibration.json"
    assert call(*line.split(), "--calibration", file, "--out", to) == 0
    labels = Labels.load(dense, captions=made / "captions", measures=["rouge_l"])
    low, high = (capgrade.value_at(labels, p, calibration=file) for p in (0.2, 0.8))
    values = labels.block(labels.image_ids, labels.caption_ids).relevance
    wanted = {
        (image, caption): int(values[i, c] >= low) + int(values[i, c] >= high)
        for i, image in enumerate(labels.image_ids)
        for c, caption in enumerate(labels.caption_ids)
        if values[i, c] >= low or labels.owner[c] == i
    }
    assert low < high and rows(to, "i2t-qrels") == wanted
    card = (to / "README.md").read_text()
    assert digest(file) in card and f"| 2 | fits | 0.8 | {high:g} |" in card
    facts = read_manifest(to, "publish")["calibration"]
    assert facts["sha256"] == digest(file) and "columns" not in facts


def test_the_task_of_ids_joins_texts(made: Path, tmp_path: Path) -> None:
    ids = {"layout": "mteb", "measure": "rouge_l", "grades": {"fits": 0.5}, "captions": "ids"}
    publish(made / "captions", [made / "dense"], tmp_path / "out", PARAMS.model_copy(update=ids))
    task = ast.parse((tmp_path / "out" / "task.py").read_text())
    assert "with_texts" in [one.name for one in task.body if isinstance(one, ast.FunctionDef)]


def test_judgements_of_nothing_here_are_refused(made: Path, judged: Path, tmp_path: Path) -> None:
    told = JUDGED.model_copy(update={"judgements": str(judged), "split": None})
    with pytest.raises(InputError, match="several splits: train, val -> choose one"):
        publish(made / "captions", [], tmp_path / "out", told)
    other = tmp_path / "other.csv"
    other.write_text("image_id,caption_id,score\nx,y,3\n")
    told = JUDGED.model_copy(update={"judgements": str(other)})
    with pytest.raises(InputError, match="none of an image and a caption of split 'val'"):
        publish(made / "captions", [], tmp_path / "out", told)
