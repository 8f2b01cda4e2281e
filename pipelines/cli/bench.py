"""`capgrade bench`: our time beside another library's, in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capgrade.pipelines.cli.needed import require_all
from capgrade.pipelines.cli.options import AsJson, Measures, ParamsFile, Sets, load, names_of, overrides, refuse, say
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.schemas.params import Params

app = typer.Typer()


@dataclass(frozen=True)
class Given:
    """What a benchmark may read."""

    captions: Path
    measures: str | None
    out: Path
    params: Params
    params_file: Path | None
    sets: list[str]

    def names(self, default: str) -> tuple[str, ...]:
        return names_of(self.measures or default)


Shown = tuple[dict[str, Any], Callable[[], object]]  # the result, and how it is shown: a text, or what prints it


def _metrics(given: Given) -> Shown:
    """Each metric's time beside eccv_caption, scikit-learn and scipy, on MS-COCO 5K."""
    from capgrade.benchmarks.metrics import bench, show

    found = bench(given.captions, given.params.bench.split)
    return found, lambda: show(found)


def _relevance(given: Given) -> Shown:
    """Pairs per second of each measure beside its peer, and the largest difference."""
    from capgrade.benchmarks.relevance import bench
    from capgrade.pipelines.cli.tables import bench_table

    asked = given.params.bench
    names = given.names("cider,rouge_l,sbert")
    found = bench(given.captions, names, given.params.measures, asked.split, asked.pairs, asked.device)
    return found, lambda: bench_table(found)


def _score(given: Given) -> Shown:
    """Scores of captions beside pycocoevalcap, the first caption of each image as candidate."""
    from capgrade.benchmarks.score import bench
    from capgrade.pipelines.cli.score_tables import bench_score_table

    found = bench(given.captions, given.params.bench.split)
    return found, lambda: bench_score_table(found)


def _regions(given: Given) -> Shown:
    """Pictures per second of the detector by step, and the share of what the machine can do."""
    from capgrade.benchmarks.regions import bench, show

    asked = given.params.bench
    if asked.pictures is None:
        raise InputError("no pictures", remedy="give --set bench.pictures=DIR")
    weights = asked.weights or ("random" if asked.detector == "bottom_up" else None)
    options = overrides("regions", {"detector": asked.detector, "weights": weights, "precision": asked.precision})
    params = load(given.params_file, [*given.sets, *options]).regions
    found = bench(Path(asked.pictures), params, limit=asked.limit)
    return found, lambda: show(found)


def _labels(given: Given) -> Shown:
    """What training takes from shards: how long they open, and their share of a VSE++ step; sizes of COCO-train."""
    from capgrade.benchmarks.labels import IMAGES, bench, show

    asked = given.params.bench
    found = bench(asked.batch, asked.images or IMAGES)
    return found, lambda: show(found)


def _train(given: Given) -> Shown:
    """Training steps of each model in pairs per second, beside the plain way; and each loss."""
    from capgrade.benchmarks.train import MODELS, bench, show

    asked = given.params.bench
    chosen = list(MODELS) if asked.models is None else list(asked.models)
    if unknown := sorted(set(chosen) - MODELS.keys()):
        raise InputError(f"no model '{unknown[0]}' to time", remedy=f"choose from: {', '.join(MODELS)}")
    found = bench(asked.batch, chosen, losses=asked.models is None)
    return found, lambda: show(found)


def _corpus(given: Given) -> Shown:
    """Makes any number of captions with the statistics of --captions, to time stages on; not for training."""
    from capgrade.benchmarks.corpus import corpus
    from capgrade.schemas.captions import read_captions

    asked = given.params.bench
    if asked.images is None:
        raise InputError("how many images?", remedy="give --set bench.images=N")
    real = read_captions(given.captions, asked.split)
    done = corpus(real, asked.images, given.out, asked.seed, asked.vectors, asked.per_image)
    made = f"{asked.per_image * asked.images:,} captions of {asked.images:,} images -> {given.out}"
    return done, lambda: made


def _shards(given: Given) -> Shown:
    """The whole stage: seconds, memory and output, beside the float32 product alone; equality with brute force."""
    from capgrade.benchmarks.shards import bench, show

    asked, names = given.params.bench, given.names("cider,rouge_l,sbert")
    vectors = None if asked.embeddings is None else Path(asked.embeddings)
    require_all(measures=() if vectors else names)
    found = bench(given.captions, names, asked.split, vectors, asked.compared, given.sets)
    return found, lambda: show(found)


def _start(given: Given) -> Shown:
    """What importing the stages takes, and what their first run compiles; give few captions."""
    from capgrade.benchmarks.start import bench, show

    found = bench(given.captions, given.params.bench.split)
    return found, lambda: show(found)


def _tops(given: Given) -> Shown:
    """A measure's search for its best captions, beside all pairs. METEOR has one."""
    from capgrade.benchmarks.tops import bench, show

    asked, names = given.params.bench, given.names("meteor")
    found = bench(given.captions, names, given.params.measures, asked.split, asked.top, asked.images or 512)
    return found, lambda: show(found)


BENCHES: dict[str, tuple[Callable[[Given], Shown], str]] = {  # and the options that it reads
    "corpus": (_corpus, "captions out"),
    "labels": (_labels, ""),
    "metrics": (_metrics, "captions"),
    "regions": (_regions, ""),
    "relevance": (_relevance, "captions measures"),
    "score": (_score, "captions"),
    "shards": (_shards, "captions measures"),
    "start": (_start, "captions"),
    "tops": (_tops, "captions measures"),
    "train": (_train, ""),
}


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHES)}.")],
    captions: Annotated[Path | None, typer.Option(help="Folder that `capgrade captions` wrote.")] = None,
    measures: Measures = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write, of `corpus`.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Time us beside another library in one process, and print the largest difference of results.

    What else a benchmark reads is `--set bench.KEY=VALUE` (docs/reference.md).
    """
    if name not in BENCHES:
        raise InputError(f"no benchmark '{name}'", remedy=f"choose from: {', '.join(BENCHES)}")
    run, reads = BENCHES[name]
    given = {"captions": captions, "measures": measures, "out": out}
    refuse(f"bench {name}", **{option: value for option, value in given.items() if option not in reads.split()})
    if lacks := [one for one in reads.split() if given[one] is None and one != "measures"]:
        raise InputError(f"bench {name} without --{lacks[0]}", remedy=f"give --{lacks[0]} DIR")
    asked = Given(captions or Path(), measures, out or Path(), load(params, sets), params, sets or [])
    found, show = run(asked)
    if as_json:
        say(found, True, "")
    elif isinstance(text := show(), str):
        typer.echo(text)
    if name == "tops" and not all(one["same"] for one in found.values()):
        raise InputError("these tops are not those of all pairs", file=captions, remedy="report it, please")
