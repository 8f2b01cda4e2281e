"""The labels of research/studies/looked_up.py: shards of the share that its table tells, and permuted
ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from capgrade.pipelines.captions import captions
from capgrade.pipelines.stages.captions import CaptionsParams, ScenesParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.relevance import read_relevance
from research.studies.looked_up import Origin, write_permuted, write_shards


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("scenes")
    captions(folder, CaptionsParams(scenes=ScenesParams(train=200, val=0, test=0, size=64)))
    return folder


@pytest.mark.parametrize("share", [0.04, 0.16])
def test_shards_hold_about_the_share_that_the_table_tells(
    scenes: Path, tmp_path: Path, share: float
) -> None:
    folder = write_shards(scenes, tmp_path, Origin("estimate", share), "rouge_l")
    held = json.loads((folder / "manifest.json").read_text())["pairs"] / (200 * 1000)
    assert 0.5 * share <= held <= 1.5 * share


def test_permuted_labels_are_those_of_other_captions_in_another_order(
    scenes: Path, tmp_path: Path
) -> None:
    folder = write_permuted(scenes, tmp_path, "rouge_l")
    exact = read_relevance(tmp_path / "exact-rouge_l" / "rouge_l.arrow").matrix()
    found = read_relevance(folder / "rouge_l_permuted.arrow").matrix()
    own = read_captions(scenes, "train").owner == np.arange(200)[:, None]
    np.testing.assert_array_equal(found[own], exact[own])
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(exact, axis=1))
    assert (found != exact)[~own].mean() > 0.5
