"""The comparisons of studies/results.py: their presets can be trained, and none is written down in vain. The labels of
studies/looked_up.py, and the parts of studies/negatives.py and studies/ranks.py, on scenes."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from capgrade import Labels
from capgrade.losses import LossTerms
from capgrade.pipelines.captions import captions
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams, ScenesParams, load_params
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.models import model_of
from studies import looked_up, negatives, ranks, results
from tests.capgrade.conftest import made  # noqa: F401  # a fixture


def test_every_preset_can_be_trained_and_is_of_a_comparison() -> None:
    chosen = [(preset, comparison.sets) for comparison in results.COMPARISONS for preset in comparison.presets]
    compared = {preset for preset, _ in chosen} | set(looked_up.ORIGINS)
    for preset, sets in [*chosen, *((loss, ()) for loss in looked_up.ORIGINS)]:
        train = load_params(results.PRESETS, [f"train.{one}" for one in (f"preset={preset}", *sets)]).train
        assert model_of(train.model.name)
        LossTerms(train.loss)
    assert yaml.safe_load(results.PRESETS.read_text())["presets"].keys() == compared


def test_no_comparison_is_an_error_and_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line = ["results", "--captions", "c", "--regions", "r", "--only", "nothing", "--out", str(tmp_path / "t.md")]
    monkeypatch.setattr("sys.argv", line)
    with pytest.raises(InputError, match="no comparison begins with 'nothing'.*on SGR"):
        results.main()
    assert not list(tmp_path.iterdir())


def test_both_ways_mine_captions_of_other_images(made: Path) -> None:  # noqa: F811
    labels = Labels.load(made / "relevance", captions=made / "captions")
    texts = {text: np.random.default_rng(k).standard_normal(16) for k, text in enumerate(sorted(set(labels.texts)))}
    vectors = np.stack([texts[text] / np.linalg.norm(texts[text]) for text in labels.texts]).astype(np.float32)
    ours = negatives.by_labels(labels, vectors, "rouge_l", 0.5, 2)
    theirs = negatives.by_margin(labels, vectors, -9.0, 2)  # so wide that nothing is left out
    values = labels.block(range(12), range(60), "rouge_l").relevance
    assert len(ours) == 24 and (values[tuple(ours.T)] < 0.5).all()
    assert len(theirs) and (labels.owner[ours[:, 1]] != ours[:, 0]).all()


def test_ranks_have_a_row_for_each_system(made: Path) -> None:  # noqa: F811
    rows = "\n".join(ranks.table(made / "captions", made / "relevance")).splitlines()
    assert rows[0].startswith(ranks.HEAD) and [row.split(" | ")[0] for row in rows[2:]] == [
        "| Sentence-BERT", "| 24 of its numbers", "| tf-idf of words"
    ]  # fmt: skip
    assert all(row.count("|") == rows[0].count("|") for row in rows)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("scenes")
    captions(folder, CaptionsParams(scenes=ScenesParams(train=200, val=0, test=0, size=64)))
    return folder


@pytest.mark.parametrize("share", [0.04, 0.16])
def test_shards_hold_about_the_share_that_the_table_tells(scenes: Path, tmp_path: Path, share: float) -> None:
    folder = looked_up.made(scenes, tmp_path, looked_up.Origin("estimate", share), "rouge_l")
    held = json.loads((folder / "manifest.json").read_text())["pairs"] / (200 * 1000)
    assert 0.5 * share <= held <= 1.5 * share


def test_permuted_labels_are_those_of_other_captions_in_another_order(scenes: Path, tmp_path: Path) -> None:
    folder = looked_up.permuted(scenes, tmp_path, "rouge_l")
    exact = read_relevance(tmp_path / "exact-rouge_l" / "rouge_l.arrow").matrix()
    found = read_relevance(folder / "rouge_l_permuted.arrow").matrix()
    own = read_captions(scenes, "train").owner == np.arange(200)[:, None]
    np.testing.assert_array_equal(found[own], exact[own])
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(exact, axis=1))
    assert (found != exact)[~own].mean() > 0.5
