"""Commands from captions to a published dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capgrade.pipelines.cli.needed import require_all
from capgrade.pipelines.cli.options import (
    BEAM,
    AsJson,
    CaptionsAt,
    Measures,
    Out,
    ParamsFile,
    Sets,
    Split,
    are_agreement,
    beam_options,
    load,
    names_of,
    overrides,
    pairs,
    refuse,
    say,
    with_given,
)
from capgrade.schemas.errors import InputError

app = typer.Typer()


@app.command()
def captions(
    out: Annotated[Path | None, typer.Option(help="Folder to write.")] = None,
    source: Annotated[
        str | None,
        typer.Option(help="scenes, coco, karpathy, flickr, precomp, tsv, csv, jsonl, hub. Default: scenes."),
    ] = None,
    input: Annotated[str | None, typer.Option(help="File, folder or Hugging Face dataset to read.")] = None,
    split: Annotated[str | None, typer.Option(help="Split to keep, or its name if the source has no splits.")] = None,
    split_list: Annotated[list[str] | None, typer.Option(help="SPLIT=FILE of image ids (flickr).")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="FIELD=COLUMN: image_id, caption_id, caption, split.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="ptb_py, ptb, lower_split, word_unigram, characters. Default: ptb_py.")
    ] = None,
    frequencies: Annotated[
        Path | None, typer.Option(help="Only save the document frequencies of --input, a captions folder.")
    ] = None,
    parse: Annotated[
        str | None, typer.Option(metavar="CAPTION", help="Only show the scene graph that is read in it.")
    ] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Read captions from a source, check and tokenise them, and write one Arrow table.

    `--frequencies FILE --input CAPTIONS` saves document frequencies for `measures.cider.document_frequency`;
    `--parse "a caption"` shows what the measure scene_graph reads.
    """
    if parse is not None:
        refuse("--parse", out=out, source=source, input=input, frequencies=frequencies)
        _parse(parse, as_json)
        return
    if frequencies is not None:
        refuse("--frequencies", out=out, source=source)
        if input is None:
            raise InputError("no captions to count", remedy="give --input, a folder that capgrade captions wrote")
        _frequencies(Path(input), split, frequencies)
        return
    if out is None:
        raise InputError("no folder to write", remedy="give --out")
    from capgrade.pipelines.captions import captions as stage

    lists = pairs(split_list, "--split-list") or None
    given = {"source": source, "input": input, "split": split, "split_lists": lists}
    columns = {f"columns.{field}": name for field, name in pairs(column, "--column").items()}
    options = overrides("captions", {**given, **columns, "tokenizer": tokenizer})
    done = stage(out, load(params, [*(sets or []), *options]).captions)
    rows = done["files"]["captions.arrow"]["rows"]
    splits = ", ".join(f"{name} {count:,}" for name, count in done["splits"].items())
    say(done, as_json, f"{rows:,} captions of {done['images']:,} images ({splits}) -> {out}")


def _parse(caption: str, as_json: bool) -> None:
    from dataclasses import asdict

    from capgrade.pipelines.measures.ptb import ptb_tokens
    from capgrade.pipelines.measures.scene_graph.parse import parse

    graph = parse(tuple(ptb_tokens(caption)))
    say(asdict(graph), as_json, str(graph))


def _frequencies(captions: Path, split: str | None, out: Path) -> None:
    from capgrade.pipelines.measures.ngrams import FREQUENCIES, document_frequencies
    from capgrade.schemas.captions import read_captions
    from capgrade.schemas.output import arrow_of, refuse_file

    refuse_file(out, "file of document frequencies", arrow_of(FREQUENCIES))
    counted = document_frequencies(read_captions(captions, split))
    counted.save(out)
    typer.echo(f"{len(counted.ngram):,} n-grams of {counted.n_images:,} images -> {out}")


