"""A run's folder: the model with what it takes to use it or to start from it, and the state a run goes on from."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from capgrade.metrics.base import check_choice
from capgrade.pretrained import require_here
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (  # fmt: skip
    MANIFEST,
    atomic,
    check_size,
    inside,
    package_version,
    parse_manifest,
    read_json,
    write_json,
    write_manifest,
)
from capgrade.schemas.params import TrainParams
from capgrade.schemas.pickles import read_torch
from capgrade.schemas.say import warn
from capgrade.trainer.data.text import Tokens, load_tokens
from capgrade.trainer.fit import CONFIG, EPOCHS, MODEL, STATE, STEPS, SUMMARY, VOCABULARY
from capgrade.trainer.models import build, configure
from capgrade.trainer.models.alignment import Pooling
from capgrade.trainer.models.base import Config, RetrievalModel

AFRESH = "start afresh with --restart"


def begin(
    folder: Path, out: Path, params: TrainParams, config: Config, tokens: Tokens, feature_dim: int,
    inputs: dict[str, str], afresh: bool,
) -> None:  # fmt: skip
    """Before a run trains in `folder`: for a new run all goes that an earlier one left there; one that goes on from a
    finished one in `out` begins with a copy of its files. Then what it is: parameters, vocabulary, and the digests of
    what it reads."""
    for path in folder.iterdir() if afresh else ():
        if path.is_file():
            path.unlink()
    if not afresh and not (folder / STATE).is_file():
        names = parse_manifest(out / MANIFEST, AFRESH)["files"].keys() - {SUMMARY}
        for name in sorted(names, key=STATE.__eq__):  # the state last
            shutil.copyfile(out / name, folder / name)
    tokens.save(folder / VOCABULARY)
    content = {"params": params.model_dump(mode="json"), "model": asdict(config), "feature_dim": feature_dim}
    write_json(folder / CONFIG, {**content, "inputs": inputs, "package": package_version()})


def also(best_by: str) -> str:
    """The file of the best epoch by another measure than `train.best_by` (`train.also_best_by`)."""
    return f"model-{best_by}.safetensors"


def save_model(out: Path, model: RetrievalModel, name: str = MODEL) -> None:
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    with atomic(out / name) as temporary:
        save_file(tensors, temporary)


def load_run(
    folder: Path, pooling: str | None = None, weights: str = MODEL
) -> tuple[RetrievalModel, Tokens, dict[str, Any]]:
    """A trained model in eval mode, how it reads captions, and the run's configuration. With `pooling` a TERN or TERAN
    scores by that alignment of its regions and words, whatever it was trained for; `weights` is a file of the run, see
    `weights_of`.

    Raises InputError when the folder is no run, or its model is of another configuration or has no such pooling.
    """
    config = read_config(folder)
    name, options, dim = config["params"]["model"]["name"], config["model"], config["feature_dim"]
    file = _model(folder, weights)
    if pooling is not None:  # TERAN has the parameters of TERN
        if name not in ("tern", "teran"):
            raise InputError(f"a run of '{name}' has no pooling to choose", file=folder, remedy="leave out --pooling")
        name, options = "teran", {**options, "pooling": check_choice("pooling", pooling, get_args(Pooling))}
    tokens = load_tokens(folder / VOCABULARY)
    made = build(name, configure(name, options, dim, options.get("classes", 0)), dim, tokens.size)
    try:
        made.load_state_dict(load_file(file))
    except (SafetensorError, RuntimeError) as error:
        problem = f"not the model of {CONFIG} ({str(error).splitlines()[-1].strip()})"
        raise InputError(problem, file=file, remedy="restore the file, or train again") from error
    return made.eval(), tokens, config


def weights_of(folder: Path, best_by: str | None = None) -> str:
    """The name of the file with a run's best model by a measure; None: by `train.best_by`. InputError when there is no
    such file."""
    first = best_by in (None, read_config(folder)["params"].get("best_by"))
    return _model(folder, MODEL if first else also(str(best_by))).name


def read_config(folder: Path) -> dict[str, Any]:
    """What `begin` wrote. InputError for anything else, and for a pretrained model that is not here."""
    config = read_json(folder / CONFIG)
    try:
        name, dim = config["params"]["model"]["name"], config["feature_dim"]
        pretrained = [config["model"].get(option) for option in ("text_model", "pretrained")]
    except (KeyError, TypeError, AttributeError):
        name, dim, pretrained = None, -1, []
    texts = all(isinstance(one, str | None) for one in pretrained)
    if not (isinstance(name, str) and isinstance(dim, int) and dim >= 0 and texts):
        raise InputError("not the configuration of a run", file=folder / CONFIG, remedy="restore it, or train again")
    for model in pretrained:
        require_here(model, folder / CONFIG)
    return dict(config)


def _model(folder: Path, name: str) -> Path:
    if not inside(name):
        remedy = "run `capgrade evaluate --run` again"
        raise InputError(f"{name!r} is not a file of the run", file=folder, remedy=remedy)
    if not (folder / name).is_file():
        remedy = "finish the run: capgrade train" if name == MODEL else "train it with train.also_best_by"
        raise InputError("no model yet", file=folder / name, remedy=remedy)
    return folder / name


def require_dim(trained: int, given: int, file: Path) -> None:
    """InputError for regions of another detector than that of the training, by the length of their features."""
    if given != trained:
        problem = f"{given} numbers per region, {trained} in training"
        raise InputError(problem, file=file, remedy="use the detector of the training")


def finished(out: Path, key: str) -> dict[str, Any] | None:
    """The summary of a finished run of this key, None where none has ended. InputError for a run of another key, and
    for one whose files are not all there."""
    if not (out / MANIFEST).is_file():  # written last
        return None
    manifest = parse_manifest(out / MANIFEST, AFRESH)
    if manifest["kind"] != "run":
        raise InputError(f"this folder holds {manifest['kind']}", file=out, remedy="give another --out")
    for name, entry in manifest["files"].items():
        check_size(out / name, entry["bytes"], AFRESH)
    summary = read_json(out / SUMMARY)
    _require(key, summary.get("key"), out / SUMMARY)
    return summary


def finish(folder: Path, summary: dict[str, Any]) -> None:
    """A run has ended: its summary, and the digests of its files; the state among them, for more epochs."""
    write_json(folder / SUMMARY, summary)
    config = read_json(folder / CONFIG)
    names = {path.name for path in folder.glob("model*.safetensors")}  # other best models too
    rows = dict.fromkeys(names | {MODEL, CONFIG, VOCABULARY, SUMMARY, STATE, STEPS, EPOCHS}, 0)
    write_manifest(folder, "run", params=config["params"], inputs=config["inputs"], rows=rows)


def _require(key: str, given: Any, path: Path) -> None:
    if given != key:
        remedy = f"give another --out, or {AFRESH}"
        raise InputError("this folder holds a run of other parameters or data", file=path, remedy=remedy)


def load_state(out: Path, key: str) -> dict[str, Any] | None:
    """The state of an interrupted run, None at the start. InputError when it belongs to another configuration."""
    path = out / STATE
    if not path.is_file():
        return None
    try:
        state = read_torch(path)
        given = state["key"]
    except (InputError, KeyError, TypeError) as error:
        raise InputError(f"not a state to go on from ({type(error).__name__})", file=path, remedy=AFRESH) from error
    _require(key, given, path)
    return state


def left(folder: Path, out: Path, key: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What there is of a run: the summary of a finished one, and the state to go on from, that of a stopped one first.
    InputError as `finished` and `load_state`."""
    if (state := load_state(folder, key)) is not None:
        return None, state
    return finished(out, key), load_state(out, key)


def start_from(model: RetrievalModel, file: Path, strict: bool) -> list[str]:
    """Copy the weights in the file of a run that have the model's names and sizes; returns the names of the others.

    Raises InputError for a damaged model, where nothing fits, and, with `strict`, where anything does not.
    """
    try:
        known = load_file(file)
    except (SafetensorError, OSError) as error:
        raise InputError(f"not a model ({error})", file=file, remedy="train it again") from error
    own = model.state_dict()
    fits = {name: value for name, value in known.items() if name in own and own[name].shape == value.shape}
    others = sorted((own.keys() | known.keys()) - fits.keys())
    some = ", ".join(others[:8]) + (", ..." if len(others) > 8 else "")
    if not fits or (others and strict):
        problem = f"{len(others)} of {len(own.keys() | known.keys())} weights do not match: {some}"
        remedy = "start from a run of the same model, or set train.init_strict=false"
        raise InputError(problem, file=file, remedy=remedy)
    model.load_state_dict(fits, strict=False)
    if others:
        told = f"{len(others)} do not match and start afresh: {some}"
        warn(f"train.init: {len(fits)} weights are those of {file}, {told}")
    return others
