"""The command that scores captions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from capgrade.pipelines.cli.options import (
    COMMON_OPTIONS,
    CommonOptions,
    load,
    require_all,
    say,
)


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
    from capgrade.coco_files import read_candidates, read_references, references_of
    from capgrade.measures.scores.frequencies import Frequencies
    from capgrade.pipelines.cli.tables import paired_table, scores_table
    from capgrade.scoring import score as score_captions

    asked = load(given.params, given.sets).score
    known = read_references(references)
    counted = Frequencies.read(frequencies, asked.tokenizer) if frequencies else None

    def scored(path: Path) -> Any:
        own = read_candidates(path)
        of_own = references_of(own, known, path)
        in_order = dict(sorted(own.items(), key=_by_id))
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
            "of_images": len(known),
        }
        say(result | ({"compare": {name: asdict(one) for name, one in tests.items()}} if tests else {}), True)
        return
    scores_table(intervals, len(first.ids), len(known))
    if compare:
        paired_table(f"{candidates.name} less {compare.name}, the same images", tests, asked.level)


def _by_id(item: tuple[Any, Any]) -> tuple[bool, Any]:
    """Two systems' results may be in different orders; numbers before texts."""
    return isinstance(item[0], str), item[0]
