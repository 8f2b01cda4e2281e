"""SPICE's Java scorer, and what is asked of it.

The jar needs Stanford CoreNLP, which nobody may ship with it: two more jars in
`pycocoevalcap/spice/lib`. All of this is checked before anything is scored, and an answer that is
not one F-score a pair is an error, never a zero.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capgrade.measures.bars import refuse_bars
from capgrade.measures.base import OfReferences, reference_sets
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import package_folder
from capgrade.schemas.files import file_digest
from capgrade.text.language import warn_unless_english
from capgrade.text.tokens import tokens_of

if TYPE_CHECKING:
    from capgrade.measures.spice import SpiceParams

SPICE_JAR = "spice-1.0.jar"
CORENLP = ("lib/stanford-corenlp-3.6.0.jar", "lib/stanford-corenlp-3.6.0-models.jar")
OLDEST, NEWEST = 8, 14  # the jar writes its answer with Nashorn, which Java 15 removed
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True)
class FittedSpice(OfReferences):
    """The captions as lines of tokens, and how to start the scorer."""

    lines: list[str]
    folder: str
    memory: str
    cache: str | None
    batch: int

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`. InputError when the scorer fails."""
        out = np.empty(len(images), np.float32)
        for at in range(0, len(images), self.batch):
            part = slice(at, at + self.batch)
            out[part] = self._batch(images[part], captions[part])
        return out

    def _batch(self, images: np.ndarray, captions: np.ndarray) -> list[float]:
        with tempfile.TemporaryDirectory(prefix="spice") as name:
            asked, answer = Path(name, "pairs.json"), Path(name, "scores.json")
            items = []
            for k, (image, caption) in enumerate(zip(images, captions, strict=True)):
                own = self.refs[self.ref_ptr[image] : self.ref_ptr[image + 1]]
                references = [self.lines[r] for r in own if not (self.leave_out and r == caption)]
                items.append({"image_id": k, "test": self.lines[caption], "refs": references})
            asked.write_text(json.dumps(items), encoding="utf-8")
            options = [*self._cache_option(), "-out", str(answer), "-silent"]
            _run([str(asked), *options], self.memory, Path(self.folder))
            return _read_scores(answer, len(images))

    def _cache_option(self) -> list[str]:
        if self.cache is None:
            return []
        made_by = hashlib.sha256(
            "".join(file_digest(path) for path in jars()).encode()
        ).hexdigest()[:16]
        folder = Path(self.cache).expanduser().resolve() / made_by  # other jars parse otherwise
        folder.mkdir(parents=True, exist_ok=True)
        return ["-cache", str(folder)]


def fit(captions: Captions, params: SpiceParams) -> FittedSpice:
    """As `Spice.fit`."""
    sets = reference_sets(params.self_reference, captions)
    tokens = tokens_of(captions)
    warn_unless_english("spice", tokens)
    folder = _spice_folder()
    _require_java()
    refuse_bars(tokens, captions.caption_ids)
    lines = [" ".join(tokens.sentence(k)) for k in range(captions.n_captions)]
    return FittedSpice(*sets, lines, str(folder), params.memory, params.cache, params.batch)


def _spice_folder() -> Path:
    """The installed pycocoevalcap's folder of SPICE. InputError when a jar is missing."""
    folder = package_folder("pycocoevalcap.spice")
    if not (folder / SPICE_JAR).is_file():
        raise InputError(
            "SPICE's scorer is missing",
            file=folder / SPICE_JAR,
            remedy="install pycocoevalcap again",
        )
    for name in CORENLP:
        if not (folder / name).is_file():
            both = " and ".join(Path(jar).name for jar in CORENLP)
            remedy = f"put {both} of stanford-corenlp-full-2015-12-09.zip into {folder / 'lib'} "
            remedy += f"(get_stanford_models.py in {folder} downloads them), or use scene_graph"
            problem = "SPICE needs Stanford CoreNLP 3.6.0, and this jar of it is missing"
            raise InputError(problem, file=folder / name, remedy=remedy)
    return folder


def jars() -> list[Path]:
    """The files that a value depends on. InputError when one is missing."""
    folder = _spice_folder()
    return [folder / name for name in (SPICE_JAR, *CORENLP)]


def _require_java() -> None:
    """InputError unless `java` on PATH is of a version that SPICE runs on."""
    remedy = f"install a Java of version {OLDEST} to {NEWEST} and put it first on PATH, "
    remedy += "or use scene_graph"
    if shutil.which("java") is None:
        raise InputError("SPICE needs Java, and there is no 'java' on PATH", remedy=remedy)
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    version = _VERSION.search(done.stderr + done.stdout)
    if version is None:
        last_line = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise InputError(f"'java -version' told no version: {last_line}", remedy=remedy)
    if not OLDEST <= int(version[1]) <= NEWEST:
        raise InputError(
            f"SPICE does not run on Java {version[1]}: it needs what Java 15 removed", remedy=remedy
        )


def _run(arguments: list[str], memory: str, folder: Path) -> None:
    command = ["java", f"-Xmx{memory}", "-jar", str(folder / SPICE_JAR), *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        raise InputError(
            f"SPICE ended with status {done.returncode}: {_reason(done.stderr)}",
            remedy=f"run it by hand to see all it says: {' '.join(command[:4])}",
        )


def _reason(text: str) -> str:
    """The line of a Java failure that says what failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [
        line
        for line in lines
        if re.search(r"(Error|Exception)\b", line) and not line.startswith("at ")
    ]
    return (named or lines or ["it said nothing"])[-1][:300]


def _read_scores(path: Path, n_pairs: int) -> list[float]:
    """F-scores by pair number, from what the scorer wrote.

    InputError unless each pair has one, within 0..1.
    """
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
        scores = {item["image_id"]: item["scores"]["All"]["f"] for item in answer}
    except FileNotFoundError:
        raise InputError("SPICE ended without writing its scores", file=path) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"SPICE wrote no list of scores ({type(error).__name__}: {error})", file=path
        ) from error
    if len(answer) != n_pairs or set(scores) != set(range(n_pairs)):
        raise InputError(f"SPICE wrote {len(answer)} scores, for {n_pairs} pairs", file=path)
    for number, value in scores.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise InputError(f"SPICE of pair {number} is {value!r}: no F-score", file=path)
    return [float(scores[number]) for number in range(n_pairs)]
