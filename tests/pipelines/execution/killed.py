"""Runs that are killed with -9 at file operations drawn by a seed, and started again.

    python -m tests.pipelines.execution.killed FOLDER MOMENTS SEED

FOLDER holds `captions`. Each run is a fork; every third starts from nothing, the others from what
the one before has left. The end is every byte of a run left alone; until then what was finished
stays as it is. Under DVC, which deletes the output before each run, it stays after the end too.
Prints a line for each way to run: its name, how many runs were killed, and how many file operations
a run from nothing has.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from unittest.mock import patch

# numba's only one that may be forked
os.environ |= {
    "NUMBA_THREADING_LAYER": "workqueue",
    "NUMBA_NUM_THREADS": "1",
}

import numpy as np  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402

from capgrade.measures.params import MeasuresParams  # noqa: E402
from capgrade.params import load_params  # noqa: E402
from capgrade.pipelines import regions as regions_stage  # noqa: E402
from capgrade.pipelines.beam_shards import WriteShards  # noqa: E402
from capgrade.pipelines.execution import job as module  # noqa: E402
from capgrade.pipelines.execution.runners import MakeBlock  # noqa: E402
from capgrade.pipelines.relevance import relevance  # noqa: E402
from capgrade.pipelines.shards import shards  # noqa: E402
from capgrade.pipelines.stages.regions import RegionsParams  # noqa: E402
from capgrade.pipelines.stages.relevance import RelevanceParams  # noqa: E402
from capgrade.pipelines.stages.shards import ShardsParams, WindowsParams  # noqa: E402
from capgrade.schemas import output  # noqa: E402
from capgrade.schemas.arrow import ArrowFile  # noqa: E402
from capgrade.schemas.captions import read_captions  # noqa: E402
from capgrade.schemas.regions import Regions, write_regions  # noqa: E402
from capgrade.trainer.fit.train import train  # noqa: E402
from tests import kills  # noqa: E402
from tests.conftest import contents  # noqa: E402

SMALL = ShardsParams(
    measures=("rouge_l",), top=3, uniform=4, windows=WindowsParams(per_window=1), block_images=2
)
DENSE = RelevanceParams(measures=("rouge_l", "cider"), block_images=4)
SHARDS: dict[str, dict[str, bytes]] = {}


def dense(folder: Path) -> None:
    """`capgrade relevance`."""
    relevance(folder / "captions", folder / "out", DENSE, MeasuresParams())


def sampled(folder: Path) -> None:
    """`capgrade shards`."""
    shards(folder / "captions", folder / "out", SMALL, MeasuresParams())


def exchanged(folder: Path) -> None:
    """`capgrade shards` by way of a URL, each block handed out twice, to workers of their own."""

    def twice(job: module.Job, todo: Sequence[int]) -> None:
        for block in (*todo, *todo):
            module.Worker(job).make(block)

    there = SMALL.model_copy(update={"exchange": f"file://{folder}/url"})
    shards(folder / "captions", folder / "out", there, MeasuresParams(), twice)


def in_parts(folder: Path) -> None:
    """`capgrade shards --part` in any order and again, then `--join`."""
    steps: list[dict[str, object]] = [{"part": f"{number}/3"} for number in (2, 1, 3, 2)]
    for step in (*steps, {"join": True}):
        params = SMALL.model_copy(update=step)
        shards(folder / "captions", folder / "out", params, MeasuresParams())


def by_beam(folder: Path) -> None:
    """All elements of `WriteShards`, one after the other, as a runner hands them out again."""
    captions, out, exchange = (f"file://{folder}/{name}" for name in ("captions", "out", "url"))
    work = WriteShards(captions, out, exchange, SMALL).work
    job, make = work.begin(), MakeBlock()
    work.finish([one for block in range(job.n_blocks) for _, one in make.process((job, block))])


def detected(folder: Path) -> None:
    """`capgrade regions`, in shards of two pictures."""
    params = RegionsParams(detector="scenes", workers=0, boxes="10", device="cpu")
    with patch.object(regions_stage, "MOST_IMAGES", 2):
        regions_stage.regions(folder / "pictures", folder / "out", params)


TRAINED = [
    "train.split=test",
    "train.validation=null",
    "train.batch_size=8",
    "train.epochs=3",
    "train.device=cpu",
    "train.measure=rouge_l",
    "train.model={name: vse, options: {embed: 8, word: 4}}",
]


def trained(folder: Path) -> None:
    """`capgrade train`."""
    params = load_params(None, TRAINED)
    regions = folder / "features"
    train(folder / "captions", folder / "out", params.train, params.measures, regions=regions)


STAGES: tuple[Callable[[Path], None], ...] = (dense, sampled, detected, trained)  # DVC runs them
WORK = (*STAGES, exchanged, in_parts, by_beam)


def prepare(folder: Path) -> None:
    """Pictures, and features of the captions' images."""
    random, boxes = np.random.default_rng(0), np.array([[0, 0, 9, 9]] * 2, np.float32)
    (folder / "pictures").mkdir()
    for k in range(8):
        pixels = random.integers(0, 256, (40, 60, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / f"{k}.png")
    ids = read_captions(folder / "captions").image_ids
    draw = lambda: random.normal(size=(2, 8)).astype(np.float32)  # noqa: E731
    images = [Regions(image_id, 20, 20, boxes, draw()) for image_id in ids]
    write_regions(folder / "features", images, dtype="float32")


def ended(work: Callable[[Path], None], folder: Path, at: int = kills.NEVER) -> bool:
    """A run that is killed before its file operation of this number; whether it ended first."""
    return kills.ended(lambda: work(folder), folder, at)


def finished(folder: Path) -> dict[Path, tuple[int, int]]:
    """Inode and time of each part, which has all its content."""
    for path in folder.rglob("*.arrow"):
        ArrowFile(path).read_all()
    parts = [path for path in folder.rglob("parts/[!.]*") if path.is_file()]
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in parts}


