"""METEOR 1.5 by the jar that pycocoevalcap carries, to compare with: `meteor` gives the same values without Java.

Some hundred pairs a second a process. Every pair that has been scored is kept in `$CAPGRADE_CACHE/meteor.sqlite`, so
nothing is scored twice, in whatever order and run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capgrade.pipelines.measures.base import ArrayState, leaves_out
from capgrade.pipelines.measures.embeddings import cache_folder
from capgrade.pipelines.measures.language import warn_unless_english
from capgrade.pipelines.measures.meteor import caption_lines
from capgrade.pipelines.measures.meteor.data import JAR, meteor_folder
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.params import MeteorJavaParams

BATCH = 500  # pairs between two savings


@dataclass(frozen=True)
class FittedMeteorJava(ArrayState):
    """The captions as METEOR's lines."""

    ref_ptr: np.ndarray  # int64 [n_images + 1]
    refs: np.ndarray  # int64 [n_captions]
    text: np.ndarray  # uint8: the lines in UTF-8, one after the other
    line_ptr: np.ndarray  # int64 [n_captions + 1]
    processes: int
    leave_out: bool

    def score(self, images: np.ndarray, captions: np.ndarray | None = None) -> np.ndarray:
        """METEOR, 0..1, float32 [len(images), n_captions or len(captions)]. InputError when the jar fails."""
        columns = np.arange(len(self.line_ptr) - 1) if captions is None else captions
        every = self.pairs(np.repeat(images, len(columns)), np.tile(columns, len(images)))
        return every.reshape(len(images), len(columns))

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """METEOR of image images[k] and caption captions[k], float32 [n]."""
        lines = [
            self._request(image, caption) for image, caption in zip(images.tolist(), captions.tolist(), strict=True)
        ]
        return np.array(scores(lines, self.processes), np.float32)

    def _request(self, image: int, caption: int) -> str:
        references = self.refs[self.ref_ptr[image] : self.ref_ptr[image + 1]].tolist()
        others = [self._line(r) for r in references if not (self.leave_out and r == caption)]
        return " ||| ".join(["SCORE", *others, self._line(caption)])

    def _line(self, caption: int) -> str:
        return bytes(self.text[self.line_ptr[caption] : self.line_ptr[caption + 1]]).decode()


class MeteorJava:
    """METEOR as pycocoevalcap's `meteor/meteor.py` calls the jar (`-l en -norm`), 0..1."""

    low, high = 0.0, 1.0

    def __init__(self, params: MeteorJavaParams) -> None:
        self.params = params

    def fit(self, captions: Captions) -> FittedMeteorJava:
        """InputError without Java or the jar, or when `left_out` leaves an image without references."""
        leave_out = leaves_out(self.params.self_reference, captions)
        warn_unless_english("meteor_java", captions)
        _command()
        lines = [line.encode() for line in caption_lines(captions)]
        ends = np.cumsum([len(line) for line in lines])
        text = np.frombuffer(b"".join(lines), np.uint8)
        line_ptr = np.concatenate([[0], ends])
        processes = self.params.processes or os.cpu_count() or 1
        return FittedMeteorJava(captions.ref_ptr, captions.refs, text, line_ptr, processes, leave_out)


def _command() -> list[str]:
    java = shutil.which("java")
    if java is None:
        raise InputError(
            "meteor_java needs Java", remedy="install a Java runtime >= 8, or use meteor (the same values)"
        )
    jar = str(meteor_folder() / JAR)
    return [java, "-Dfile.encoding=UTF-8", "-Xmx2G", "-jar", jar, "-", "-", "-stdio", "-l", "en", "-norm"]


def scores(requests: Sequence[str], processes: int) -> list[float]:
    """What the jar answers to `SCORE ||| reference ||| ... ||| caption` lines, from the cache where it is known.

    Raises InputError when a process of the jar ends early or answers anything but a score.
    """
    path = cache_folder().parent / "meteor.sqlite"
    with _cache_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return _scores(requests, processes, path)


