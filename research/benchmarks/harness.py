"""What all benchmarks share: their request, the timing of work, and the table of their figures."""

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
from llvmlite.binding import get_host_cpu_features
from threadpoolctl import threadpool_info

from capgrade.params import Params
from capgrade.schemas.block import Natural, ParamsBlock, Positive
from capgrade.schemas.console import console, print_table
from capgrade.schemas.say import spoken_number
from research.benchmarks.usage import peak_mb

ROUNDS = 3  # The best round counts, because other work on the machine only adds time.
_DIM = 384  # numbers of a vector in the product, as in all-MiniLM-L6-v2
# Rows that the product takes at a time, and at most; the time of more is extrapolated.
_ROWS, PRODUCT_ROWS = 1280, 12_800
_T = TypeVar("_T")
Rows = dict[str, dict[str, Any]]  # what was timed -> its figures by name
Texts = Mapping[Any, list[str]]  # image -> its references, or one candidate
# References and candidates -> the corpus' score, and each image's.
_Scorer = Callable[[Texts, Texts], tuple[Any, Any]]
# pycocoevalcap's scorers by our names of the measures.
COCO = {"bleu": "Bleu", "cider": "Cider", "meteor": "Meteor", "rouge_l": "Rouge"}


class BenchParams(ParamsBlock):
    """`--set bench.KEY=VALUE`: sizes and inputs of the benchmarks, named in brackets."""

    split: str | None = None
    out: str | None = None
    """folder to write (corpus)"""
    images: Positive | None = None
    """to make (corpus)"""
    vectors: bool = False
    """also vectors.npy, stand-ins for sentence embeddings (corpus)"""
    embeddings: str | None = None
    """such a vectors.npy, if encoding would take too long (shards)"""
    pairs: Natural = 20_000
    """random pairs of the peer beside own ones; METEOR's: one an image (relevance, gates)"""
    authors: str | None = None
    """folder of clones of the authors' code (hosts)"""
    flickr: str | None = None
    """captions folder of Flickr30K's train split (gates)"""


@dataclass(frozen=True)
class Asked:
    """The request to a benchmark. `params_file` and `sets` made the parameters, and make them again
    in other processes."""

    captions: Path
    measures: tuple[str, ...]
    params: Params
    bench: BenchParams
    params_file: Path | None = None
    sets: Sequence[str] = ()


class Round(NamedTuple):
    """Seconds of a piece of work by the clock, and of processor time, to which other work on the
    machine adds less."""

    seconds: float
    processor: float


def once(work: Callable[..., _T], *arguments: Any) -> tuple[Round, _T]:
    """Do a piece of work once; returns its time and its result."""
    start, busy = time.perf_counter(), time.process_time()
    result = work(*arguments)
    return Round(time.perf_counter() - start, time.process_time() - busy), result


def best(work: Callable[[], _T]) -> tuple[float, _T]:
    """Do a piece of work to compile kernels, and then ROUNDS times; returns the seconds of the best
    round, and the result."""
    work()
    rounds = [once(work) for _ in range(ROUNDS)]
    return min(time.seconds for time, _ in rounds), rounds[-1][1]


def product_seconds(n_captions: int) -> float:
    """Seconds of numpy's float32 product of as many unit vectors with themselves, block by
    block."""
    vectors = np.random.default_rng(0).standard_normal((n_captions, _DIM), np.float32)
    n_rows = min(n_captions, PRODUCT_ROWS)
    vectors[:_ROWS] @ vectors.T  # The first product starts the threads.

    def multiply() -> None:
        for start in range(0, n_rows, _ROWS):
            vectors[start : min(start + _ROWS, n_rows)] @ vectors.T

    return once(multiply)[0].seconds * n_captions / n_rows


def coco_scorer(name: str) -> _Scorer:
    """A scorer of pycocoevalcap, by our name of the measure. METEOR's jar is started, so that it
    has read its data."""
    kind = COCO[name]
    scorer = getattr(import_module(f"pycocoevalcap.{kind.lower()}.{kind.lower()}"), kind)()
    score = partial(scorer.compute_score, verbose=0) if name == "bleu" else scorer.compute_score
    if name == "meteor":
        score({0: ["a dog"]}, {0: ["a dog"]})
    return score


def show(title: str, rows: Rows) -> None:
    """Print the figures as a table, the longer list down the page; then the name and number of
    processors, the instructions that numpy's products use, and the peak memory of this process."""
    figures = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = [[_cell(row.get(name)) for name in figures] for row in rows.values()]
    down, across = list(rows), figures
    if len(figures) > len(rows):
        down, across = across, down
        cells = [list(column) for column in zip(*cells, strict=True)]
    lines = [[name.replace("_", " "), *line] for name, line in zip(down, cells, strict=True)]
    print_table(title, ["", *(name.replace("_", " ") for name in across)], lines)
    cpu = Path("/proc/cpuinfo")
    text = cpu.read_text(encoding="utf-8") if cpu.is_file() else ""
    match = re.search(r"model name\s*: (.*)", text)
    processors = f"{match[1] if match else 'processor'} x {os.cpu_count()}"
    said = f"{processors}, {instructions()}; peak memory {peak_mb():,.0f} MB"
    console().print(said, highlight=False)


def instructions() -> str:
    """The widest vector instructions of the processor, and the kind of processor that numpy's BLAS
    has kernels for."""
    has = get_host_cpu_features()
    widest = next((name for name in ("avx512f", "avx2", "neon") if has.get(name)), "none of AVX2")
    blas = {one.get("architecture", "") for one in threadpool_info() if one["user_api"] == "blas"}
    return f"{widest}, BLAS for {' and '.join(sorted(blas)) or 'an unknown one'}"


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, int):
        return f"{value:,}"
    return spoken_number(value)