def kept(
    work: Callable[[Path], None],
    before: dict[Path, tuple[int, int]],
    after: dict[Path, tuple[int, int]],
) -> bool:
    """Whether no part is lost. A part of `--part` that ends deletes its own, and those at a URL are
    deleted once they are all here."""
    if work is exchanged:
        return {path.name for path in before} <= {path.name for path in after}
    return work is in_parts or before.items() <= after.items()


def of_run(out: Path) -> dict[str, bytes]:
    """Files of the output, without what a killed worker was writing."""
    return {name: content for name, content in contents(out).items() if not name.endswith(".tmp")}


def afresh(folder: Path) -> None:
    """What earlier runs have left is gone."""
    for name in ("machine", "out", "out.unfinished", "out.parts", "url"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "machine").mkdir()


def killed(work: Callable[[Path], None], folder: Path, moments: int, seed: int) -> tuple[int, int]:
    """How many were killed, and how many file operations a run has."""
    draw = Random(seed)
    afresh(folder)
    operations = kills.counted(
        lambda: work(folder), folder
    )  # kernels are loaded here, and not in each fork
    whole, deaths = contents(folder / "out"), 0
    if work in (sampled, exchanged, in_parts, by_beam):
        assert whole == SHARDS.setdefault("of all ways", whole)
    for k in range(moments):
        if k % 3 == 0:
            afresh(folder)
        before = finished(folder)
        # Of a run whose files are in their places what is left is rightly made again: a note says
        # that they are, or its work was being deleted, in an order that the disk chooses.
        left = folder / "out.unfinished"
        had_ended = (folder / "out" / "manifest.json").exists() and (
            any(left.glob("*/before.json")) or not any(left.glob("*/run.json"))
        )
        deaths += not ended(work, folder, draw.randint(1, operations))
        if not (folder / "out" / "manifest.json").exists():
            assert had_ended or kept(work, before, finished(folder))
        else:
            assert (folder / "out" / "manifest.json").read_bytes() == whole["manifest.json"]
        if k % 3 == 1:
            assert ended(work, folder) and of_run(folder / "out") == whole
    return deaths, operations


def killed_under_dvc(
    work: Callable[[Path], None], folder: Path, moments: int, seed: int
) -> tuple[int, int]:
    """The same, where the output is gone before each run and no part may be made twice."""
    draw, deaths = Random(seed), 0
    afresh(folder)
    operations = kills.counted(lambda: work(folder), folder)
    whole = contents(folder / "out")

    def again(at: int = kills.NEVER) -> bool:
        shutil.rmtree(folder / "out", ignore_errors=True)
        before = finished(folder)
        end = ended(work, folder, at)
        assert before.items() <= finished(folder).items()
        return end

    for k in range(moments):
        if k % 3 == 0:
            afresh(folder)
        deaths += not again(draw.randint(1, operations))
        if k % 3 == 1:
            assert again() and of_run(folder / "out") == whole
            state = next((folder / "out.unfinished").glob("train-*/state.pt"), folder)
            inode = state.stat().st_ino if work is trained else 0
            assert again() and of_run(folder / "out") == whole, (
                "after the end, as a record was lost"
            )
            assert not inode or state.stat().st_ino == inode, "no epoch is trained again"
    return deaths, operations


if __name__ == "__main__":
    torch.set_num_threads(1)
    kills.no_sync()
    tempfile.tempdir = f"{sys.argv[1]}/machine"
    prepare(Path(sys.argv[1]))
    given = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for work in WORK:
        print(work.__name__, *killed(work, *given), flush=True)
    os.environ[output.UNDER_DVC] = "stage"
    code = output.code_state()
    # A file of code that is saved meanwhile would rightly have all made again.
    with patch.object(output, "code_state", lambda: code):
        for work in STAGES:
            print(work.__name__, *killed_under_dvc(work, *given), flush=True)
