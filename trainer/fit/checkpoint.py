"""A run's folder: the model with all that is needed to use it, the history of its epochs, and the
state that a stopped run goes on from."""

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from capgrade.pickles import read_torch
from capgrade.pretrained import fingerprint, require_here
from capgrade.schemas.errors import InputError, check_choice
from capgrade.schemas.files import (
    MANIFEST,
    atomic,
    check_sizes,
    file_digest,
    inside,
    parse_manifest,
    write_json,
    write_manifest,
    write_text,
)
from capgrade.schemas.lines import csv_text, read_json
from capgrade.schemas.say import warn
from capgrade.trainer.data.text import Tokens, Vocabulary, load_tokens
from capgrade.trainer.fit import (
    CONFIG,
    EPOCHS,
    IMAGES,
    MODEL,
    STATE,
    STEPS,
    SUMMARY,
    VOCABULARY,
)
from capgrade.trainer.models import configure, model_of
from capgrade.trainer.models.alignment import Pooling
from capgrade.trainer.models.base import Config, RetrievalModel
from capgrade.trainer.models.cvse import XAVIER
from capgrade.trainer.models.text_encoder import ENGLISH
from capgrade.trainer.stages.train import ENCODERS, TRAIN, ModelFiles, TrainParams

AFRESH = "start afresh with --restart"
_Row = Mapping[str, float]
# By name what has a `state_dict`: model, optimiser, schedule, average. None stands for no average.
Parts = Mapping[str, Any]


def _best_model_file(best_by: str) -> str:
    """The file of the best epoch by another measure than `train.best_by` (`train.also_best_by`)."""
    return f"model-{best_by}.safetensors"


def best_files(params: TrainParams) -> dict[str, str]:
    """The files of a run's best epochs, by the measures that choose them."""
    files: dict[str, str] = {params.best_by: MODEL}
    if params.also_best_by:
        files[params.also_best_by] = _best_model_file(params.also_best_by)
    return files


def require_model(file: Path) -> None:
    """InputError where the model of an earlier epoch, which a run's state relies on, is missing or
    damaged."""
    try:
        load_file(file)
    except (SafetensorError, OSError) as error:
        why = "damaged" if file.is_file() else "missing"
        problem = f"the model of the best epoch is {why}"
        raise InputError(problem, file=file, remedy=AFRESH) from error


def save_model(out: Path, model: RetrievalModel, name: str = MODEL) -> None:
    tensors = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in model.state_dict().items()
    }
    with atomic(out / name) as temporary:
        temporary.write_bytes(save(tensors))


def load_run(
    folder: Path, pooling: str | None = None, weights: str = MODEL
) -> tuple[RetrievalModel, Tokens, dict[str, Any]]:
    """A trained model in eval mode, its tokens, and the run's configuration. With `pooling` a TERN
    or TERAN is a TERAN with that pooling. `weights` is a file of the run, see `weights_of`.

    Raises InputError where the folder is not a run, its model has another configuration or no such
    pooling, or what it reads beside its weights is not what it was trained with.
    """
    config = read_config(folder)
    name, options, dim = config["params"]["model"]["name"], config["model"], config["feature_dim"]
    file = _model_file(folder, weights)
    if pooling is not None:
        if name not in ("tern", "teran"):
            problem = f"a run of '{name}' has no pooling to choose"
            raise InputError(problem, file=folder, remedy="leave out embed.pooling")
        # A TERAN has the parameters of a TERN, so that it takes the weights of either.
        name = "teran"
        options = {**options, "pooling": check_choice("pooling", pooling, get_args(Pooling))}
    tokens = load_tokens(folder / VOCABULARY)
    model_config = configure(name, options, dim, options.get("classes", 0))
    _require_same_files(folder, config, model_config, tokens)
    model = model_of(name)(model_config, dim, tokens.size)
    try:
        model.load_state_dict(load_file(file))
    except (SafetensorError, RuntimeError) as error:
        problem = f"not the model of {CONFIG} ({str(error).splitlines()[-1].strip()})"
        raise InputError(problem, file=file, remedy="restore the file, or train again") from error
    return model.eval(), tokens, config


def model_inputs(config: Config) -> dict[str, str]:
    """Digests of the files of a model: a pretrained text or dual encoder, a list of stop words, and
    pretrained word vectors."""
    named = {name: getattr(config, name, None) for name in ModelFiles.model_fields}
    return {name: _digest_of(name, value) for name, value in named.items() if _is_file(value)}


def _is_file(value: Any) -> bool:
    """Whether an option of `ModelFiles` names a file or a model that is not a part of ours."""
    return value not in (None, ENGLISH, XAVIER)


def _digest_of(option: str, value: Any) -> str:
    return fingerprint(value) if option in ENCODERS else file_digest(Path(value))


