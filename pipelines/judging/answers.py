"""Answers on disk: one file per model and prompt, one line per answer, each on the disk before it counts."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from capgrade.pipelines.measures.embeddings import cache_folder
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, writing


@dataclass
class Answers:
    """Scores by the digest of what was asked. Several runs may add at the same time."""

    path: Path
    scores: dict[str, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of(model: str, prompt: str) -> Answers:
        """Those of this model to this prompt, in `$CAPGRADE_CACHE/judge`. InputError for a damaged file."""
        name = hashlib.sha256(f"{model}\0{prompt}".encode()).hexdigest()[:32]
        path = cache_folder().parent / "judge" / f"{name}.jsonl"
        return Answers(path, _read(path) if path.is_file() else {})

    def add(self, key: str, score: float, text: str) -> None:
        """Keep an answer; it is on the disk on return."""
        line = json.dumps({"key": key, "score": score, "text": text}, ensure_ascii=False).encode()
        with self.lock, writing(self.path, CACHE):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX)  # until it is closed
                end = file.seek(0, os.SEEK_END)
                if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                    file.write(b"\n")  # after a line that a crash cut short
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self.scores[key] = score


def _read(path: Path) -> dict[str, float]:
    """A line that does not end as one was cut short by a crash."""
    found = {}
    for row, text in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            line = json.loads(text) if text else None
        except ValueError as error:
            if text.startswith(b'{"key"'[: len(text)]) and not text.endswith(b"}"):
                continue
            raise InputError(f"not an answer ({error})", file=path, row=row, remedy="remove the line") from error
        if line is not None:
            found[str(line["key"])] = float(line["score"])
    return found