@app.command(context_settings=BEAM)
def relevance(
    context: typer.Context,
    captions: CaptionsAt,
    out: Out,
    measures: Measures = None,
    split: Split = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Dense relevance of every caption to every image, for evaluation splits: one Arrow file per measure.

    Options after `--` go to Apache Beam: `-- --direct_num_workers=2 --direct_running_mode=multi_processing`.
    """
    loaded = load(params, sets, measures)
    names = names_of(measures, loaded.relevance.measures)
    options = beam_options(context)
    require_all(*(["apache_beam"] if options else []), measures=names, params=loaded.measures)
    from capgrade.pipelines.execution.remote import here
    from capgrade.pipelines.relevance import relevance as stage

    block = with_given(loaded.relevance, measures=names, split=split)
    done = stage(here(captions), out, block, loaded.measures, options)
    files = ", ".join(
        f"{name} {entry['rows']:,} x {done['n_captions']:,}"
        for name, entry in done["files"].items()
        if name.endswith(".arrow")
    )
    say(done, as_json, f"{files} -> {out}")


@app.command(context_settings=BEAM)
def shards(
    context: typer.Context,
    captions: CaptionsAt,
    out: Out,
    measures: Measures = None,
    split: Split = None,
    part: Annotated[
        str | None, typer.Option(help="3/8: the third of eight parts, into OUT.parts; in any order, on any machine.")
    ] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Write OUT from the parts; the same bytes as in one run.")
    ] = False,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Sampled subsets of captions for each image, for training splits: Arrow shards; the dense matrix is not stored.

    Options after `--` go to Apache Beam: `-- --direct_num_workers=2 --direct_running_mode=multi_processing`.
    """
    if part is not None and join:
        raise InputError("--part and --join together", remedy="make the parts first, then join them")
    loaded = load(params, sets, measures)
    names = names_of(measures, loaded.shards.measures)
    options = beam_options(context)
    require_all(*(["apache_beam"] if options else []), measures=names, params=loaded.measures)
    from capgrade.pipelines.execution.parts import Part
    from capgrade.pipelines.execution.remote import here
    from capgrade.pipelines.shards import join_shards, shards_part
    from capgrade.pipelines.shards import shards as stage

    block = with_given(loaded.shards, measures=names, split=split)
    folder = here(captions)
    if part is not None:
        mine = Part.parse(part)
        done = shards_part(folder, out, block, loaded.measures, mine, options)
        out = mine.folder(out)
    elif join:
        done = join_shards(folder, out, block, loaded.measures)
    else:
        done = stage(folder, out, block, loaded.measures, options)
    rows = sum(entry["rows"] for entry in done["files"].values())
    count = f"{len(done['files'])} {'block' if part else 'shard'}(s)"
    say(done, as_json, f"{done['pairs']:,} pairs of {rows:,} images in {count} -> {out}")


@app.command()
def agree(
    captions: Annotated[Path | None, typer.Option(help="Folder that `capgrade captions` wrote.")] = None,
    judgements: Annotated[
        list[Path] | None, typer.Option(help="CxC's or Flickr8k's file, a CSV of scores, a review's folder, or eccv.")
    ] = None,
    reviews: Annotated[
        Path | None, typer.Option(help="Instead: a review, how far its raters agree, and models in --judgements.")
    ] = None,
    measures: Measures = None,
    split: Split = None,
    folds: Annotated[
        int | None, typer.Option(min=2, help="Also fit a mixture of the measures, cross-validated over images.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Arrow file to write, one row per judged pair, for the report.")
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option(help="JSON file to write: what each value means to people, for `audit`.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="What --calibrate wrote of other judgements, or crisscrossed: judge what values mean by it."),
    ] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Agreement of each measure with human judgements: Pearson, Spearman, Kendall, with intervals, and how well one
    person agrees with the others.

    `--reviews DIR` gives Krippendorff's alpha of a review's raters and of models that judged the same pairs.
    """
    if reviews is not None:
        refuse("--reviews", captions=captions, measures=measures, out=out, pairs=pairs, calibrate=calibrate)
        _raters(reviews, judgements or [], as_json)
        return
    if captions is None or not judgements:
        raise InputError("nothing to agree with", remedy="give --captions and --judgements, or --reviews")
    if len(judgements) > 1:
        raise InputError("several --judgements without --reviews", remedy="give one file")
    loaded, names = load(params, sets, measures), names_of(measures, ("cider", "rouge_l", "sbert"))
    require_all(*(["sklearn"] if calibrate else []), measures=names, params=loaded.measures)
    from capgrade.pipelines.agree import agree as stage
    from capgrade.pipelines.agree import who_judged
    from capgrade.pipelines.agreement.calibration import named
    from capgrade.pipelines.agreement.coefficients import NO_RATERS
    from capgrade.pipelines.cli.tables import agreement_table
    from capgrade.schemas.files import write_json
    from capgrade.schemas.judges import parse_scale
    from capgrade.schemas.output import json_with, refuse_file

    if out and out.resolve() in [path.resolve() for path in (pairs, calibrate) if path]:
        raise InputError("--out and another output have one path", file=out, remedy="give two")
    if out:
        refuse_file(out, "agreement figures", json_with(are_agreement))
    known = named(calibration) if calibration else None
    asked = loaded.agree
    between = parse_scale(asked.scale) if asked.scale else None
    result = stage(
        captions, judgements[0], names, loaded.measures, split, folds, pairs, calibrate, asked.accept, known, between,
        asked.sampling,
    )  # fmt: skip
    if out:
        write_json(out, {"judgements": who_judged(captions, judgements[0], split), "measures": result})
    say({**result, "human": result.get("human", NO_RATERS)}, True, "") if as_json else agreement_table(result)


def _raters(reviews: Path, judgements: list[Path], as_json: bool) -> None:
    from capgrade.explorer.judgements import agreement, agreement_rows, read_judged
    from capgrade.explorer.ratings import ReviewRatings
    from capgrade.pipelines.cli.tables import review_table

    ratings = ReviewRatings.open(reviews)
    judged: dict[str, dict[int, float]] = {}
    scales: set[tuple[float, float]] = set()
    for path in judgements:
        tables, scale = read_judged(path, ratings.plan)
        scales.add(scale)
        if len(scales) > 1:
            raise InputError("another scale than the file before", file=path, remedy="judge on one scale")
        for name, table in tables.items():
            if name in judged:
                raise InputError(f"'{name}' is in another file too", file=path, remedy="give each model once")
            judged[name] = table
    found = agreement(ratings, judged, *scales)
    say(found, True, "") if as_json else review_table(found, agreement_rows(found))