def _require_same_files(
    folder: Path, config: Mapping[str, Any], model_config: Config, tokens: Tokens
) -> None:
    """InputError where an encoder or a list of stop words is not the one that `train` recorded
    among its inputs. Word vectors are not read again."""
    for option in (*ENCODERS, "stop_words"):
        if (recorded := config.get("inputs", {}).get(option)) is None:
            continue
        named = [getattr(model_config, option, None)]
        if option in ENCODERS and not isinstance(tokens, Vocabulary):
            named.append(tokens.model)  # it is what makes tokens or vectors of captions
        for value in dict.fromkeys(filter(_is_file, named)):
            if _digest_of(option, value) == recorded:
                continue
            problem = f"the run was trained with another {option} than '{value}' is now"
            remedy = "give back the one it was trained with"
            if recorded.startswith(f"{value} "):  # a model of the hub, at a commit
                remedy += f" ({recorded})"
            raise InputError(problem, file=folder / CONFIG, remedy=f"{remedy}, or train again")


def weights_of(folder: Path, best_by: str | None = None) -> str:
    """The name of the file with a run's best model by `best_by`; None: by `train.best_by`.
    InputError where there is no such file."""
    is_main = best_by in (None, read_config(folder)["params"].get("best_by"))
    return _model_file(folder, MODEL if is_main else _best_model_file(str(best_by))).name


def read_config(folder: Path) -> dict[str, Any]:
    """A run's config.json. InputError for another content, and for a pretrained model that is not
    on this machine."""
    config = read_json(folder / CONFIG)
    try:
        name, dim = config["params"]["model"]["name"], config["feature_dim"]
        pretrained = [config["model"].get(option) for option in ENCODERS]
        inputs = list(config.get("inputs", {}).values())
    except (KeyError, TypeError, AttributeError):
        name, dim, pretrained, inputs = None, -1, [], []
    are_names = all(isinstance(model, str | None) for model in pretrained)
    are_names &= all(isinstance(digest, str) for digest in inputs)
    if not (isinstance(name, str) and isinstance(dim, int) and dim >= 0 and are_names):
        problem, remedy = "not the configuration of a run", "restore it, or train again"
        raise InputError(problem, file=folder / CONFIG, remedy=remedy)
    for model in pretrained:
        require_here(model, folder / CONFIG)
    return dict(config)


def _model_file(folder: Path, name: str) -> Path:
    if not inside(name):
        remedy = "run `capgrade embed` again"
        raise InputError(f"{name!r} is not a file of the run", file=folder, remedy=remedy)
    if not (folder / name).is_file():
        remedy = "finish the run: capgrade train"
        if name != MODEL:
            remedy = "train it with train.also_best_by"
        raise InputError("no model yet", file=folder / name, remedy=remedy)
    return folder / name


def require_dim(trained: int, dim: int, file: Path) -> None:
    """InputError for features of another length than in training, which are another detector's."""
    if dim != trained:
        problem = f"{dim} numbers per region, {trained} in training"
        raise InputError(problem, file=file, remedy="use the detector of the training")


def finish_run(folder: Path, summary: dict[str, Any]) -> None:
    """Write the summary of a run that has ended, and its manifest with the digests of its files.
    The state is among them, so that the run can go on for more epochs."""
    write_json(folder / SUMMARY, summary)
    config = read_json(folder / CONFIG)
    names = {path.name for path in folder.glob("model*.safetensors")}
    rows = dict.fromkeys(
        names | {MODEL, CONFIG, VOCABULARY, IMAGES, SUMMARY, STATE, STEPS, EPOCHS}, 0
    )
    made_with = {TRAIN.name: config["params"]}
    write_manifest(folder, TRAIN.name, params=made_with, inputs=config["inputs"], rows=rows)


