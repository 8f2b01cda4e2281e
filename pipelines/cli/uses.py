"""Commands that use labels: scores of captions, pages, and our time beside other libraries'."""

from collections.abc import Sequence
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
    ImagesOption,
    Measures,
    ParamsFile,
    Split,
    load,
    names_of,
    refuse,
    require_all,
    say,
)
from capgrade.schemas.errors import InputError


def score(
    candidates: Annotated[
        list[Path],
        Option(
            help='COCO results: [{"image_id": .., "caption": ..}, ...]. Repeat for several systems.'
        ),
    ],
    references: Annotated[Path, Option(help='COCO annotations: {"annotations": [..]}.')],
    compare: Annotated[
        list[Path] | None,
        Option(help="Results of another system on the same images; repeat for more."),
    ] = None,
    measures: Annotated[
        str,
        Option(
            help="Some of bleu, meteor, rouge_l, cider, scene_graph, sbert, separated by commas."
        ),
    ] = "bleu,meteor,rouge_l,cider",
    frequencies: Annotated[
        Path | None,
        Option(
            help="Document frequencies of CIDEr-D: a file of `capgrade captions --frequencies`."
        ),
    ] = None,
    out: Annotated[Path | None, Option(help="Table to write: .md or .tex.")] = None,
    given: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Score a captioner's results as COCO's evaluation does, with bootstrap intervals; no Java, no
    network.

    Only the images of the results are scored, and document frequencies are counted on their
    references. Of several systems the first is tested against each other one.
    """
    names = [name.strip() for name in measures.split(",")]
    require_all(measures=names)
    from capgrade.coco_files import read_candidates, read_references
    from capgrade.measures.frequencies import Frequencies
    from capgrade.pipelines.cli.tables import SCORES_TEXTS, scores_rows, scores_table, scores_text
    from capgrade.schemas.files import write_text
    from capgrade.schemas.output import refuse_file
    from capgrade.scoring import Scores
    from capgrade.scoring import score as score_captions

    if out is not None:
        if out.suffix not in SCORES_TEXTS:
            raise InputError(
                "no table of scores is written so", file=out, remedy="end --out with .md or .tex"
            )
        refuse_file(out, "table of scores", SCORES_TEXTS[out.suffix])
    asked = load(given.params, given.sets).score
    known = read_references(references)
    counted = Frequencies.read(frequencies, asked.tokenizer) if frequencies else None

    def scored(path: Path) -> Scores:
        own = read_candidates(path, known)
        # Two systems' results may be in different orders; numbers before texts.
        in_order = dict(sorted(own.items(), key=lambda one: (isinstance(one[0], str), one[0])))
        of_own = {image: known[image] for image in own}
        return score_captions(
            in_order, of_own, names, tokenizer=asked.tokenizer, frequencies=counted
        )

    settings: dict[str, Any] = {"level": asked.level, "samples": asked.samples, "seed": asked.seed}
    files = [*candidates, *(compare or [])]
    systems = dict(zip(_labels(files), map(scored, files), strict=True))
    first, *others = systems.values()
    for path, other in zip(files[1:], others, strict=True):
        if other.ids != first.ids:
            problem = f"candidates of other images than in {files[0]}"
            raise InputError(problem, file=path, remedy="score all systems on the same images")
    intervals = {label: one.intervals(**settings) for label, one in systems.items()}
    tests = {label: first.compare(other, **settings) for label, other in list(systems.items())[1:]}
    heads, rows = scores_rows(intervals, tests, asked.level)
    of_images = sum(map(bool, known.values()))
    if out is not None:
        write_text(out, scores_text(heads, rows, out.suffix))
    if given.as_json:
        found = {
            label: {
                "corpus": one.corpus,
                "intervals": {n: [i.low, i.high] for n, i in intervals[label].items()},
            }
            for label, one in systems.items()
        }
        said = {
            label: {name: asdict(one) for name, one in of.items()} for label, of in tests.items()
        }
        result = {**next(iter(found.values())), "images": len(first.ids), "of_images": of_images}
        result |= (
            {"compare": next(iter(said.values())) if len(said) == 1 else said, "systems": found}
            if said
            else {}
        )
        say(result, True)
    else:
        scores_table(heads, rows, len(first.ids), of_images)
    if out is not None:
        typer.echo(f"-> {out}", err=given.as_json)


def _labels(files: Sequence[Path]) -> list[str]:
    """What systems are called: the names of their files, where two are the same the paths, else
    numbered."""
    names = [path.name for path in files]
    labels = [str(path) if names.count(path.name) > 1 else path.name for path in files]
    return [
        f"{label} ({k + 1})" if label in labels[:k] else label for k, label in enumerate(labels)
    ]


def report(
    out: Annotated[Path, Option(help="HTML file to write.")] = Path("report.html"),
    data: Annotated[Path, Option(help="Folder of the outputs, named as in dvc.yaml.")] = Path(
        "data"
    ),
    pictures: Annotated[Path | None, Option(help="Folder for the charts as PNG and SVG.")] = None,
    title: Annotated[
        str | None, Option(help="Default: publish.name of --params, else the folder's name.")
    ] = None,
    images: ImagesOption = None,
    params: ParamsFile = None,
) -> None:
    """Everything that a pipeline wrote on one HTML page, which opens from disk and needs no
    network.

    The page names what is missing, with the command that makes it.
    """
    from capgrade.pipelines.report import report as stage

    loaded = load(params, None)
    title = title or (None if params is None else loaded.publish.name)
    done = stage(data, out, pictures, title, images or loaded.regions.images)
    also = f", {len(done.pictures)} pictures -> {pictures}" if pictures else ""
    typer.echo(f"{done.sections} sections, {done.bytes / 1e6:.1f} MB -> {out}{also}")
    for what in done.missing:
        typer.echo(f"not here: {what}")


def audit(
    captions: CaptionsDir,
    relevance: Annotated[
        Path | None, Option(help="Folder of `capgrade relevance`: every pair.")
    ] = None,
    shards: Annotated[
        Path | None, Option(help="Folder of `capgrade shards`: estimates by their weights.")
    ] = None,
    images: ImagesOption = None,
    out: Annotated[Path, Option(help="HTML file to write, beside a folder of its lists.")] = Path(
        "audit.html"
    ),
    measure: Annotated[
        str | None, Option(help="Default: the first calibrated one, people before sbert.")
    ] = None,
    calibration: Annotated[
        Path | None, Option(help="What `agree --calibrate` wrote, or crisscrossed, the default.")
    ] = None,
    similarity: Annotated[
        list[Path] | None,
        Option(
            help=(
                "A model's, as `evaluate` takes it: how many of its R@1 errors are likely"
                " positives."
            )
        ),
    ] = None,
    stand_in: Annotated[
        int | None, Option(help="As a model: caption k of each image stands for it.")
    ] = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Which negatives are likely positives: how many captions per image and images per caption
    beside the own captions, and which ones; near-duplicates, and own captions that fit nothing; of
    a model, how many of its R@1 errors."""
    require_all("vl_convert", *([ENCODER] if stand_in is not None else []))
    from capgrade.agreement.calibration import named
    from capgrade.pipelines.audit import audit as stage
    from capgrade.pipelines.audit import lists_folder
    from capgrade.pipelines.audit.page import summary_lines

    found = stage(
        captions,
        out,
        relevance=relevance,
        shards=shards,
        images=images,
        split=split,
        measure=measure,
        calibration=named(calibration) if calibration else None,
        similarity=similarity or (),
        stand_in=stand_in,
    )
    say(found, as_json, "\n".join([*summary_lines(found), f"{out}, lists in {lists_folder(out)}"]))


# Modules of capgrade.benchmarks, and the measures that each times unless others are named; none
# where it takes none.
BENCHES = {
    "gates": "",
    "corpus": "",
    "relevance": "cider,rouge_l,sbert",
    "score": "",
    "shards": "cider,rouge_l,sbert",
    "start": "",
}


def bench(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHES)}.")],
    captions: CaptionsDir,
    measures: Measures = None,
    given: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Time us beside another library in one process, and print the largest difference of results.

    `gates` prints speed and memory, with MS-COCO 5K as --captions, beside what they must reach.
    What else a benchmark reads is `--set bench.KEY=VALUE` (docs/reference.md).
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
