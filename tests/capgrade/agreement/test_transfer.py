"""A calibration before people it never saw: what it says of their pairs, and how far it is off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from capgrade.agreement.calibration import SHIPPED, held, load, meanings, named
from capgrade.agreement.judgements import Judgements
from capgrade.pipelines.agree import agree
from capgrade.pipelines.relevance import relevance
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import AgreeParams, BleuParams, MeasuresParams, RelevanceParams
from capgrade.schemas.relevance import read_relevance
from tests.conftest import caption_table, random_sets, write_captions_folder

PLAIN = MeasuresParams()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ROUGE-L judges some captions: what BLEU and CIDEr-D mean by it. Other captions with the same judge."""
    folder: Path = tmp_path_factory.mktemp("transfer")
    for name, seed in (("here", 4), ("there", 5)):
        captions = write_captions_folder(folder / name, [caption_table(random_sets(20, seed=seed, least=2))])
        relevance(captions, folder / f"{name}-dense", RelevanceParams(measures=("rouge_l", "bleu")), PLAIN)
    judge = folder / "here-dense" / "rouge_l.arrow"
    agree(
        folder / "here", judge, ["bleu", "cider"], PLAIN, calibrate=folder / "here.json", params=AgreeParams(accept=0.3)
    )
    return folder


def test_what_values_mean_elsewhere_is_judged(world: Path) -> None:
    """Against scipy's coefficients of the values that numpy reads off the written curve."""
    judge, known = world / "there-dense" / "rouge_l.arrow", world / "here.json"
    found = agree(world / "there", judge, ["rouge_l", "bleu"], PLAIN, calibration=known)
    assert set(found) == {"rouge_l", "bleu", "bleu_score", "bleu_accepted", "bleu_grade", "binary"}
    owner = read_captions(world / "there", None).owner
    dense = (read_relevance(world / "there-dense" / f"{name}.arrow") for name in ("rouge_l", "bleu"))
    score, bleu = (one.matrix().ravel() for one in dense)
    other = (owner[None, :] != np.arange(owner.max() + 1)[:, None]).ravel()
    curve = load(known).curves["bleu"]
    for end, line in (("score", curve.score), ("accepted", curve.accepted)):
        values = np.interp(bleu, curve.value, line)[other]
        assert found[f"bleu_{end}"]["kendall"]["non_original"] == pytest.approx(
            stats.kendalltau(values, score[other]).statistic
        )
    error = found["bleu_accepted"]["calibration"]
    assert sum(row["pairs"] for row in error["reliability"]) == other.sum() and 0 <= error["ece"] < 1
    assert "calibration" not in found["bleu"] and "calibration" not in found["bleu_score"]


def test_a_grade_is_the_nearest_whole_number() -> None:
    curve = load(SHIPPED).curves["people"]
    values = np.linspace(-1, 1, 999)
    meant = meanings({"people": values, "other": values}, {"people": curve})
    assert list(meant) == ["people_score", "people_accepted", "people_grade"]
    assert np.abs(meant["people_grade"] - meant["people_score"]).max() <= 0.5
    assert set(meant["people_grade"]) <= {0, 1, 2, 3, 4, 5} and len(set(meant["people_grade"])) > 3


def test_the_error_is_by_who_accepts_here() -> None:
    """Half of these people say yes, where 0.9 was predicted; own pairs do not count."""
    score = np.tile([0.0, 1.0], 50)
    people = Judgements(np.arange(100), np.arange(100), score, scale=(0.0, 1.0))
    other = np.arange(100) < 60
    found = held({"m_accepted": np.full(100, 0.9), "m_score": np.full(100, 4.0)}, people, other)
    assert set(found) == {"m_accepted"} and found["m_accepted"]["ece"] == pytest.approx(0.4)
    assert sum(row["pairs"] for row in found["m_accepted"]["reliability"]) == 60


def test_what_does_not_fit_is_refused(world: Path, tmp_path: Path) -> None:
    judge, known = world / "there-dense" / "rouge_l.arrow", world / "here.json"

    def refused(message: str, names: list[str], measures: MeasuresParams = PLAIN, **given: Path) -> None:
        with pytest.raises(InputError, match=message):
            agree(world / "there", judge, names, measures, **{"calibration": known, **given})

    refused("calibrates bleu, cider, none of rouge_l", ["rouge_l"])
    refused("bleu has other parameters than in here.json", ["bleu"], MeasuresParams(bleu=BleuParams(n=2)))
    refused("the calibration to write is the one to read", ["bleu"], calibrate=known)
    refused("no such file|cannot be read", ["bleu"], calibration=tmp_path / "none.json")


def test_the_calibration_that_comes_with_capgrade_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(load(named(Path("crisscrossed"))).curves) == ["people", "people_shared", "sbert", "scene_graph"]
    monkeypatch.chdir(tmp_path)
    Path("crisscrossed").write_text("mine")
    assert named(Path("crisscrossed")) == Path("crisscrossed")
