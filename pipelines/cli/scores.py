"""`capgrade score`: a captioner's results as COCO's evaluation scores them."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from capgrade.pipelines.options import (
    COMMON_OPTIONS,
    FILE,
    CommonOptions,
    Force,
    load,
    print_result,
    require_all,
)
from capgrade.schemas.errors import InputError


def score(
    candidates: Annotated[
        list[Path],
        Option(
            metavar=FILE,
            help='COCO results: [{"image_id": .., "caption": ..}]; repeat for several systems.',
        ),
    ],
    references: Annotated[
        Path, Option(metavar=FILE, help='COCO annotations: {"annotations": [..]}.')
    ],
    measures: Annotated[
        str,
        Option(
            metavar="NAME,...",
            help="Some of bleu, meteor, rouge_l, cider, scene_graph, sbert, people, and mixtures.",
        ),
    ] = "bleu,meteor,rouge_l,cider",
    frequencies: Annotated[
        Path | None,
        Option(
            metavar=FILE,
            help="Document frequencies of CIDEr-D: a file of `capgrade frequencies`.",
        ),
    ] = None,
    out: Annotated[Path | None, Option(metavar=FILE, help="Table to write, .md or .tex.")] = None,
    force: Force = False,
    common: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Score a captioner's results as COCO's evaluation does, with bootstrap intervals; no Java, no
    network.

    Only the images of the results are scored, and document frequencies are counted on their
    references. Of several --candidates the first is tested against each other one.
    """
    names = [name.strip() for name in measures.split(",")]
    loaded = load(common.params, common.sets)
    require_all(measures=names, params=loaded.measures)
    from capgrade.coco_files import read_candidates, read_references
    from capgrade.measures.frequencies import Frequencies
    from capgrade.pipelines.cli.tables import print_scores, scores_rows, scores_text
    from capgrade.schemas.files import write_text
    from capgrade.schemas.out_files import refuse_file
    from capgrade.schemas.tables import ENDINGS
    from capgrade.scoring import Scores
    from capgrade.scoring import score as score_captions

    if out is not None:
        if out.suffix not in ENDINGS:
            raise InputError(
                "no table of scores is written so", file=out, remedy="end --out with .md or .tex"
            )
        refuse_file(out, force)
    params = loaded.score
    references_of = read_references(references)
    counted = Frequencies.read(frequencies, params.tokenizer) if frequencies else None

    def scored(path: Path) -> Scores:
        own = read_candidates(path, references_of)
        # Two systems' results may be in different orders; numbers before texts.
        in_order = dict(sorted(own.items(), key=lambda item: (isinstance(item[0], str), item[0])))
        of_own = {image: references_of[image] for image in own}
        return score_captions(
            in_order,
            of_own,
            names,
            tokenizer=params.tokenizer,
            frequencies=counted,
            params=loaded.measures,
        )

    settings: dict[str, Any] = {
        "level": params.level,
        "samples": params.samples,
        "seed": params.seed,
    }
    systems = dict(zip(_label_systems(candidates), map(scored, candidates), strict=True))
    first, *others = systems.values()
    for path, other in zip(candidates[1:], others, strict=True):
        if other.ids != first.ids:
            problem = f"candidates of other images than in {candidates[0]}"
            raise InputError(problem, file=path, remedy="score all systems on the same images")
    intervals = {label: system.intervals(**settings) for label, system in systems.items()}
    tests = {label: first.compare(other, **settings) for label, other in list(systems.items())[1:]}
    heads, rows = scores_rows(intervals, tests, params.level)
    of_images = sum(map(bool, references_of.values()))
    if out is not None:
        write_text(out, scores_text(heads, rows, out.suffix))
    if common.as_json:
        corpora = {
            label: {
                "corpus": system.corpus,
                "intervals": {n: [i.low, i.high] for n, i in intervals[label].items()},
            }
            for label, system in systems.items()
        }
        comparisons = {
            label: {name: asdict(test) for name, test in by_measure.items()}
            for label, by_measure in tests.items()
        }
        result = {**next(iter(corpora.values())), "images": len(first.ids), "of_images": of_images}
        result |= (
            {
                "compare": next(iter(comparisons.values()))
                if len(comparisons) == 1
                else comparisons,
                "systems": corpora,
            }
            if comparisons
            else {}
        )
        print_result(result, True)
    else:
        print_scores(heads, rows, len(first.ids), of_images)
    if out is not None:
        typer.echo(f"-> {out}", err=common.as_json)


def _label_systems(files: Sequence[Path]) -> list[str]:
    """Names of systems: the names of their files, or the paths where two names are equal, with a
    number where two paths are equal."""
    names = [path.name for path in files]
    labels = [str(path) if names.count(path.name) > 1 else path.name for path in files]
    return [
        f"{label} ({k + 1})" if label in labels[:k] else label for k, label in enumerate(labels)
    ]
