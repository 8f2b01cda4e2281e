"""Progress of a scoring stage counts images, also within a block, whatever makes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.measures.params import MeasuresParams
from capgrade.measures.reranker.fitted import by_image
from capgrade.pipelines.execution import job
from capgrade.pipelines.execution.runners import BeamRunner
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.progress import counted_work
from tests.conftest import caption_table, random_sets, write_captions_folder

IMAGES = 12


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The total and the unit of the stage's progress, and each step of it."""
    seen: list[Any] = []

    @contextmanager
    def progress(what: str, total: int | None, unit: str | None = None) -> Iterator[Any]:
        seen.append((total, unit))
        yield seen.append

    monkeypatch.setattr(job, "progress", progress)
    return seen


@pytest.mark.parametrize("stage", ["relevance", "shards"])
@pytest.mark.parametrize("runner", [None, BeamRunner(["--direct_num_workers=1"])])
def test_images_are_counted_within_a_block(
    stage: str, runner: BeamRunner | None, shown: list[Any], tmp_path: Path
) -> None:
    captions = write_captions_folder(
        tmp_path / "c", [caption_table(random_sets(IMAGES, seed=3, least=2))]
    )
    names = ("rouge_l", "cider", "daa_average")
    if stage == "relevance":
        relevance(
            captions, tmp_path / "o", RelevanceParams(measures=names), MeasuresParams(), runner
        )
    else:
        shards(captions, tmp_path / "o", ShardsParams(measures=names), MeasuresParams(), runner)
    head, *steps = shown
    assert head == (IMAGES, "images")
    if not runner:  # Beam's workers say when a block is done
        assert sum(steps) == pytest.approx(IMAGES)
        assert len([step for step in steps if step]) >= len(names), "one block, three measures"
    else:
        assert sum(steps) in (0, IMAGES)


def test_a_slow_measure_counts_images() -> None:
    counts: list[float] = []
    images, captions = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    with counted_work(8, counts.append):
        by_image(lambda image, asked: np.zeros(len(asked), np.float32), images, captions)
    assert [count for count in counts if count] == [2, 2, 2, 2]
