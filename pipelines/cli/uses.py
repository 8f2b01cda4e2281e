"""Commands that use labels: scores of captions, pages, and our time beside other libraries'."""

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from capgrade.pipelines.cli.options import (
    COMMON_OPTIONS,
    ENCODER,
    AsJson,
    CaptionsDir,
    CommonOptions,
    Images,
    Measures,
    Split,
    load,
    names_of,
    refuse,
    require_all,
    say,
)
from capgrade.schemas.errors import InputError


def score(
    candidates: Annotated[Path, Option(help='COCO results: [{"image_id": .., "caption": ..}, ...].')],
    references: Annotated[Path, Option(help='COCO annotations: {"annotations": [..]}.')],
    compare: Annotated[Path | None, Option(help="Results of another system on the same images.")] = None,
    measures: Annotated[
        str, Option(help="Some of bleu, meteor, rouge_l, cider, scene_graph, sbert, separated by commas.")
    ] = "bleu,meteor,rouge_l,cider",
    frequencies: Annotated[
        Path | None, Option(help="Document frequencies of CIDEr-D: a file of `capgrade captions --frequencies`.")
    ] = None,
    given: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Score a captioner's results as COCO's evaluation does, with bootstrap intervals; no Java, no network.

    Only the images of the results are scored, and document frequencies are counted on their references.
    """
    names = [name.strip() for name in measures.split(",")]
    require_all(measures=names)
    from capgrade.coco_files import read_candidates, read_references
    from capgrade.measures.frequencies import Frequencies
    from capgrade.pipelines.cli.tables import paired_table, scores_table
    from capgrade.scoring import score as score_captions

    asked = load(given.params, given.sets).score
    known = read_references(references)
    counted = Frequencies.read(frequencies, asked.tokenizer) if frequencies else None

    def scored(path: Path) -> Any:
        own = read_candidates(path, known)
        # Two systems' results may be in different orders; numbers before texts.
        in_order = dict(sorted(own.items(), key=lambda one: (isinstance(one[0], str), one[0])))
        of_own = {image: known[image] for image in own}
        return score_captions(in_order, of_own, names, tokenizer=asked.tokenizer, frequencies=counted)

    settings: dict[str, Any] = {"level": asked.level, "samples": asked.samples, "seed": asked.seed}
    first = scored(candidates)
    intervals = first.intervals(**settings)
    tests = first.compare(scored(compare), **settings) if compare else {}
    if given.as_json:
        result = {
            "corpus": first.corpus,
            "intervals": {name: [one.low, one.high] for name, one in intervals.items()},
            "images": len(first.ids),
            "of_images": sum(map(bool, known.values())),
        }
        say(result | ({"compare": {name: asdict(one) for name, one in tests.items()}} if tests else {}), True)
        return
    scores_table(intervals, len(first.ids), len(known))
    if compare:
        paired_table(f"{candidates.name} less {compare.name}, the same images", tests, asked.level)


def report(
    out: Annotated[Path, Option(help="HTML file to write.")] = Path("report.html"),
    data: Annotated[Path, Option(help="Folder of the outputs, named as in dvc.yaml.")] = Path("data"),
    pictures: Annotated[Path | None, Option(help="Folder for the charts as PNG and SVG.")] = None,
    title: Annotated[str | None, Option(help="Default: the folder's name.")] = None,
    images: Images = None,
) -> None:
    """Everything that a pipeline wrote on one HTML page, which opens from disk and needs no network.

    The page names what is missing, with the command that makes it.
    """
    from capgrade.pipelines.report import report as stage

    done = stage(data, out, pictures, title, images)
    also = f", {len(done.pictures)} pictures -> {pictures}" if pictures else ""
    typer.echo(f"{done.sections} sections, {done.bytes / 1e6:.1f} MB -> {out}{also}")
    for what in done.missing:
        typer.echo(f"not here: {what}")


def audit(
    captions: CaptionsDir,
    relevance: Annotated[Path | None, Option(help="Folder of `capgrade relevance`: every pair.")] = None,
    shards: Annotated[Path | None, Option(help="Folder of `capgrade shards`: estimates by their weights.")] = None,
    images: Images = None,
    out: Annotated[Path, Option(help="HTML file to write, beside a folder of its lists.")] = Path("audit.html"),
    measure: Annotated[str | None, Option(help="Default: the first calibrated one, people before sbert.")] = None,
    calibration: Annotated[
        Path | None, Option(help="What `agree --calibrate` wrote, or crisscrossed, the default.")
    ] = None,
    similarity: Annotated[
        list[Path] | None,
        Option(help="A model's, as `evaluate` takes it: how many of its R@1 errors are likely positives."),
    ] = None,
    stand_in: Annotated[int | None, Option(help="As a model: caption k of each image stands for it.")] = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Which negatives are likely positives: how many captions per image and images per caption beside the own captions,
    and which ones; near-duplicates, and own captions that fit nothing; of a model, how many of its R@1 errors."""
    require_all("vl_convert", *([ENCODER] if stand_in is not None else []))
    from capgrade.agreement.calibration import named
    from capgrade.pipelines.audit import audit as stage
    from capgrade.pipelines.audit import lists_folder
    from capgrade.pipelines.audit.page import answers

    found = stage(
        captions, out, relevance=relevance, shards=shards, images=images, split=split, measure=measure,
        calibration=named(calibration) if calibration else None, similarity=similarity or (), stand_in=stand_in,
    )  # fmt: skip
    say(found, as_json, "\n".join([*answers(found), f"{out}, lists in {lists_folder(out)}"]))


# Modules of capgrade.benchmarks, and the measures that each times unless others are named; none where it takes none.
BENCHES = {
    "gates": "",
    "corpus": "",
    "relevance": "cider,rouge_l,sbert",
    "score": "",
    "shards": "cider,rouge_l,sbert",
    "start": "",
    "tops": "meteor",
}


def bench(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHES)}.")],
    captions: CaptionsDir,
    measures: Measures = None,
    given: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Time us beside another library in one process, and print the largest difference of results.

    `gates` prints speed and memory, with MS-COCO 5K as --captions, beside what they must reach. What else a benchmark
    reads is `--set bench.KEY=VALUE` (docs/reference.md).
    """
    if name not in BENCHES:
        raise InputError(f"no benchmark '{name}'", remedy=f"choose from: {', '.join(BENCHES)}")
    default = BENCHES[name]
    if not default:
        refuse(f"with bench {name}", measures=measures)
    from capgrade.benchmarks.harness import Asked, show

    known = load(given.params, given.sets)
    names = names_of(measures or default) if default else ()
    if known.bench.embeddings is None:
        require_all(measures=names)
    asked = Asked(captions, names, known, given.params, given.sets or [])
    rows = import_module(f"capgrade.benchmarks.{name}").bench(asked)
    if given.as_json:
        say(rows, True)
    else:
        show(f"bench {name}", rows)
