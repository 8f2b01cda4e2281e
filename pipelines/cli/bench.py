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
    from capgrade.benchmarks.metrics import run, show

    asked = given.params.bench
    found = run(given.captions, large=asked.large, with_parity=asked.parity, split=asked.split)
    return found, lambda: show(found)


def _relevance(given: Given) -> Shown:
    """Pairs per second of each measure beside its peer, and the largest difference."""
    from capgrade.benchmarks.relevance import bench
    from capgrade.pipelines.cli.tables import bench_table

    asked = given.params.bench
    names = given.names("cider,rouge_l,sbert")
    found = bench(given.captions, names, given.params.measures, asked.split, asked.pairs)
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
    found = bench(Path(asked.pictures), params, limit=asked.limit, effect=asked.effect)
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
    from capgrade.benchmarks.corpus import check, corpus, require_eighth
    from capgrade.schemas.captions import read_captions

    asked = given.params.bench
    if asked.images is None:
        raise InputError("how many images?", remedy="give --set bench.images=N")
    real = read_captions(given.captions, asked.split)
    if asked.check:
        require_eighth(real)
    done = corpus(real, asked.images, given.out, asked.seed, asked.vectors, asked.per_image)
    made = f"{asked.per_image * asked.images:,} captions of {asked.images:,} images -> {given.out}"
    if asked.check:
        typer.echo(check(real, read_captions(given.out), asked.seed), err=True)
    return done, lambda: made


def _scale(given: Given) -> Shown:
    """Sampled shards by all pairs and with windows of a share, at three sizes, beside brute force."""
    asked, names = given.params.bench, given.names("cider,rouge_l,sbert")
    embedded = None if asked.embeddings is None else Path(asked.embeddings)
    require_all("apache_beam", measures=() if embedded else names)
    from capgrade.benchmarks import scale, scale_parts

    if asked.parts is None:
        whole = scale.bench(given.captions, names, asked.split, asked.compared, embedded, None, asked.among)
        return whole, lambda: scale.show(whole)
    of_parts = scale_parts.bench(
        given.captions, names, asked.split, asked.compared, embedded, asked.among, asked.parts
    )  # fmt: skip
    return of_parts, lambda: scale_parts.show(of_parts)


def _tops(given: Given) -> Shown:
    """A measure's search for its best captions, beside all pairs. METEOR has one."""
    from capgrade.benchmarks.tops import bench, show

    asked, names = given.params.bench, given.names("meteor")
    found = bench(given.captions, names, given.params.measures, asked.split, asked.top, asked.images or 512)
    return found, lambda: show(found)


def _explore(given: Given) -> Shown:
    """How long the explorer takes to answer a typed caption; --captions: a published dataset, or captions."""
    from capgrade.benchmarks.explore import bench, show
    from capgrade.explorer.start import Folders, open_explorer
    from capgrade.schemas.files import MANIFEST, parse_manifest

    asked, manifest = given.params.bench, given.captions / MANIFEST
    published = manifest.is_file() and parse_manifest(manifest)["kind"] == "publish"
    dataset, captions = (given.captions, None) if published else (None, given.captions)
    folders = Folders(dataset, captions, split=asked.split, runs=[Path(run) for run in asked.runs])
    found = bench(open_explorer(folders))
    return found, lambda: show(found)


def _labels(given: Given) -> Shown:
    """How long the labels of a batch take: 128 x 128 and 4,096 x 4,096, asked for by ids."""
    from capgrade.benchmarks.labels import bench, show

    if given.params.bench.shards is None:
        raise InputError("no shards", remedy="give --set bench.shards=DIR")
    found = bench(Path(given.params.bench.shards), given.captions)
    return found, lambda: show(found)


def _reward(given: Given) -> Shown:
    """How long CIDEr-D as a reward takes: 10 candidates for each of 50 images."""
    from capgrade.benchmarks.reward import bench, show
    from capgrade.schemas.captions import read_captions

    found = bench(read_captions(given.captions, given.params.bench.split))
    return found, lambda: show(found)


def _rankings(given: Given) -> Shown:
    """Metrics of top-k lists beside ranx and ir_measures, and the largest differences."""
    from capgrade.benchmarks.labels import rankings, show_rankings

    found = rankings()
    return found, lambda: show_rankings(found)


BENCHES: dict[str, tuple[Callable[[Given], Shown], str]] = {  # and the options that it reads
    "corpus": (_corpus, "captions out"),
    "explore": (_explore, "captions"),
    "labels": (_labels, "captions"),
    "metrics": (_metrics, "captions"),
    "rankings": (_rankings, ""),
    "regions": (_regions, ""),
    "relevance": (_relevance, "captions measures"),
    "reward": (_reward, "captions"),
    "scale": (_scale, "captions measures"),
    "score": (_score, "captions"),
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
