"""A small world of scenes: captions, shards, dense relevance and the dataset published from
them."""

import shlex
from pathlib import Path

import pytest

from tests.conftest import call

LINES = """
capgrade captions --set captions.scenes.train=12 --set captions.scenes.val=3 --set captions.scenes.test=4 \
--set captions.scenes.size=64 --out {0}/captions
capgrade shards --captions {0}/captions --split train --set shards.top=4 --set shards.uniform=4 --out {0}/shards
capgrade relevance --captions {0}/captions --split train --out {0}/relevance
capgrade publish --captions {0}/captions --shards {0}/shards --license cc-by-4.0 --out {0}/dataset
"""


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """captions/, shards/, relevance/ and dataset/ of the same twelve images."""
    folder = tmp_path_factory.mktemp("made")
    for line in LINES.strip().splitlines():
        assert call(*shlex.split(line.format(folder))[1:]) == 0, line
    return folder


@pytest.fixture(scope="session")
def dataset(made: Path) -> Path:
    return made / "dataset"
