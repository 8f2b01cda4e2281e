"""`capgrade bench`: our time beside another library's, in one process."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from capgrade.pipelines.cli.options import (
    COMMON_OPTIONS,
    CommonOptions,
    Measures,
    OptionalCaptions,
    load,
    names_of,
    refuse,
    require_all,
    say,
)
from capgrade.schemas.errors import InputError

# Modules of capgrade.benchmarks, the options that each reads, and the measures that it times unless others are named.
BENCHES: dict[str, tuple[str, str]] = {
    "gates": ("captions", ""),
    "corpus": ("captions", ""),
    "relevance": ("captions measures", "cider,rouge_l,sbert"),
    "score": ("captions", ""),
    "shards": ("captions measures", "cider,rouge_l,sbert"),
    "start": ("captions", ""),
    "tops": ("captions measures", "cider,meteor"),
    "train": ("", ""),
}


def bench(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHES)}.")],
    captions: OptionalCaptions = None,
    measures: Measures = None,
    given: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Time us beside another library in one process, and print the largest difference of results.

    `gates` prints speed and memory, with MS-COCO 5K as --captions, beside what they must reach. What else a benchmark
    reads is `--set bench.KEY=VALUE` (docs/reference.md).
    """
    if name not in BENCHES:
        raise InputError(f"no benchmark '{name}'", remedy=f"choose from: {', '.join(BENCHES)}")
    reads, default = BENCHES[name]
    inputs = {"captions": captions, "measures": measures}
    refuse(f"with bench {name}", **{option: value for option, value in inputs.items() if option not in reads.split()})
    if lacks := [one for one in reads.split() if inputs[one] is None and one != "measures"]:
        raise InputError(f"bench {name} without --{lacks[0]}", remedy=f"give --{lacks[0]} DIR")
    from capgrade.benchmarks.harness import Asked, show

    known = load(given.params, given.sets)
    names = names_of(measures or default) if default else ()
    if known.bench.embeddings is None:
        require_all(measures=names)
    asked = Asked(captions or Path(), names, known, given.params, given.sets or [])
    rows = import_module(f"capgrade.benchmarks.{name}").bench(asked)
    if given.as_json:
        say(rows, True)
    else:
        show(f"bench {name}", rows)
