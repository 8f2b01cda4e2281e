"""A run's folder: the model with what it takes to use it or to start from it, what has happened,
and the state it goes on from."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from capgrade.metrics.base import check_choice
from capgrade.pickles import read_torch
from capgrade.pretrained import require_here
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    atomic,
    check_sizes,
    inside,
    parse_manifest,
    write_json,
    write_manifest,
    write_text,
)
from capgrade.schemas.lines import csv_text, read_json
from capgrade.schemas.params import TrainParams
from capgrade.schemas.say import warn
from capgrade.trainer.data.text import Tokens, load_tokens
from capgrade.trainer.fit import CONFIG, EPOCHS, MODEL, STATE, STEPS, SUMMARY, VOCABULARY
from capgrade.trainer.models import configure, model_of
from capgrade.trainer.models.alignment import Pooling
from capgrade.trainer.models.base import RetrievalModel

AFRESH = "start afresh with --restart"
_Row = Mapping[str, float]
# what has a `state_dict`, by name: model, optimiser, schedule, average; None: there is none
Parts = Mapping[str, Any]


def also(best_by: str) -> str:
    """The file of the best epoch by another measure than `train.best_by` (`train.also_best_by`)."""
    return f"model-{best_by}.safetensors"


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
    """A trained model in eval mode, how it reads captions, and the run's configuration. With
    `pooling` a TERN or TERAN scores by that alignment of its regions and words, whatever it was
    trained for; `weights` is a file of the run, see `weights_of`.

    Raises InputError when the folder is no run, or its model is of another configuration or has no
    such pooling.
    """
    config = read_config(folder)
    name, options, dim = config["params"]["model"]["name"], config["model"], config["feature_dim"]
    file = _model(folder, weights)
    if pooling is not None:  # TERAN has the parameters of TERN
        if name not in ("tern", "teran"):
            problem = f"a run of '{name}' has no pooling to choose"
            raise InputError(problem, file=folder, remedy="leave out evaluate.pooling")
        name, options = (
            "teran",
            {**options, "pooling": check_choice("pooling", pooling, get_args(Pooling))},
        )
    tokens = load_tokens(folder / VOCABULARY)
    made = model_of(name)(
        configure(name, options, dim, options.get("classes", 0)), dim, tokens.size
    )
    try:
        made.load_state_dict(load_file(file))
    except (SafetensorError, RuntimeError) as error:
        problem = f"not the model of {CONFIG} ({str(error).splitlines()[-1].strip()})"
        raise InputError(problem, file=file, remedy="restore the file, or train again") from error
    return made.eval(), tokens, config


def weights_of(folder: Path, best_by: str | None = None) -> str:
    """The name of the file with a run's best model by a measure; None: by `train.best_by`.
    InputError when there is no such file."""
    first = best_by in (None, read_config(folder)["params"].get("best_by"))
    return _model(folder, MODEL if first else also(str(best_by))).name


def read_config(folder: Path) -> dict[str, Any]:
    """What a run says of itself. InputError for anything else, and for a pretrained model that is
    not here."""
    config = read_json(folder / CONFIG)
    try:
        name, dim = config["params"]["model"]["name"], config["feature_dim"]
        pretrained = [config["model"].get(option) for option in ("text_model", "pretrained")]
    except (KeyError, TypeError, AttributeError):
        name, dim, pretrained = None, -1, []
    texts = all(isinstance(one, str | None) for one in pretrained)
    if not (isinstance(name, str) and isinstance(dim, int) and dim >= 0 and texts):
        raise InputError(
            "not the configuration of a run",
            file=folder / CONFIG,
            remedy="restore it, or train again",
        )
    for model in pretrained:
        require_here(model, folder / CONFIG)
    return dict(config)


def _model(folder: Path, name: str) -> Path:
    if not inside(name):
        remedy = "run `capgrade evaluate --run` again"
        raise InputError(f"{name!r} is not a file of the run", file=folder, remedy=remedy)
    if not (folder / name).is_file():
        remedy = (
            "finish the run: capgrade train"
            if name == MODEL
            else "train it with train.also_best_by"
        )
        raise InputError("no model yet", file=folder / name, remedy=remedy)
    return folder / name


def require_dim(trained: int, given: int, file: Path) -> None:
    """InputError for regions of another detector than that of the training, by the length of their
    features."""
    if given != trained:
        problem = f"{given} numbers per region, {trained} in training"
        raise InputError(problem, file=file, remedy="use the detector of the training")


def finish(folder: Path, summary: dict[str, Any]) -> None:
    """A run has ended: its summary, and the digests of its files; the state among them, for more
    epochs."""
    write_json(folder / SUMMARY, summary)
    config = read_json(folder / CONFIG)
    names = {path.name for path in folder.glob("model*.safetensors")}  # other best models too
    rows = dict.fromkeys(names | {MODEL, CONFIG, VOCABULARY, SUMMARY, STATE, STEPS, EPOCHS}, 0)
    write_manifest(folder, "run", params=config["params"], inputs=config["inputs"], rows=rows)


def left(folder: Path, out: Path, key: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What there is of a run: the summary of a finished one, and the state to go on from, that of a
    stopped one first, which is of this key. InputError for a finished run of another one, for one
    whose files are not all there, and for a state that is none."""
    done, path = None, folder / STATE
    if not path.is_file():
        if not (out / MANIFEST).is_file():  # written last
            return None, None
        check_sizes(out, parse_manifest(out / MANIFEST, AFRESH)["files"], AFRESH)
        done, path = read_json(out / SUMMARY), out / STATE
    try:
        state = read_torch(path)
        given = state["key"]
    except (InputError, KeyError, TypeError) as error:
        raise InputError(
            f"not a state to go on from ({type(error).__name__})", file=path, remedy=AFRESH
        ) from error
    if (
        given != key and (folder / CONFIG).is_file()
    ):  # a start afresh was asked for, and stopped in its first epoch
        return None, None
    if given != key:
        remedy = f"give another --out, or {AFRESH}"
        raise InputError(
            "this folder holds a run of other parameters or data", file=path, remedy=remedy
        )
    return done, state


