"""`capgrade bench`: our time beside another library's, in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from capgrade.pipelines.cli.options import (
    AsJson,
    Measures,
    OptionalCaptions,
    ParamsFile,
    Sets,
    load,
    names_of,
    overrides,
    refuse,
    require_all,
    say,
)
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.schemas.params import BenchParams, Params


@dataclass(frozen=True)
class Given:
    """What a benchmark may read."""

    captions: Path
    measures: str | None
    out: Path
    params: Params
    params_file: Path | None
    sets: list[str]

    @property
    def asked(self) -> BenchParams:
        return self.params.bench

    def names(self, default: str) -> tuple[str, ...]:
        return names_of(self.measures or default)


Shown = tuple[dict[str, Any], Callable[[dict[str, Any]], object]]  # the result, and what prints it or makes it a text


def _metrics(given: Given) -> Shown:
    """Each metric's time beside eccv_caption, scikit-learn and scipy, on MS-COCO 5K."""
    from capgrade.benchmarks.metrics import bench, show

    return bench(given.captions, given.asked.split), show


def _relevance(given: Given) -> Shown:
    """Pairs per second of each measure beside its peer, and the largest difference."""
    from capgrade.benchmarks.relevance import bench
    from capgrade.pipelines.cli.tables import bench_table

    asked, names = given.asked, given.names("cider,rouge_l,sbert")
    return bench(given.captions, names, given.params.measures, asked.split, asked.pairs, asked.device), bench_table


def _score(given: Given) -> Shown:
    """Scores of captions beside pycocoevalcap, the first caption of each image as candidate."""
    from capgrade.benchmarks.score import bench
    from capgrade.pipelines.cli.tables import bench_score_table

    return bench(given.captions, given.asked.split), bench_score_table


def _regions(given: Given) -> Shown:
    """Pictures per second of the detector by step, and the share of what the machine can do."""
    from capgrade.benchmarks.regions import bench, show

    asked = given.asked
    if asked.pictures is None:
        raise InputError("no pictures", remedy="give --set bench.pictures=DIR")
    weights = asked.weights or ("random" if asked.detector == "bottom_up" else None)
    options = overrides("regions", {"detector": asked.detector, "weights": weights, "precision": asked.precision})
    params = load(given.params_file, [*given.sets, *options]).regions
    return bench(Path(asked.pictures), params, limit=asked.limit), show


def _labels(given: Given) -> Shown:
    """What training takes from shards: how long they open, and their share of a VSE++ step; sizes of COCO-train."""
    from capgrade.benchmarks.labels import IMAGES, bench, show

    return bench(given.asked.batch, given.asked.images or IMAGES), show


def _train(given: Given) -> Shown:
    """Training steps of each model in pairs per second, beside the plain way; and each loss."""
    from capgrade.benchmarks.train import MODELS, bench, show

    models = given.asked.models
    if unknown := sorted(set(models or ()) - MODELS.keys()):
        raise InputError(f"no model '{unknown[0]}' to time", remedy=f"choose from: {', '.join(MODELS)}")
    return bench(given.asked.batch, list(MODELS if models is None else models), losses=models is None), show


def _corpus(given: Given) -> Shown:
    """Makes any number of captions with the statistics of --captions, to time stages on; not for training."""
    from capgrade.benchmarks.corpus import corpus
    from capgrade.schemas.captions import read_captions

    asked = given.asked
    if asked.images is None:
        raise InputError("how many images?", remedy="give --set bench.images=N")
    real = read_captions(given.captions, asked.split)
    done = corpus(real, asked.images, given.out, asked.seed, asked.vectors, asked.per_image)
    made = f"{asked.per_image * asked.images:,} captions of {asked.images:,} images -> {given.out}"
    return done, lambda _: made


def _shards(given: Given) -> Shown:
    """The whole stage: seconds, memory and output, beside the float32 product alone; equality with brute force."""
    from capgrade.benchmarks.shards import bench, show

    asked, names = given.asked, given.names("cider,rouge_l,sbert")
    vectors = None if asked.embeddings is None else Path(asked.embeddings)
    require_all(measures=() if vectors else names)
    return bench(given.captions, names, asked.split, vectors, asked.compared, given.sets), show


def _start(given: Given) -> Shown:
    """What importing the stages takes, and what their first run compiles; give few captions."""
    from capgrade.benchmarks.start import bench, show

    return bench(given.captions, given.asked.split), show


def _tops(given: Given) -> Shown:
    """A measure's search for its best captions, beside all pairs. METEOR has one."""
    from capgrade.benchmarks.tops import bench, show

    asked, names = given.asked, given.names("meteor")
    done = bench(given.captions, names, given.params.measures, asked.split, asked.top, asked.images or 512)
    return done, show


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


def bench(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHES)}.")],
    captions: OptionalCaptions = None,
    measures: Measures = None,
    out: Annotated[Path | None, Option(help="Folder to write, of `corpus`.")] = None,
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
    refuse(f"with bench {name}", **{option: value for option, value in given.items() if option not in reads.split()})
    if lacks := [one for one in reads.split() if given[one] is None and one != "measures"]:
        raise InputError(f"bench {name} without --{lacks[0]}", remedy=f"give --{lacks[0]} DIR")
    done, show = run(Given(captions or Path(), measures, out or Path(), load(params, sets), params, sets or []))
    if as_json:
        say(done, True)
    elif isinstance(text := show(done), str):
        typer.echo(text)
    if name == "tops" and not all(one["same"] for one in done.values()):
        raise InputError("these tops are not those of all pairs", file=captions, remedy="report it, please")
