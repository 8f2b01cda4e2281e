"""Runs killed with -9 at random moments: does what they leave hold, and is the end as if nothing had happened?

    python -m tests.tools.kill --moments 50 --seed 0

`capgrade relevance` and `capgrade shards` run on a small generated corpus, in this process's children. After each kill:
every finished part has its digest, every file that is not called a temporary one is whole, a manifest stands only on
whole files. While a run goes on: parts finished before keep their inode and time. At the end: every byte as of a run
left alone.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from capgrade.pipelines.verify import verify
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, WORK, digest, open_arrow

WORDS = [f"word{k}" for k in range(20)]
BLOCKS = {"relevance": 8, "shards": 4}  # images per block, so that a run has many parts
TWO = ("--", "--direct_num_workers=2", "--direct_running_mode=multi_processing")
KILLS = 8  # of one run, at most; then it is left to end
LONGEST = 60.0  # seconds that a run may take; one that hangs is counted and killed
Stamps = dict[Path, tuple[int, int]]


@dataclass
class Tally:
    """What happened, and what should not have."""

    moments: int = 0
    finished: int = 0
    kept: int = 0  # parts that a resumed run found finished
    temporaries: int = 0  # partial files left by a kill, all under temporary names
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """One command and where its undisturbed and its disturbed results are."""

    stage: str
    captions: Path
    folder: Path

    def command(self, out: Path, two: bool = False) -> list[str]:
        block = f"{self.stage}.block_images={BLOCKS[self.stage]}"
        arguments = ["--captions", str(self.captions), "--measures", "cider,rouge_l", "--set", block]
        run = [sys.executable, "-m", "capgrade.pipelines.cli", self.stage, *arguments, "--out", str(out)]
        return [*run, *(TWO if two else ())]

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def receipts(self) -> list[Path]:
        return sorted((self.out / WORK / "parts").glob("*.json"))


def corpus(folder: Path, images: int, seed: int) -> Path:
    """A captions folder of `images` images with up to six captions each."""
    draw = random.Random(seed)
    rows = ["image_id\tcaption"]
    for image in range(images):
        for _ in range(draw.randint(1, 6)):
            rows.append(f"i{image}\t{' '.join(draw.choices(WORDS, k=draw.randint(1, 24)))}")
    (folder / "c.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    command = ["captions", "--source", "tsv", "--input", str(folder / "c.tsv"), "--out", str(folder / "captions")]
    subprocess.run([sys.executable, "-m", "capgrade.pipelines.cli", *command], check=True, capture_output=True)
    return folder / "captions"


def kill_often(folder: Path, moments: int, seed: int, images: int = 60) -> Tally:
    """Kill runs of both stages until `moments` have been killed, and let each one end after about eight kills."""
    draw, tally = random.Random(seed), Tally()
    captions = corpus(folder, images, seed)
    for k, stage in enumerate(BLOCKS):
        case = Case(stage, captions, folder / stage)
        start = time.perf_counter()
        subprocess.run(case.command(folder / stage / "whole"), check=True, capture_output=True)
        took, target = time.perf_counter() - start, moments * (k + 1) // len(BLOCKS)
        while tally.moments < target:
            most = tally.moments + min(KILLS, target - tally.moments)
            while tally.moments < most and not _ended(case, draw, tally, took):
                pass
            if not (case.out / MANIFEST).is_file():
                _ended(case, draw, tally, None)
            _compare(case, tally)
            shutil.rmtree(case.out, ignore_errors=True)
    return tally


def _ended(case: Case, draw: random.Random, tally: Tally, took: float | None) -> bool:
    """Run and kill at a moment of `took` seconds, most often after a part was finished; None: run to the end.
    Parts that were finished before are looked at meanwhile. Has it ended by itself?"""
    before = _stamps(case)
    tally.kept += len(before)
    parts, seconds = float("inf"), float("inf")
    if took is not None and draw.random() < 0.6:  # most of a short run is its start
        parts = len(case.receipts()) + draw.randint(1, 4)
    elif took is not None:
        seconds = draw.uniform(0, 1.1 * took)
    process = subprocess.Popen(case.command(case.out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    start = time.perf_counter()
    while process.poll() is None and time.perf_counter() - start < seconds and len(case.receipts()) < parts:
        _unchanged(before, tally)
        time.sleep(0.005)
        if time.perf_counter() - start > LONGEST:
            tally.wrong.append(f"{case.stage} did not end in {LONGEST:g} s")
            break
    time.sleep(draw.uniform(0, 0.03))
    if process.poll() is None:
        process.kill()
        process.communicate()
        tally.moments += 1
        _inspect(case, tally)
        return False
    error = process.communicate()[1].decode()
    if process.returncode:
        tally.wrong.append(f"{case.stage} ended with {process.returncode}: {error.strip().splitlines()[-1:]}")
    tally.finished += process.returncode == 0
    return process.returncode == 0


def is_worker(pid: int) -> bool:
    """One of Beam's, not the shell that it is started by."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"sdk_worker" in command and not command.startswith(b"/bin/sh")