def done_epochs(folder: Path) -> str:
    """What of a stopped run is done, in words."""
    lines = (
        (folder / EPOCHS).read_text(encoding="utf-8").splitlines()[1:]
        if (folder / EPOCHS).is_file()
        else []
    )
    return f"{len(lines)} finished epochs"


def start_from(model: RetrievalModel, file: Path, strict: bool) -> list[str]:
    """Copy the weights in the file of a run that have the model's names and sizes; returns the
    names of the others.

    Raises InputError for a damaged model, where nothing fits, and, with `strict`, where anything
    does not.
    """
    try:
        known = load_file(file)
    except (SafetensorError, OSError) as error:
        raise InputError(f"not a model ({error})", file=file, remedy="train it again") from error
    own = model.state_dict()
    fits = {
        name: value
        for name, value in known.items()
        if name in own and own[name].shape == value.shape
    }
    others = sorted((own.keys() | known.keys()) - fits.keys())
    some = ", ".join(others[:8]) + (", ..." if len(others) > 8 else "")
    if not fits or (others and strict):
        problem = f"{len(others)} of {len(own.keys() | known.keys())} weights do not match: {some}"
        remedy = "start from a run of the same model, or set train.init_strict=false"
        raise InputError(problem, file=file, remedy=remedy)
    model.load_state_dict(fits, strict=False)
    if others:
        taken = f"train.init: {len(fits)} weights are those of {file}"
        warn(f"{taken}, {len(others)} do not match and start afresh: {some}")
    return others


class History:
    """Finished epochs of a run that trains in a folder. It goes on from `state` (`left`), None at
    the start."""

    def __init__(self, out: Path, folder: Path, key: str, state: dict[str, Any] | None) -> None:
        self.out, self.folder, self.key, self._state = out, folder, key, state
        self.epochs: list[dict[str, float]] = state["epochs"] if state else []
        self.steps: list[tuple[int, float, float]] = (
            [tuple(row) for row in state["steps"]] if state else []
        )

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return len(self.epochs)

    def restore(self, parts: Parts, device: torch.device) -> None:
        """Everything as it was when the last epoch ended; the random state of a GPU only where one
        computes again."""
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
        """Does the model of the last epoch stand for the run?"""
        best = _best(self.epochs, best_by)
        return bool(self.epochs) and (best is None or best["epoch"] == self.epoch)

    def over(self, params: TrainParams) -> bool:
        """Has the run as many epochs as it is to have, or nothing become better for `patience` of
        them?

        Raises InputError when it has more: a model of an earlier epoch cannot be had any more.
        """
        ends = next((n for n in range(1, self.epoch + 1) if _over(self.epochs[:n], params)), None)
        if ends is None or ends == self.epoch:
            return ends is not None
        problem = (
            f"this run has trained {self.epoch} epochs, train.epochs and train.patience stop it"
            f" after {ends}"
        )
        remedy = (
            f"ask for {self.epoch} epochs or more, give another --out, or start afresh with"
            " --restart"
        )
        raise InputError(problem, file=self.out, remedy=remedy)

    def save(self, parts: Parts, device: torch.device) -> None:
        """The state, and what there is to see of it: steps.csv and epochs.csv."""
        steps = csv_text(
            ("step", "epoch", "loss", "lr"), [(k, *row) for k, row in enumerate(self.steps)], "\r\n"
        )
        names = list(self.epochs[0])
        epochs = csv_text(names, [[row[name] for name in names] for row in self.epochs], "\r\n")
        write_text(self.folder / STEPS, steps)
        write_text(self.folder / EPOCHS, epochs)
        # asking takes a GPU's memory
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        states = {name: None if part is None else part.state_dict() for name, part in parts.items()}
        known = {"key": self.key, "epochs": self.epochs, "steps": self.steps}
        with atomic(self.folder / STATE) as temporary:
            torch.save(
                {**known, **states, "rng": torch.get_rng_state(), "cuda_rng": cuda}, temporary
            )

    def summary(self, params: TrainParams) -> dict[str, Any]:
        """How the run ended: epochs, the best of them, and the last loss."""
        best = _best(self.epochs, params.best_by)
        return {
            "key": self.key,
            "model": params.model.name,
            "preset": params.preset,
            "epochs": self.epoch,
            "loss": self.epochs[-1]["loss"],
            "pairs_per_s": self.epochs[-1]["pairs_per_s"],
            **({} if best is None else {"best": best}),
        }


def _best(epochs: Sequence[_Row], best_by: str) -> _Row | None:
    """The epoch of the best validation, the first of equal ones; None before any."""
    rows = [row for row in epochs if best_by in row]
    return max(rows, key=lambda row: row[best_by]) if rows else None


def _over(epochs: Sequence[_Row], params: TrainParams) -> bool:
    best = _best(epochs, params.best_by)
    stale = (
        params.patience is not None
        and best is not None
        and len(epochs) - best["epoch"] >= params.patience
    )
    return stale or len(epochs) >= params.epochs
