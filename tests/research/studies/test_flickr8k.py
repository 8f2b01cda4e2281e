"""The runs of research/studies/flickr8k.py: their presets can be trained, their kept results are of these
settings, and agreement with people is scipy's."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import kendalltau, ttest_rel

from capgrade.agreement.judgements import Judgements
from capgrade.losses import LossTerms
from capgrade.schemas.errors import InputError
from capgrade.trainer.models import model_of
from research.studies import flickr8k
from tests.conftest import ROOT, make_captions

INTERVAL = r"(\d+\.\d) \[-?(\d+\.\d), -?(\d+\.\d)\]"  # without signs: README says "falls by"
PLAN = yaml.safe_load(flickr8k.PLAN.read_text(encoding="utf-8"))


def test_every_preset_can_be_trained_and_is_of_a_run() -> None:
    assert PLAN["presets"].keys() <= set(PLAN["runs"])
    for run in PLAN["runs"]:
        train = flickr8k.params_of(run, 0).train
        assert model_of(train.model.name)
        LossTerms(train.loss)


def test_kept_results_are_of_the_settings_that_stand_here() -> None:
    for file in flickr8k.RESULTS.glob("*.json"):
        run, _, seed = file.stem.rpartition("-")
        assert run in PLAN["runs"]
        result = flickr8k.read_result(run, int(seed))
        assert result is not None
        assert len(result["tau_b"]) == 1 + flickr8k.DRAWS


def test_a_result_of_other_settings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flickr8k, "RESULTS", tmp_path)
    settings = flickr8k.settings_of(flickr8k.params_of("plain", 0))
    file = tmp_path / "plain-0.json"
    file.write_text(json.dumps({"train": settings}))
    assert flickr8k.read_result("plain", 0) == {"train": settings}
    file.write_text(json.dumps({"train": {**settings, "lr": 7.0}}))
    with pytest.raises(InputError, match=r"plain-0.json.*other settings"):
        flickr8k.read_result("plain", 0)


def test_agreement_is_scipys_of_all_pairs_and_of_drawn_images() -> None:
    rng = np.random.default_rng(0)
    captions = make_captions([["a", "b", "c", "d", "e"]] * 20)
    people = Judgements(
        rng.integers(0, 20, 300), rng.integers(0, 100, 300), rng.integers(0, 4, 300) / 3
    )
    project = flickr8k.Project(Path(), {"test": captions}, {}, people)
    values = rng.normal(size=300) + people.score
    found = flickr8k.agreement(project, values)
    assert found[0] == pytest.approx(kendalltau(values, people.score).statistic, abs=1e-6)
    assert len(found) == 1 + flickr8k.DRAWS
    assert 0 < np.std(found[1:]) < 0.2


def test_first_items_are_counted_by_what_people_say_of_them() -> None:
    # Images 0 to 2 with a caption each. Image 0 has its own first, image 1 an accepted one, and
    # image 2 a refused one. The first images of captions 0 and 1 are of the same two pairs.
    similarity = np.array([[0.9, 0.1, 0.0], [0.95, 0.4, 0.2], [0.1, 0.8, 0.3]])
    people = Judgements(np.array([1, 2]), np.array([0, 1]), np.array([0.5, 1 / 3]))
    found = flickr8k.judged_first(similarity, np.arange(3), people)
    third = pytest.approx(1 / 3)
    expected = {"own": third, "judged": pytest.approx(2 / 3), "accepted": third}
    assert found["to text"] == {**expected, "recall": pytest.approx(2 / 3)}
    assert found["to image"] == {**expected, "recall": pytest.approx(2 / 3)}


def test_the_tables_have_means_over_seeds_and_differences_of_the_same_seeds() -> None:
    labels = (f"ndcg@25[{label}]" for label in flickr8k.LABELS)
    names = "recall@1 to text", "recall@1 to image", *labels
    metrics = dict.fromkeys(names, 0.5)
    made = {
        "plain": [_result(metrics, 100.0, 0.20, 0), _result(metrics, 110.0, 0.22, 1)],
        "plain_soft": [_result(metrics, 90.0, 0.30, 1)],
        "plain_people": [_result(metrics, 90.0, 0.3, 1), _result(metrics, 82.0, 0.3, 0)],
    }
    head, _, first, second, _ = flickr8k.rows(made)
    assert head.count("|") == first.count("|") == second.count("|")
    assert "105.0 ± 7.1" in first
    assert "| 21.0 ± 1.4 [21.0, 21.0] |" in first
    assert "| 30.0 [30.0, 30.0] |" in second
    low, high = ttest_rel([82.0, 90.0], [100.0, 110.0]).confidence_interval(0.95)
    rsum = f"-19.0 [{low:.1f}, {high:.1f}]"
    assert [*flickr8k.differences(made)][2:] == [
        f"| `plain_people` | `plain` | 2 | +9.0 [9.0, 9.0] | {rsum} | {rsum} |",
        "| `plain_soft` | `plain` | 1 | +8.0 [8.0, 8.0] | -20.0 | -20.0 |",
    ]


def test_the_page_has_the_table_and_the_figures_that_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["flickr8k", "--out", str(tmp_path / "table.md")])
    flickr8k.main()
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    *_, ranks, first = capsys.readouterr().out.splitlines()
    figures = [one.replace("0.", ".") for one in re.findall(r"[+-]0\.\d\d", ranks)]
    figures += [f"{float(one):.0f} %" for one in re.findall(r"([\d.]+)% of these", first)]
    assert len(figures) == 10 and all(one in page for one in figures), figures
    for table in (tmp_path / "table.md").read_text(encoding="utf-8").split("\n\n"):
        assert table.rstrip() in page
    assert {run for pair in flickr8k.BESIDE for run in pair} <= {*PLAN["runs"]}
    assert {*flickr8k.LEFT, *flickr8k.RAISED} <= {*flickr8k.TITLES} <= {*PLAN["runs"]}


def test_readme_has_intervals_of_the_table_and_counts_the_points_of_the_picture() -> None:
    page, readme = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("docs/papers.md", "README.md")
    )
    known, told = (
        {tuple(sorted(found, key=float)) for found in re.findall(INTERVAL, text)}
        for text in (page, readme.partition("\n## ")[0])
    )
    assert len(told) >= 5 and told <= known
    points = f"a point for each of {len(flickr8k.TITLES)} runs"
    assert points in page and points in readme


def test_a_picture_that_is_there_is_written_over_by_force_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (picture := tmp_path / "mine.png").write_bytes(b"mine")
    given = ["flickr8k", "--only", "plain_soft", "--plot", str(picture)]
    monkeypatch.setattr("sys.argv", given)
    with pytest.raises(InputError, match="a file is there -> give --force"):
        flickr8k.main()
    assert picture.read_bytes() == b"mine"
    monkeypatch.setattr("sys.argv", [*given, "--force"])
    flickr8k.main()
    assert picture.read_bytes().startswith(b"\x89PNG")


def _result(metrics: dict[str, float], rsum: float, tau: float, seed: int) -> dict:
    first = {side: {"recall": 0.4} for side in ("to text", "to image")}
    return {
        "train": {"seed": seed},
        "val": {"rsum": rsum},
        "test": {**metrics, "rsum": rsum},
        "tau_b": [tau] * 201,
        "first": first,
    }
