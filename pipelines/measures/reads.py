"""The files that measures read beside the captions, and their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from capgrade.pipelines.measures.embeddings import fingerprint
from capgrade.pipelines.measures.meteor.data import JAR, PARAPHRASES, meteor_folder
from capgrade.pipelines.measures.spice import jars
from capgrade.schemas.captions import FILE
from capgrade.schemas.errors import InputError
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.params import MeasuresParams

Digests = Iterator[tuple[str, str]]


def read_by(names: Sequence[str], params: MeasuresParams) -> dict[str, str]:
    """SHA-256 of every file that the named measures read, by the parameter that names it or, of an installed package,
    by the file's name. InputError when one is missing."""
    return {key: sha for name in names for key, sha in _reads(name, params)}


def require_read(names: Sequence[str], params: MeasuresParams, inputs: Mapping[str, Any], made: Path) -> None:
    """InputError where a file that the named measures read is another one than `inputs` of the manifest in `made` say:
    what is computed now would not fit what is stored there."""
    for key, sha in read_by(names, params).items():
        if inputs.get(key) != sha:
            problem = f"{key} is another file than these labels were made with"
            raise InputError(problem, file=made, remedy="put that file back, or make the labels again")


def _reads(name: str, params: MeasuresParams) -> Digests:
    if name in params.imported:
        yield f"measures.imported.{name}", file_digest(Path(params.imported[name]))
    elif name in params.all_mixtures:
        yield from read_by(list(params.all_mixtures[name]), params).items()
    elif name in _READS:
        yield from _READS[name](params)


def _frequencies(name: str, source: str | None) -> Digests:
    """FOLDER and FOLDER#split by the captions in it, of which the split is a part."""
    if source is not None:
        folder = Path(source.partition("#")[0])
        path = folder / FILE if folder.is_dir() else Path(source)
        yield f"measures.{name}.document_frequency", file_digest(path)


def _model(params: MeasuresParams) -> Digests:
    yield "measures.sbert.model", fingerprint(params.sbert.model)


def _meteor(*files: str) -> Digests:
    folder = meteor_folder()
    return ((Path(name).name, file_digest(folder / name)) for name in files)


_READS: Mapping[str, Callable[[MeasuresParams], Digests]] = {
    "cider": lambda params: _frequencies("cider", params.cider.document_frequency),
    "cider_plain": lambda params: _frequencies("cider_plain", params.cider_plain.document_frequency),
    "sbert": _model,
    "sbert_mean": _model,
    "sbert_shared": _model,
    "sbert_shared_mean": _model,
    "meteor": lambda _: _meteor(JAR, PARAPHRASES),
    "scene_graph": lambda _: _meteor(JAR),
    "spice": lambda _: ((path.name, file_digest(path)) for path in jars()),
}
