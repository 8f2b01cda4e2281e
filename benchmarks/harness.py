"""What all benchmarks share: what they are asked, how work is timed, and the one table that shows
their figures."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from capgrade.params import Params
from capgrade.schemas.console import console, print_table
from capgrade.schemas.params import BenchParams
from capgrade.schemas.times import peak_mb

ROUNDS = 3  # the best is taken, of ours and of the peer's: other work on the machine only adds time
_DIM = 384  # of the product, as of all-MiniLM-L6-v2
# references that the product takes at a time, and at most; more count in proportion
_ROWS, PRODUCT_ROWS = (
    1280,
    12_800,
)
_T = TypeVar("_T")
Rows = dict[str, dict[str, Any]]  # by what was timed, its figures by name
Texts = Mapping[Any, list[str]]  # by image: references, or one candidate
# of references and candidates: the corpus' score, and each image's
_Scorer = Callable[[Texts, Texts], tuple[Any, Any]]
# pycocoevalcap's scorers
COCO = {
    "bleu": "Bleu",
    "cider": "Cider",
    "meteor": "Meteor",
    "rouge_l": "Rouge",
}


@dataclass(frozen=True)
class Asked:
    """What a benchmark may read. `sets` and `params_file` are what the parameters came from, for
    other processes."""

    captions: Path
    measures: tuple[str, ...]
    params: Params
    params_file: Path | None = None
    sets: Sequence[str] = ()

    @property
    def bench(self) -> BenchParams:
        """The parameters of benchmarks."""
        return self.params.bench


class Round(NamedTuple):
    """Seconds of a piece of work: by the clock, and of the processor, to which other work on the
    machine adds less."""

    seconds: float
    processor: float


def once(work: Callable[..., _T], *arguments: Any) -> tuple[Round, _T]:
    """How long a piece of work takes, and its result."""
    start, busy = time.perf_counter(), time.process_time()
    result = work(*arguments)
    return Round(time.perf_counter() - start, time.process_time() - busy), result


def best(work: Callable[[], _T]) -> tuple[float, _T]:
    """Seconds of the best of three runs, after one that warms up and compiles kernels, and the
    result."""
    work()
    rounds = [once(work) for _ in range(ROUNDS)]
    return min(took.seconds for took, _ in rounds), rounds[-1][1]


def product_seconds(n_captions: int) -> float:
    """Seconds of numpy's float32 product of as many unit vectors with themselves, block by
    block."""
    vectors = np.random.default_rng(0).standard_normal((n_captions, _DIM), np.float32)
    multiplied = min(n_captions, PRODUCT_ROWS)
    vectors[:_ROWS] @ vectors.T

    def multiply() -> None:
        for at in range(0, multiplied, _ROWS):
            vectors[at : min(at + _ROWS, multiplied)] @ vectors.T

    return once(multiply)[0].seconds * n_captions / multiplied


def coco_scorer(name: str) -> _Scorer:
    """One of pycocoevalcap's, by our name of the measure. METEOR's jar has started and read its
    data."""
    kind = COCO[name]
    scorer = getattr(import_module(f"pycocoevalcap.{kind.lower()}.{kind.lower()}"), kind)()
    score = partial(scorer.compute_score, verbose=0) if name == "bleu" else scorer.compute_score
    if name == "meteor":
        score({0: ["a dog"]}, {0: ["a dog"]})
    return score


def show(title: str, rows: Rows) -> None:
    """Print the figures as a table, the longer list down the page, and below it the processor, how
    many there are, and the most memory that this process has had."""
    figures = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = [[_cell(row.get(name)) for name in figures] for row in rows.values()]
    down, across = list(rows), figures
    if len(figures) > len(rows):
        down, across, cells = (
            figures,
            list(rows),
            [list(column) for column in zip(*cells, strict=True)],
        )
    lines = [[name.replace("_", " "), *line] for name, line in zip(down, cells, strict=True)]
    print_table(title, ["", *(name.replace("_", " ") for name in across)], lines)
    cpu = Path("/proc/cpuinfo")
    names = (
        re.search(r"model name\s*: (.*)", cpu.read_text(encoding="utf-8"))
        if cpu.is_file()
        else None
    )
    said = (
        f"{names[1] if names else 'processor'} x {os.cpu_count()}; peak memory {peak_mb():,.0f} MB"
    )
    console().print(said, highlight=False)


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:.3g}"
    )
