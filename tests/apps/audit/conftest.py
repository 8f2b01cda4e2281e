"""What is audited: captions judged by a measure, so that the truth is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.agreement.curve import Curve
from capgrade.schemas.relevance import read_relevance
from tests.conftest import call, caption_table, random_sets, write_captions_folder

SETS = [
    *random_sets(30, seed=3, least=3, most=4),
    ["a dog", "the dog sits", "a small dog"],
    ["a dog", "the dog sits", "a small dog"],
]
# p is the value
LINE = Curve([0.0, 1.0], [0.0, 5.0], [0.0, 1.0], [[0.0, 1.0]] * 2, 0.0, [], 1, 0.0, 0.0)
SETS[5] = [*SETS[5][:2], "<script>document.title='owned'</script> zebra xylophone quartz"]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions judged by a dense matrix of ROUGE-L, a calibration on it, dense relevance and
    shards."""
    folder: Path = tmp_path_factory.mktemp("audit")
    captions = write_captions_folder(folder / "captions", [caption_table(SETS)])
    given = ("--captions", captions, "--measures", "rouge_l,bleu")
    judged = folder / "relevance" / "rouge_l.arrow"
    assert call("relevance", *given, "--out", folder / "relevance") == 0
    sizes = ("--set", "shards.top=5", "--set", "shards.uniform=20")
    assert call("shards", *given, *sizes, "--out", folder / "shards") == 0
    calibrate = ("--calibrate", "--accept", "0.4", "--out", folder / "agree")
    assert call("agree", *given, "--judgements", judged, *calibrate) == 0
    (folder / "agree" / "calibration.json").rename(folder / "calibration.json")
    np.save(folder / "s.npy", read_relevance(judged).matrix())
    return folder


@pytest.fixture
def given(world: Path) -> dict[str, Any]:
    """What most audits are given."""
    return {
        "captions_dir": world / "captions",
        "calibration": world / "calibration.json",
        "measure": "rouge_l",
    }
