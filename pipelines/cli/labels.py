"""Commands from captions to a published dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from capgrade.pipelines.options import (
    COMMON_OPTIONS,
    FILE,
    FOLDER,
    AsJson,
    CaptionsDir,
    CommonOptions,
    Force,
    Measures,
    Split,
    load,
    parse_measures,
    print_result,
    require_all,
)


def frequencies(
    captions: CaptionsDir,
    out: Annotated[Path, Option(metavar=FILE, help="Arrow file to write.")],
    split: Split = None,
    force: Force = False,
) -> None:
    """Document frequencies of captions, for CIDEr-D of others: `measures.cider.document_frequency`.

    `capgrade score --frequencies` reads the file, too.
    """
    from capgrade.measures.frequencies import Frequencies
    from capgrade.schemas.captions import read_captions

    counted = Frequencies.of_captions(read_captions(captions, split))
    counted.write(out, force)
    typer.echo(f"{len(counted.images):,} n-grams of {counted.n_images:,} images -> {out}")


def parse(
    caption: Annotated[str, typer.Argument(metavar="CAPTION", help="A sentence in English.")],
    as_json: AsJson = False,
) -> None:
    """The scene graph that the measure scene_graph reads in a caption."""
    from capgrade.measures.scene_graph.parse import parse as read_graph
    from capgrade.text.ptb import ptb_tokens

    graph = read_graph(tuple(ptb_tokens(caption)))
    print_result(asdict(graph), as_json, str(graph))


AgreementFile = Annotated[
    Path | None,
    Option("--out", metavar=FILE, help="JSON file to write; .md or .tex: the table."),
]


def agree_texts(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="CSV, TSV, JSON lines or Parquet, a row a text; or a dataset, USER/NAME.",
        ),
    ],
    measures: Measures = None,
    split: Split = None,
    out: AgreementFile = None,
    force: Force = False,
    common: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Agreement of caption scores with people's, from a table of candidates, references and
    scores.

    Measures are bleu, meteor, rouge_l and cider, others of `capgrade score`, or columns of numbers.
    """
    loaded = load(common.params, common.sets)
    names = parse_measures(measures, ("bleu", "meteor", "rouge_l", "cider"))
    require_all(measures=names)
    from capgrade.pipelines.agree import Agreement, write_figures
    from capgrade.pipelines.judged_texts import agree_on_texts
    from capgrade.schemas.judges import PEOPLE
    from capgrade.schemas.out_files import refuse_file

    if out:
        refuse_file(out, force)
    rows, result = agree_on_texts(
        table,
        names,
        loaded.agree.columns,
        loaded.score.tokenizer,
        loaded.measures,
        loaded.captions.model_copy(update={"split": split}),
    )
    facts = {"by": PEOPLE, "file": table.name, "pairs": rows, "split": None, "captions": None}
    agreement = Agreement(facts, result)
    if out:
        write_figures(out, agreement)
    print_result(agreement.json(), common.as_json, agreement.text())


def agree_choices(
    folder: Annotated[
        Path,
        typer.Argument(metavar=FOLDER, help="Pascal-50S, as CIDEr's authors publish its choices."),
    ],
    measures: Measures = None,
    references: Annotated[
        int, Option(min=1, metavar="N", help="References of each pair: 5 are drawn, five times.")
    ] = 5,
    out: AgreementFile = None,
    force: Force = False,
    common: CommonOptions = COMMON_OPTIONS,
) -> None:
    """How often caption scores choose the candidate that people choose, of two: Pascal-50S.

    Accuracy by category (two human captions, HC; one of another image, HI; a machine's, HM; two
    machines', MM), and the mean.
    """
    loaded = load(common.params, common.sets)
    names = parse_measures(measures, ("bleu", "meteor", "rouge_l", "cider"))
    require_all(measures=names)
    from capgrade.pipelines.judged_choices import agree_on_choices
    from capgrade.schemas.files import write_json, write_text
    from capgrade.schemas.out_files import refuse_file
    from capgrade.schemas.tables import ENDINGS

    if out:
        refuse_file(out, force)
    agreement = agree_on_choices(
        folder, list(names), references, loaded.score.tokenizer, loaded.measures
    )
    if out and out.suffix in ENDINGS:
        write_text(out, agreement.table(out.suffix))
    elif out:
        write_json(out, agreement.json())
    print_result(agreement.json(), common.as_json, agreement.text())


def push(
    folder: Annotated[
        Path, typer.Argument(metavar=FOLDER, help="Folder that `capgrade publish` wrote.")
    ],
    repository: Annotated[
        str, typer.Argument(metavar="USER/NAME", help="A Hugging Face dataset, or one to make.")
    ],
    public: Annotated[
        bool, Option("--public", help="Let everybody see a repository that this makes.")
    ] = False,
    replace: Annotated[
        bool,
        Option("--replace", help="Overwrite and delete files of a repository of something else."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a published folder to the hub, and tag it with its version.

    A repository that this makes is private; `--public` makes it public. One that holds something
    else than this dataset is refused without `--replace`.
    """
    require_all("huggingface_hub")
    from capgrade.pipelines.publish.push import push as upload

    pushed = upload(folder, repository, public=public, replace=replace)
    print_result(asdict(pushed), as_json, str(pushed))


def check(
    target: Annotated[
        str, typer.Argument(metavar="REPO_OR_FOLDER", help="A folder, or USER/NAME[@REVISION].")
    ],
    dataset: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="Also compare it with this folder, of `capgrade publish`."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a published folder or repository, every byte. Exit status 2 when something differs."""
    from capgrade.pipelines.publish.check import check as check_dataset

    checked = check_dataset(target, dataset)
    files = f"{checked.files} files, {checked.bytes:,} bytes"
    ok_line = f"ok: {checked.name}: version {checked.version}, {files} as they were made"
    problems = [str(problem) for problem in checked.problems]
    _print_checked(
        {**asdict(checked), "problems": problems}, [] if problems else [ok_line], problems, as_json
    )


def verify(
    folder: Annotated[
        Path,
        typer.Argument(metavar=FOLDER, help="Folder of a stage, or a folder that holds several."),
    ],
    as_json: AsJson = False,
) -> None:
    """Check that everything below a folder is whole: manifests, sizes, checksums. Exit status 2 if
    it is not."""
    from capgrade.pipelines.verify import verify as verify_all

    report = verify_all(folder)
    ok_lines = [
        f"ok: {usable.folder}: {usable.kind}, {usable.files} files, {usable.bytes:,} bytes"
        for usable in report.usable
    ]
    _print_checked(report.json(), ok_lines, [str(problem) for problem in report.problems], as_json)


def _print_checked(
    result: dict[str, Any], ok_lines: Sequence[str], problems: Sequence[str], as_json: bool
) -> None:
    """Print the lines on what is whole, then each problem on standard error. With any problem the
    exit status is 2."""
    if as_json or ok_lines:
        print_result(result, as_json, "\n".join(ok_lines))
    for problem in problems:
        typer.secho(f"error: {problem}", fg="red", err=True)
    if problems:
        raise typer.Exit(2)