def descendants(pid: int) -> list[int]:
    """All processes that the threads of `pid` started, and theirs."""
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in listing.read_text(encoding="utf-8").split()]
        except OSError:
            continue
        found += [*children, *(pid for child in children for pid in descendants(child))]
    return found


def _stamps(case: Case) -> Stamps:
    """Inode and time of what is finished: parts with a receipt that is right, and the receipt."""
    found: Stamps = {}
    for receipt in case.receipts():
        parts = _parts(receipt)
        if all(_has(path, sha) for path, sha in parts.items()):
            found |= {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (receipt, *parts)}
    return found


def _parts(receipt: Path) -> dict[Path, str]:
    """The parts of a block and their digests, as its receipt has them."""
    block = receipt.stem.rstrip("-")
    found = json.loads(receipt.read_text(encoding="utf-8"))
    return {receipt.with_name(f"{block}-{name}.arrow"): sha for name, sha in found.items()}


def _has(path: Path, sha: str) -> bool:
    return path.is_file() and digest(path) == sha


def _unchanged(before: Stamps, tally: Tally) -> None:
    for path, stamp in before.items():
        try:
            now = path.stat()
        except FileNotFoundError:  # the run has ended
            continue
        if (now.st_ino, now.st_mtime_ns) != stamp:
            tally.wrong.append(f"{path.name} was computed again")
            before[path] = (now.st_ino, now.st_mtime_ns)


def _inspect(case: Case, tally: Tally) -> None:
    """What a kill left behind."""
    out = case.out
    tally.temporaries += len(list(out.rglob(".*.tmp")))
    for receipt in case.receipts():
        for path, sha in _parts(receipt).items():
            if not _has(path, sha):
                tally.wrong.append(f"{receipt.name} stands on another {path.name}")
    for path in out.rglob("*.arrow"):
        try:
            open_arrow(path)
        except InputError as error:
            tally.wrong.append(f"a partial file: {error}")
    if (out / MANIFEST).is_file():
        tally.wrong += [str(p) for p in verify(out).problems if "left by" not in p.problem]


def _compare(case: Case, tally: Tally) -> None:
    """The end of a disturbed run beside one left alone, byte by byte."""
    whole, out = (
        {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (case.folder / "whole", case.out)
    )
    different = sorted(name for name in whole.keys() | out.keys() if whole.get(name) != out.get(name))
    if different:
        tally.wrong.append(f"{case.stage}: other bytes in {', '.join(different)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--moments", type=int, default=50, help="kills in all")
    parser.add_argument("--seed", type=int, default=0, help="corpus and moments follow from it")
    parser.add_argument("--images", type=int, default=60, help="images of the corpus")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tally = kill_often(Path(folder), options.moments, options.seed, options.images)
    print(json.dumps({**asdict(tally), "seconds": round(time.perf_counter() - start)}, indent=2))
    sys.exit(1 if tally.wrong else 0)


if __name__ == "__main__":
    main()
