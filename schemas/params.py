"""How params.yaml is read: YAML, presets and changes on the command line; and the blocks of
commands that are no stage. Unknown keys and wrong values are refused with one error."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BeforeValidator,
    Field,
)

from capgrade.schemas.block import (
    QUOTED,
    MeasureDevice,
    Natural,
    ParamsBlock,
    Positive,
    listed,
)
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.lines import read_text
from capgrade.schemas.natures import (
    How,
    Where,
    WhereOrName,
)
from capgrade.schemas.reading import reason_of

# the papers' values by name; params.yaml adds others
PRESETS = Path(__file__).with_name("presets.yaml")


class ScoreParams(ParamsBlock):
    """`capgrade score`: tokenizer of the captions, and the bootstrap of intervals and p-values."""

    tokenizer: str = "ptb_py"
    """as pycocoevalcap; or another of captions.tokenizer"""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """of the intervals"""
    samples: Positive = 1000
    """bootstrap draws"""
    seed: Natural = 0


class ExploreParams(ParamsBlock):
    """`capgrade explore`: what the page shows beside the labels, and how pairs to rate are chosen
    (`explore sample`)."""

    detector: str | None = None
    """for uploaded pictures: scenes or bottom_up, with the settings of `regions`"""
    judgements: WhereOrName | None = None
    """people's scores, as `agree` reads them"""
    host: How[str] = "127.0.0.1"
    """address to listen on; the default is this machine only"""
    port: How[Annotated[int, Field(ge=0, le=65535)]] = 7860
    """0 takes a free one"""
    count: Positive = 100
    """sample: pairs; with --run, missed queries of ten pairs each"""
    direction: Literal["i2t", "t2i"] = "i2t"
    """sample --run: whose misses: i2t of images, t2i of captions"""
    gallery: Positive | None = None
    """sample --run: search the first so many images alone"""
    seed: Natural = 0
    """sample: of the drawing and of each reviewer's order"""
    pool: Positive | None = None
    """sample: so many best of each label and similarity, unsure and random pairs"""
    similarity: tuple[Where, ...] = ()
    """models' similarity matrices: on the pages, or of a pool"""


class JudgeParams(ParamsBlock):
    """`capgrade judge`: what is asked, how fast, and at what price."""

    prompt: Annotated[tuple[WhereOrName, ...], BeforeValidator(listed)] = ()
    """YAML files of what is asked, or names of those that come with capgrade; of several each is a
    row of the table"""
    parallel: How[Annotated[int, Field(ge=1, le=256)]] = 4
    """requests at a time"""
    per_minute: How[Annotated[float, Field(ge=0.01)] | None] = None
    """most requests per minute"""
    price_in: Annotated[float, Field(ge=0)] = 0.0
    """of a million tokens sent"""
    price_out: Annotated[float, Field(ge=0)] = 0.0
    """of a million tokens answered"""
    retries: How[Natural] = 2
    """of a connection that fails; what is answered is never asked again"""
    timeout: How[Annotated[float, Field(ge=0.1)]] = 60.0
    """seconds that a whole answer may take"""
    device: How[MeasureDevice] = "cpu"
    """of a model in this process"""


def with_preset(
    train: dict[str, Any], more: dict[str, Any], file: Path | None = None
) -> dict[str, Any]:
    """The block `train` upon the preset it names, which may stand upon another (`base`); mappings
    are merged, lists and values replaced. InputError for an unknown preset, listing the known ones,
    and for a circle."""
    known = {**shipped_presets(), **more}
    layers, name = [train], train.get("preset")
    while name is not None:
        name = str(name)
        if not isinstance(known.get(name), dict):
            raise InputError(
                f"unknown preset '{name}'",
                file=file,
                remedy=choose_from(name, sorted(known), "capgrade list presets"),
            )
        if len(layers) > len(known):
            raise InputError(
                f"preset '{name}' stands upon itself", file=file, remedy="mend its base"
            )
        layers.append(known[name])
        name = known[name].get("base")
    found: dict[str, Any] = {}
    for layer in reversed(layers):
        found = merged(found, {key: value for key, value in layer.items() if key != "base"})
    return found


@cache
def shipped_presets() -> dict[str, Any]:
    """The presets that come with capgrade, by name, as they stand in the file."""
    return yaml.safe_load(PRESETS.read_text(encoding="utf-8"))


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` upon `below`: mappings are merged, lists and values replaced."""
    both = {**below, **above}
    for key, value in above.items():
        if isinstance(value, dict | None) and isinstance(below.get(key), dict):
            both[key] = merged(below[key], value or {})
    return both


_MOST_VALUES = 1_000_000  # of a YAML file; a few lines of aliases may stand for more


class _Loader(yaml.SafeLoader):
    """Of a key that stands twice in a mapping, YAML would keep the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names = [
            key.value
            for key, _ in node.value
            if isinstance(key, yaml.ScalarNode) and key.value != "<<"
        ]
        if twice := [name for k, name in enumerate(names) if name in names[:k]]:
            raise yaml.YAMLError(
                f"'{twice[0]}' stands twice in one block, in line {node.start_mark.line + 1} or"
                " below"
            )
        return node

    def construct_scalar(self, node: Any) -> Any:
        """JSON writes a sign beyond 16 bits as the two halves that UTF-16 has of it; YAML would
        keep them apart."""
        return super().construct_scalar(node).encode("utf-16", "surrogatepass").decode("utf-16")


def read_yaml(path: Path) -> dict:
    """The mapping in a YAML file. InputError for another file."""
    tree = _parsed(read_text(path), file=path) or {}
    if not isinstance(tree, dict):
        raise InputError(
            "not a mapping of names to values",
            file=path,
            remedy="begin it with a block, such as shards:",
        )
    return tree


def _parsed(text: str, what: str = "", file: Path | None = None) -> Any:
    try:
        tree = yaml.load(text, _Loader)
        if _count_values(tree, {}) > _MOST_VALUES:
            raise ValueError(f"it stands for more than {_MOST_VALUES:,} values")
    except Exception as error:  # a date that no calendar has, a tag of another type, no end
        raise InputError(
            f"{what}not valid YAML: {reason_of(error)}", file=file, remedy=QUOTED
        ) from error
    return tree


def _count_values(tree: Any, counts: dict[int, int]) -> int:
    """How many values a tree has when its aliases are written out; `counts` are those of parts that
    are counted already."""
    if not isinstance(tree, dict | list):
        return 1
    if id(tree) not in counts:
        counts[id(tree)] = 1  # while its parts are counted, as it may contain itself
        parts = [*tree, *tree.values()] if isinstance(tree, dict) else tree
        counts[id(tree)] = 1 + sum(_count_values(part, counts) for part in parts)
    return counts[id(tree)]


def override(tree: dict, given: str) -> None:
    """Set one value of a tree of blocks, as `--set a.b.c=VALUE`. InputError for something else."""
    key, equals, text = given.partition("=")
    if not equals:
        raise InputError(
            f"'{given}' is not KEY=VALUE", remedy="write --set measures.sbert.references=mean"
        )
    put(tree, key, _parsed(text, f"'{given}' is "))


def put(tree: dict, key: str, value: Any) -> None:
    """Set one value of a tree of blocks, by its key a.b.c. InputError where a block should stand
    and a value does."""
    *parents, last = key.split(".")
    for parent in parents:
        if tree.get(parent) is None:
            tree[parent] = {}
        tree = tree[parent]
        if not isinstance(tree, dict):
            raise InputError(f"'{key}': '{parent}' is a value, not a block")
    tree[last] = value
