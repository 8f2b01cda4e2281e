"""Runs of `capgrade shards` in a process of its own, with stand-in embeddings where real ones would take too long."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from capgrade.pipelines.measures.embeddings import (
    CHUNK,
    CUT,
    EMBEDDED,
    cache_folder,
    cache_name,
    embed,
    encode,
    load_encoder,
    unique_texts,
)
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.memory import peak_mb

OFTEN = 0.02  # seconds between looks at the memory of the stage
ENCODED = 2000  # captions that the encoder's rate is measured on


def run(
    captions_dir: Path, names: Sequence[str], split: str, out: Path, among: float | None, options: Sequence[str] = ()
) -> tuple[float, float]:
    """Seconds and peak megabytes of the stage; `among` None: values of all pairs. InputError when it fails."""
    command = [sys.executable, "-m", "capgrade.pipelines.cli", "shards", "--captions", str(captions_dir)]
    command += ["--out", str(out), "--measures", ",".join(names), "--split", split]
    command += [] if among is None else ["--set", f"shards.windows.among={among}"]
    command += options
    start = time.perf_counter()
    process, peak = subprocess.Popen(command, stdout=sys.stderr), 0.0
    while process.poll() is None:
        peak = max(peak, peak_mb(process.pid))
        time.sleep(OFTEN)
    if process.returncode:
        raise InputError(f"capgrade shards ended with status {process.returncode}", file=out)
    return time.perf_counter() - start, peak


@contextmanager
def embeddings(
    captions: Captions, names: Sequence[str], vectors: Path | None, scratch: Path
) -> Iterator[tuple[dict[str, float], np.ndarray | None]]:
    """The rate of the encoder, captions per second, and embeddings of all captions, stand-ins or real ones; meanwhile
    the stage reads its embeddings from a cache of its own."""
    if "sbert" not in names:
        yield {}, None
        return
    start = time.perf_counter()
    encode(load_encoder(EMBEDDED), captions.texts[:ENCODED])
    rate = {"encoded_per_s": min(ENCODED, captions.n_captions) / (time.perf_counter() - start)}
    table = np.load(vectors, mmap_mode="r", allow_pickle=False) if vectors else embed(captions.texts, EMBEDDED)
    if len(table) != captions.n_captions:
        problem = f"{len(table)} vectors for {captions.n_captions} captions"
        raise InputError(problem, remedy="make both with bench corpus")
    before = os.environ.get("CAPGRADE_CACHE")
    os.environ["CAPGRADE_CACHE"] = str(scratch)
    try:
        yield rate, table
    finally:
        os.environ.pop("CAPGRADE_CACHE")
        if before is not None:
            os.environ["CAPGRADE_CACHE"] = before


def store(texts: list[str], vectors: np.ndarray) -> None:
    """The vectors as if Sentence-BERT had made them; one text, one vector."""
    row = {text: k for k, text in enumerate(texts)}
    unique = unique_texts(texts)
    folder = cache_folder() / cache_name(unique, EMBEDDED)
    folder.mkdir(parents=True)
    for k, at in enumerate(range(0, len(unique), CHUNK)):
        rows = np.array([row[text] for text in unique[at : at + CHUNK]])
        np.save(folder / f"{k:05d}.npy", np.asarray(vectors[rows], np.float32))
    (folder / CUT).touch()
