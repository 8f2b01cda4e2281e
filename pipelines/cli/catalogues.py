"""`capgrade list`: the names that commands take, from the catalogues themselves."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import typer

from capgrade.pipelines.options import AsJson, print_result, require_all
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.extras import EXTRAS

Lines = dict[str, str]


def _first_sentence(documented: Any) -> str:
    paragraph = inspect.cleandoc(documented.__doc__ or "").partition("\n\n")[0]
    # A point within "eq. 5" or "et al. 2020" ends no sentence.
    return re.split(r"\. (?=[A-Z])", " ".join(paragraph.split()))[0].rstrip(".")


def _with_extra(line: str, modules: Iterable[str]) -> str:
    extras = dict.fromkeys(EXTRAS[module][0] for module in modules)
    return f"{line}; needs capgrade[{','.join(extras)}]" if extras else line


def _measures() -> Lines:
    from capgrade.measures import MEASURES
    from capgrade.measures.params import MeasuresParams

    lines = {
        name: _with_extra(_first_sentence(kind), kind.modules) for name, kind in MEASURES.items()
    }
    for name, weights in MeasuresParams().all_mixtures.items():
        needed = {module for part in weights for module in MEASURES[part].modules}
        lines[name] = _with_extra(f"Weighted sum of {', '.join(weights)}", sorted(needed))
    return lines


def _metrics() -> Lines:
    from capgrade.metrics.catalogue import CATALOGUE, MEANINGS, usage

    return {usage(name): MEANINGS[name] for name in CATALOGUE}


def _presets() -> Lines:
    from capgrade.schemas.params import shipped_presets, with_preset

    return {
        name: _summary(with_preset({"preset": name}, {}), preset.get("base"))
        for name, preset in shipped_presets().items()
    }


def _summary(train: Mapping[str, Any], base: str | None) -> str:
    """The model of a preset, its losses, and the preset that it changes."""
    losses = dict.fromkeys(term["name"] for term in train["loss"])
    changes = f"; changes {base}" if base else ""
    return f"model {train['model']['name']}, loss {' + '.join(losses)}{changes}"


def _sources() -> Lines:
    from capgrade.pipelines.sources import SOURCES, scenes

    needed = {"hub": ("datasets",)}
    lines = {"scenes": _first_sentence(scenes)}
    return lines | {
        name: _with_extra(_first_sentence(read), needed.get(name, ()))
        for name, read in SOURCES.items()
    }


def _detectors() -> Lines:
    from capgrade.pipelines.detectors import MEANINGS

    return {name: _with_extra(line, ["torch"]) for name, line in MEANINGS.items()}


def _losses() -> Lines:
    require_all("torch")
    from capgrade.losses import LOSSES

    return {name: _first_sentence(loss.function) for name, loss in LOSSES.items()}


def _models() -> Lines:
    require_all("torch")
    from capgrade.trainer.models import MODELS

    return {name: _first_sentence(kind) for name, kind in MODELS.items()}


def _parameters() -> Lines:
    from capgrade.params import Params
    from capgrade.schemas.keys import describe_keys

    return dict(describe_keys(Params))


KINDS: dict[str, Callable[[], Lines]] = {
    "measures": _measures,
    "metrics": _metrics,
    "presets": _presets,
    "sources": _sources,
    "detectors": _detectors,
    "losses": _losses,
    "models": _models,
    "parameters": _parameters,
}


def list_names(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.")],
    as_json: AsJson = False,
) -> None:
    """The names that options and parameters take, a line each: what it is, and which extra it
    needs."""
    if kind not in KINDS:
        raise InputError(f"no list of '{kind}'", remedy=choose_from(kind, KINDS))
    lines = KINDS[kind]()
    width = max(map(len, lines))
    text = "\n".join(f"{name:{width}}  {line}" for name, line in lines.items())
    print_result(lines, as_json, text)