@contextmanager
def _cache_errors(path: Path) -> Iterator[None]:
    """InputError about the cache where it cannot be read or written."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        remedy = "set CAPGRADE_CACHE to a folder that may be written, or delete this file; it only saves time"
        raise InputError(f"METEOR's cache cannot be used ({error})", file=path, remedy=remedy) from error


def _scores(requests: Sequence[str], processes: int, path: Path) -> list[float]:
    with closing(sqlite3.connect(path, timeout=60)) as cache:
        cache.execute("CREATE TABLE IF NOT EXISTS scores (request BLOB PRIMARY KEY, score REAL NOT NULL) WITHOUT ROWID")
        jar = file_digest(meteor_folder() / JAR)  # another answers otherwise
        keys = [hashlib.sha256(f"{jar}\n{request}".encode()).digest() for request in requests]
        known = _known(cache, keys)
        missing = {key: line for key, line in zip(keys, requests, strict=True) if key not in known}
        for batch, found in _answers(list(missing.items()), processes):
            with cache:
                cache.executemany("INSERT OR IGNORE INTO scores VALUES (?, ?)", zip(batch, found, strict=True))
            known.update(zip(batch, found, strict=True))
    return [known[key] for key in keys]


def _known(cache: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, float]:
    found: dict[bytes, float] = {}
    for at in range(0, len(keys), BATCH):
        some = keys[at : at + BATCH]
        query = f"SELECT request, score FROM scores WHERE request IN ({','.join('?' * len(some))})"
        found.update(cache.execute(query, some).fetchall())
    return found


def _answers(missing: list[tuple[bytes, str]], processes: int) -> Iterator[tuple[list[bytes], list[float]]]:
    """Keys and scores, a batch at a time, from several processes."""
    batches = [missing[at : at + BATCH] for at in range(0, len(missing), BATCH)]
    jars = threading.local()
    started: list[_Jar] = []

    def answer(batch: list[tuple[bytes, str]]) -> list[float]:
        if not hasattr(jars, "mine"):
            jars.mine = _Jar()
            started.append(jars.mine)
        return jars.mine.scores([line for _, line in batch])

    threads = ThreadPoolExecutor(processes)
    try:
        for batch, found in zip(batches, threads.map(answer, batches), strict=True):
            yield [key for key, _ in batch], found
    finally:
        threads.shutdown(cancel_futures=True)
        for jar in started:
            jar.close()


class _Jar:
    """One process of the jar."""

    def __init__(self) -> None:
        pipe, self.said = subprocess.PIPE, tempfile.TemporaryFile()  # noqa: SIM115, closed by close
        self.process = subprocess.Popen(_command(), stdin=pipe, stdout=pipe, stderr=self.said, cwd=meteor_folder())

    def scores(self, requests: Sequence[str]) -> list[float]:
        """First the statistics of every pair, then one EVAL of them all: a score each and one of all together."""
        statistics = self._ask(requests, len(requests))
        answers = self._ask([" ||| ".join(["EVAL", *statistics])], len(requests) + 1)
        found = [float(answer) for answer in answers[:-1]]
        if not all(0 <= score <= 1 for score in found):
            raise InputError("METEOR's jar answered a score outside 0..1", remedy="use meteor")
        return found

    def _ask(self, lines: Sequence[str], answers: int) -> list[str]:
        """Lines of numbers. Written by a thread of its own: the jar answers before it has read everything."""
        writer = threading.Thread(target=self._write, args=("\n".join(lines) + "\n",), daemon=True)
        writer.start()
        found = [self._answer() for _ in range(answers)]
        writer.join()
        return found

    def _answer(self) -> str:
        line = self.process.stdout.readline().decode()  # type: ignore[union-attr]
        if not line.endswith("\n"):
            self.process.kill()
            status = self.process.wait()
            self.said.seek(0)
            said = self.said.read().decode(errors="replace").split("\n")[0] or "no message"
            raise InputError(f"METEOR's jar ended with status {status}: {said}", remedy="use meteor")
        try:
            [float(number) for number in line.split()]
        except ValueError:
            raise InputError(f"METEOR's jar answered '{line.strip()}'", remedy="use meteor") from None
        return line.strip()

    def _write(self, text: str) -> None:
        with suppress(OSError):  # a dead process: the reader sees that no answer comes
            self.process.stdin.write(text.encode())  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def close(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.said):
            with suppress(OSError):  # what a dead process did not take
                pipe.close()  # type: ignore[union-attr]
        self.process.wait()
