"""What is audited: captions judged by a measure, so that the truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.agreement.curve import Curve
from capgrade.pipelines.agree import agree
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.schemas.params import AgreeParams, MeasuresParams, RelevanceParams, ShardsParams
from capgrade.schemas.relevance import read_relevance
from tests.conftest import caption_table, random_sets, write_captions_folder

SETS = [
    *random_sets(30, seed=3, least=3, most=4),
    ["a dog", "the dog sits", "a small dog"],
    ["a dog", "the dog sits", "a small dog"],
]
LINE = Curve([0.0, 1.0], [0.0, 5.0], [0.0, 1.0], [[0.0, 1.0]] * 2, 0.0, [], 1, 0.0, 0.0)  # p is the value
SETS[5] = [*SETS[5][:2], "<script>document.title='owned'</script> zebra xylophone quartz"]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions judged by a dense matrix of ROUGE-L, a calibration on it, dense relevance and shards."""
    folder: Path = tmp_path_factory.mktemp("audit")
    captions = write_captions_folder(folder / "captions", [caption_table(SETS)])
    names = ("rouge_l", "bleu")
    relevance(captions, folder / "relevance", RelevanceParams(measures=names), MeasuresParams())
    shards(captions, folder / "shards", ShardsParams(measures=names, top=5, uniform=20), MeasuresParams())
    judged, out = folder / "relevance" / "rouge_l.arrow", folder / "calibration.json"
    agree(captions, judged, names, MeasuresParams(), calibrate=out, params=AgreeParams(accept=0.4))
    np.save(folder / "s.npy", read_relevance(judged).matrix())
    return folder


@pytest.fixture
def given(world: Path) -> dict[str, Any]:
    """What most audits are given."""
    return {"captions_dir": world / "captions", "calibration": world / "calibration.json", "measure": "rouge_l"}