def find_state(
    folder: Path, out: Path, key: str
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The summary of a finished run, None for others, and the state to go on from: that of the
    stopped run in `folder`, which is of this key by its name, else that of the finished run in
    `out`. Both are None without a run. InputError for a finished run of another key, missing files,
    and a file that is not a state."""
    if (folder / STATE).is_file():
        return None, _read_state(folder / STATE)
    if not (out / MANIFEST).is_file():
        return None, None
    check_sizes(out, parse_manifest(out / MANIFEST, AFRESH)["files"], AFRESH)
    state = _read_state(out / STATE)
    if state["key"] == key:
        return read_json(out / SUMMARY), state
    if (folder / CONFIG).is_file():  # it was started with --restart, and stopped in its first epoch
        return None, None
    problem = "this folder holds a run of other parameters or data"
    raise InputError(problem, file=out / STATE, remedy=f"give another --out, or {AFRESH}")


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = read_torch(path)
        if not (isinstance(state, dict) and "key" in state):
            raise TypeError("no key")
    except (InputError, TypeError) as error:
        problem = f"not a state to go on from ({type(error).__name__})"
        raise InputError(problem, file=path, remedy=AFRESH) from error
    return state


def copy_weights(model: RetrievalModel, file: Path, strict: bool) -> list[str]:
    """Copy the weights in the file of a run that have the model's names and sizes; returns the
    names of all other weights.

    Raises InputError for a damaged file, where nothing fits, and, with `strict`, where anything
    does not fit.
    """
    try:
        weights = load_file(file)
    except (SafetensorError, OSError) as error:
        raise InputError(f"not a model ({error})", file=file, remedy="train it again") from error
    own = model.state_dict()
    fits = {
        name: value
        for name, value in weights.items()
        if name in own and own[name].shape == value.shape
    }
    names = own.keys() | weights.keys()
    others = sorted(names - fits.keys())
    first = ", ".join(others[:8]) + (", ..." if len(others) > 8 else "")
    if not fits or (others and strict):
        problem = f"{len(others)} of {len(names)} weights do not match: {first}"
        remedy = "start from a run of the same model, or set train.init_strict=false"
        raise InputError(problem, file=file, remedy=remedy)
    model.load_state_dict(fits, strict=False)
    if others:
        note = f"train.init: {len(fits)} weights are those of {file}"
        warn(f"{note}, {len(others)} do not match and start afresh: {first}")
    return others


class History:
    """The finished epochs of a run that trains in a folder; it goes on from `state`, which is None
    for a new run."""

    def __init__(self, out: Path, folder: Path, key: str, state: dict[str, Any] | None) -> None:
        self.out, self.folder, self.key, self._state = out, folder, key, state
        past = json.loads(state["history"]) if state else {"epochs": [], "steps": []}
        self.epochs: list[dict[str, float]] = past["epochs"]
        self.steps: list[tuple[int, float, float]] = [tuple(row) for row in past["steps"]]

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return len(self.epochs)

    def restore(self, parts: Parts, device: torch.device) -> None:
        """Restore the parts and random states of the end of the last epoch; that of a GPU only
        where a GPU computes again."""
        if self._state is None:
            return
        for name, part in parts.items():
            if part is not None:
                part.load_state_dict(self._state[name])
        torch.set_rng_state(self._state["rng"])
        if device.type == "cuda" and self._state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(self._state["cuda_rng"], device)
        self._state = None

    def best_is_last(self, best_by: str) -> bool:
        """Whether the last epoch is the best, or there is no best."""
        best = _best(self.epochs, best_by)
        return bool(self.epochs) and (best is None or best["epoch"] == self.epoch)

    def is_finished(self, params: TrainParams) -> bool:
        """Whether the run has all its epochs, or has not become better for `patience` of them.

        Raises InputError where it has more epochs, because the model of an earlier one is lost.
        """
        ends = None
        for n in range(1, self.epoch + 1):
            best = _best(self.epochs[:n], params.best_by)
            is_stale = False
            if params.patience is not None and best is not None:
                is_stale = n - best["epoch"] >= params.patience
            if is_stale or n >= params.epochs:
                ends = n
                break
        if ends is None or ends == self.epoch:
            return ends is not None
        problem = (
            f"this run has trained {self.epoch} epochs, train.epochs and train.patience stop it"
            f" after {ends}"
        )
        remedy = f"ask for {self.epoch} epochs or more, give another --out, or {AFRESH}"
        raise InputError(problem, file=self.out, remedy=remedy)

    def save(self, parts: Parts, device: torch.device) -> None:
        """Write the state, steps.csv and epochs.csv."""
        rows = [(step, *row) for step, row in enumerate(self.steps)]
        steps = csv_text(("step", "epoch", "loss", "lr"), rows, "\r\n")
        epochs = csv_text(list(self.epochs[0]), [list(row.values()) for row in self.epochs], "\r\n")
        write_text(self.folder / STEPS, steps)
        write_text(self.folder / EPOCHS, epochs)
        # On a CPU the state is not asked for, because that would take a GPU's memory.
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        # As a text, because pickle tells names that were read from equal ones of this process.
        history = json.dumps({"epochs": self.epochs, "steps": self.steps})
        state: dict[str, Any] = {"key": self.key, "history": history}
        state |= {name: None if part is None else part.state_dict() for name, part in parts.items()}
        state |= {"rng": torch.get_rng_state(), "cuda_rng": cuda}
        # By its path torch would put the name of the temporary file into the file.
        with atomic(self.folder / STATE) as temporary, temporary.open("wb") as file:
            torch.save(state, file)

    def summary(self, params: TrainParams) -> dict[str, Any]:
        """The number of epochs, the best of them, and the last loss."""
        best = _best(self.epochs, params.best_by)
        return {
            "key": self.key,
            "model": params.model.name,
            "preset": params.preset,
            "epochs": self.epoch,
            "loss": self.epochs[-1]["loss"],
            **({} if best is None else {"best": best}),
        }


def _best(epochs: Sequence[_Row], best_by: str) -> _Row | None:
    """The epoch of the best validation, the first of equal ones; None without a validation."""
    if not epochs or best_by not in epochs[0]:
        return None
    return max(epochs, key=itemgetter(best_by))
