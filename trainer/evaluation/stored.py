"""What an evaluation keeps of each query, and of what its values are: per_query.npz."""

import json
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from capgrade.comparison import WHOLE, Basis
from capgrade.evaluation import Evaluated, Evaluation
from capgrade.metrics.formats import DIRECTIONS
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, read_manifest
from capgrade.schemas.lines import read_json
from capgrade.trainer.stages.evaluate import EVALUATE

METRICS_FILE, PER_QUERY_FILE = "metrics.json", "per_query.npz"
_OWNER, _LABELS, _IDS = "owner", "labels", "ids/"  # beside the values, DIRECTION/METRIC


def write_queries(path: Path, evaluation: Evaluation) -> None:
    """Values of each query, ids of images and captions, the image of each caption, and digests of
    the labels."""
    basis = evaluation.basis
    arrays = {
        f"{direction}/{name}": values
        for direction, found in evaluation.scored.items()
        for name, values in found.values.items()
    }
    arrays |= {f"{_IDS}{what}": names for what, names in basis.ids.items()}
    labels = json.dumps({"measure": basis.measure, "labels": dict(basis.labels)})
    owner = evaluation.t2i.groups[0]
    assert owner is not None, "a task knows the image of each caption"
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file, allow_pickle=False, **{_OWNER: owner, _LABELS: np.array(labels)}, **arrays
        )


def read_evaluation(folder: Path) -> Evaluation:
    """The values of each query of an evaluation folder, over the whole set, and its agreement with
    judgements. InputError for a folder
    that is not finished, and for a file that lacks what a comparison goes by."""
    read_manifest(folder, EVALUATE.name)
    try:
        with np.load(folder / PER_QUERY_FILE) as stored:
            arrays = {name: stored[name] for name in stored.files}
        labels = json.loads(str(arrays.pop(_LABELS)))
        owner = arrays.pop(_OWNER)
        ids = {
            name.removeprefix(_IDS): arrays.pop(name)
            for name in list(arrays)
            if name.startswith(_IDS)
        }
        basis = Basis(ids, labels["labels"], labels["measure"])
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        problem = f"no values of queries with their ids ({type(error).__name__}: {error})"
        raise InputError(
            problem, file=folder / PER_QUERY_FILE, remedy="run capgrade evaluate --out again"
        ) from error
    scored = {
        direction: Evaluated(
            [
                {
                    name.partition("/")[2]: np.asarray(values, np.float64)
                    for name, values in arrays.items()
                    if name.startswith(f"{direction}/")
                }
            ],
            groups=[owner if direction == "t2i" else None],
        )
        for direction in DIRECTIONS
    }
    judgements = read_json(folder / METRICS_FILE).get("judgements", {})
    return Evaluation(WHOLE, scored, {}, basis=basis, judgements=judgements)


def count_averaged(inputs: Mapping[str, str]) -> int:
    """How many similarities were averaged: 1 for one, or for embeddings."""
    return max(1, sum(name.startswith("similarity ") for name in inputs))
