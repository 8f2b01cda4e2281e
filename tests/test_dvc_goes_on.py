"""`dvc repro`, killed with -9 within a stage and typed again: it goes on, to the bytes of a run
left alone."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from capgrade.schemas.regions import Regions, write_regions
from tests.conftest import ROOT, caption_table, random_sets, work_of, write_captions_folder
from tests.tools.forked import forked

pytest.importorskip("dvc", reason="DVC is not installed")

MANY = 24  # images
SMALL_PARTS = """
import time
import capgrade.pipelines.execution.job as job
import capgrade.pipelines.regions as regions

regions.MOST_IMAGES = 2
make = job.Worker.make
job.Worker.make = lambda self, block: (make(self, block), time.sleep(0.05))  # so that there is time to kill it
"""
COMMANDS = {  # its output is data/STAGE
    "regions": (
        "--images pictures --detector scenes --set regions.device=cpu --set regions.workers=0"
    ),
    "relevance": "--captions captions --measures rouge_l --set relevance.block_images=2",
    "shards": "--captions captions --measures rouge_l --set shards.block_images=2",
    "train": (
        "--captions captions --regions features --set train.split=test --set train.validation=null "
        "--set train.batch_size=8 --set train.epochs=60 --set train.device=cpu "
        "--set 'train.model={name: vse, options: {embed: 16, word: 8}}'"
    ),
}
KILLED_AT = {
    "regions": ("parts/*.json", 3),
    "relevance": ("parts/*.arrow", 3),
    "shards": ("parts/*.arrow", 3),
    "train": ("state.pt", 1),
}
KEPT = {
    "regions": rf"goes on, (\d+) of {MANY} pictures are done",
    "relevance": r"goes on, (\d+) of 12 blocks are done",
    "shards": r"goes on, (\d+) of 12 blocks are done",
    "train": r"goes on after epoch (\d+)",
}


# What is done of a run that has ended.
WHOLE = {"regions": str(MANY), "relevance": "12", "shards": "12", "train": "60"}


def kept_of(out: Path) -> list[Path]:
    """What of a stage takes the time."""
    folder = work_of(out)
    return sorted([*folder.glob("parts/*"), *folder.glob("regions-*"), *folder.glob("state.pt")])


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a quick `capgrade`, which makes small parts, and a quick `dvc`."""
    with chdir(ROOT), forked(tmp_path_factory.mktemp("bin"), SMALL_PARTS) as folder:
        yield folder


