"""`python -m research.benchmarks`: our time beside other libraries'."""

from importlib import import_module
from typing import Annotated, Any

import typer

from capgrade.pipelines.options import (
    COMMON_OPTIONS,
    CaptionsDir,
    CommonOptions,
    Measures,
    load,
    parse_measures,
    print_result,
    refuse_options,
    require_all,
)
from capgrade.schemas.block import validated
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.params import override
from research.benchmarks.harness import Asked, BenchParams, show
from research.command import run_command

# Modules beside this one, with the default of --measures; "" for one that takes no measures.
BENCHES = {
    "gates": "",
    "corpus": "",
    "relevance": "cider,rouge_l,sbert",
    "score": "",
    "shards": "cider,rouge_l,sbert",
    "start": "",
    "hosts": "",
}


def bench(
    name: Annotated[str, typer.Argument(metavar="BENCHMARK", help=f"One of {', '.join(BENCHES)}.")],
    captions: CaptionsDir,
    measures: Measures = None,
    common: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Time us beside another library in one process, and print the largest difference of results.

    `gates` prints speed and memory, with MS-COCO 5K as --captions, beside what they must reach.
    What else a benchmark reads is `--set bench.KEY=VALUE`, keys of `BenchParams`.
    """
    if name not in BENCHES:
        raise InputError(f"no benchmark '{name}'", remedy=choose_from(name, BENCHES))
    default = BENCHES[name]
    if not default:
        refuse_options(f"with {name}", measures=measures)
    tree: dict[str, Any] = {"bench": {}}
    sets = list[str]()
    for text in common.sets or []:
        if text.startswith("bench."):
            override(tree, text)
        else:
            sets.append(text)
    of_bench = validated(BenchParams, tree["bench"])
    loaded = load(common.params, sets)
    names = parse_measures(measures or default) if default else ()
    if of_bench.embeddings is None:
        require_all(measures=names)
    request = Asked(captions, names, loaded, of_bench, common.params, sets)
    rows = import_module(f"research.benchmarks.{name}").bench(request)
    if common.as_json:
        print_result(rows, True)
    else:
        show(name, rows)


def main() -> None:
    """Run a benchmark, as the command line asks."""
    run_command("research.benchmarks", bench, "relevance --captions captions --measures cider")


if __name__ == "__main__":
    main()