@pytest.fixture
def project(commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Captions, pictures of these, and a pipeline of the long stages."""
    from dvc.repo import Repo

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    table, rng = caption_table(random_sets(MANY, seed=6)), np.random.default_rng(0)
    ids = list(dict.fromkeys(table["image_id"].to_pylist()))
    write_captions_folder(tmp_path / "captions", [table])
    boxes = np.array([[0, 0, 9, 9]] * 2, np.float32)
    found = [
        Regions(image_id, 20, 20, boxes, rng.normal(size=(2, 8)).astype(np.float32))
        for image_id in ids
    ]
    write_regions(tmp_path / "features", found, dtype="float32")
    (tmp_path / "pictures").mkdir()
    for image_id in ids:
        pixels = rng.integers(0, 255, (48, 48, 3), np.uint8)
        Image.fromarray(pixels).resize((160, 160)).save(tmp_path / "pictures" / f"{image_id}.png")
    stages = {
        name: {"cmd": f"capgrade {name} {given} --out data/{name}",
               "deps": ["captions", "features", "pictures"], "outs": [f"data/{name}"]}
        for name, given in COMMANDS.items()
    }  # fmt: skip
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}, width=10_000))
    Repo.init(no_scm=True).close()
    return tmp_path


def repro(project: Path, stage: str, kill: bool) -> str:
    """What `dvc repro STAGE` says; killed with what it has started when so many parts of the stage
    are there that were not there before."""
    pattern, count = KILLED_AT[stage]

    def parts() -> set[int]:
        return {path.stat().st_ino for path in project.glob(f"data/{stage}.unfinished/*/{pattern}")}

    before = parts()
    process = subprocess.Popen(
        ["dvc", "repro", "--single-item", stage],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    while kill and process.poll() is None:
        with suppress(FileNotFoundError):  # one that takes its place just now
            if len(parts() - before) >= count:
                break
        time.sleep(0.002)
    if kill:
        assert process.poll() is None, process.communicate()[0]
        os.killpg(process.pid, signal.SIGKILL)
    said = process.communicate()[0]
    assert kill or process.returncode == 0, said
    return said


@pytest.mark.parametrize("stage", COMMANDS)
def test_a_stage_that_was_killed_goes_on(stage: str, project: Path) -> None:
    repro(project, stage, kill=True)
    out = project / "data" / stage
    assert not out.exists(), "it was killed in the middle"
    kept = re.search(KEPT[stage], said := repro(project, stage, kill=False))
    assert kept and int(kept[1]) >= KILLED_AT[stage][1], said
    assert [path.name for path in out.parent.glob("*.unfinished*")] == [f"{stage}.unfinished"]
    inodes = {path: path.stat().st_ino for path in kept_of(out)}
    # As where DVC was killed before it had recorded the stage.
    (project / "dvc.lock").unlink()
    shutil.rmtree(project / ".dvc" / "cache" / "runs")
    said = repro(project, stage, kill=False)
    assert re.search(KEPT[stage].replace(r"(\d+)", WHOLE[stage]), said), said
    assert {path: path.stat().st_ino for path in kept_of(out)} == inodes, "nothing is made twice"
    command = ["capgrade", stage, *shlex.split(COMMANDS[stage]), "--out", f"whole/{stage}"]
    subprocess.run(command, check=True, capture_output=True)
    whole = {path.name: path.read_bytes() for path in (project / "whole" / stage).iterdir()}
    names = ("model.safetensors", "steps.csv") if stage == "train" else whole
    assert all((out / name).read_bytes() == whole[name] for name in names)


def test_other_parameters_lose_what_depends_on_them(project: Path) -> None:
    """The size of shards none; what is lost is said, and stays until the new run has ended."""
    path = project / "dvc.yaml"
    blocks = "--set shards.block_images=2"
    repro(project, "shards", kill=True)
    path.write_text(path.read_text().replace(blocks, f"{blocks} --set shards.target_mb=1"))
    assert re.search(KEPT["shards"], repro(project, "shards", kill=False))
    for top, kill in ((5, True), (6, False)):
        with_top = rf"--set shards.top={top} --out data/shards"
        path.write_text(
            re.sub("(--set shards.top=5 )?--out data/shards", with_top, path.read_text())
        )
        said = repro(project, "shards", kill)
    assert "data/shards: unfinished work (" in said, said
    assert "of other parameters or inputs (shards.top 5 -> 6) stays in" in said
    assert len(list(project.glob("data/*.unfinished/*"))) == 1, "that of the run that has ended"


def test_a_file_that_is_there_is_made_again_without_force(project: Path) -> None:
    """DVC deletes what a stage wrote before it runs it again, so that its command stays as it is."""
    path, out = project / "dvc.yaml", project / "data" / "df.arrow"
    pipeline = yaml.safe_load(path.read_text())
    command = "capgrade frequencies --captions captions --out data/df.arrow"
    pipeline["stages"]["frequencies"] = {"cmd": command, "outs": ["data/df.arrow"]}
    path.write_text(yaml.safe_dump(pipeline, width=10_000))
    again = ["dvc", "repro", "--force", "frequencies"]
    for _ in range(2):
        subprocess.run(again, cwd=project, check=True, capture_output=True)
        assert out.is_file()
    done = subprocess.run(command.split(), cwd=project, capture_output=True)
    assert done.returncode == 2 and b"df.arrow: a file is there -> give --force" in done.stderr
