"""Stage `report`: everything that a pipeline wrote, on one page that opens from disk."""

from dataclasses import dataclass
from pathlib import Path

from capgrade.pipelines.page import generated_by, render, write_pictures
from capgrade.pipelines.page.parts import Note, PageSection
from capgrade.pipelines.page.thumbnails import PageThumbnails
from capgrade.pipelines.report.agreement import agreement, best
from capgrade.pipelines.report.cost import cost
from capgrade.pipelines.report.data import CAPTIONS_KIND, ReportData
from capgrade.pipelines.report.embedding_map import embedding_map
from capgrade.pipelines.report.items import alignments, examples, regions
from capgrade.pipelines.report.labels import corpus, distributions, headline, mined
from capgrade.pipelines.report.runs import curves, first_runs, runs_section, training
from capgrade.schemas.files import package_version, write_text
from capgrade.schemas.output import refuse_file, refuse_foreign

_GENERATOR = "capgrade"


@dataclass(frozen=True)
class WrittenReport:
    """What `report` wrote."""

    bytes: int
    sections: int
    missing: list[str]  # what the page says is not there
    pictures: list[Path]


def opening(data: ReportData) -> PageSection:
    """What the numbers below come to: a figure and a chart of the labels, a sentence of the
    judgements and the runs."""
    said = [*best(data), first_runs(data)]
    return PageSection(
        "opening", "", "", [*headline(data), *(Note(sentence) for sentence in said if sentence)]
    )


def sections_of(data: ReportData, thumbnails: PageThumbnails) -> list[PageSection]:
    """Every section with something to show, in order; at the end all that is not there, in one
    list."""
    labels = [distributions(data), agreement(data), mined(data)]
    models = [runs_section(data), curves(data), training(data), embedding_map(data, thumbnails)]
    seen = [examples(data, thumbnails), alignments(data), regions(data, thumbnails)]
    every = [*labels, *models, *seen, corpus(data), cost(data)]
    every.append(
        PageSection("missing", f"Not here ({len(data.lacking)})", "", list(data.lacking.values()))
    )
    return [section for section in every if section.parts]


def report(
    folder: Path,
    out: Path,
    pictures: Path | None = None,
    title: str | None = None,
    images: str | Path | None = None,
) -> WrittenReport:
    """Write the page of a folder of outputs (captions, relevance, runs, ... as dvc.yaml names
    them), and its pictures in the folder `pictures`. `images` are the corpus' pictures: a folder, a
    zip, or a URL template (`lookup.py`). What is not there is said on the page, with the command
    that makes it.

    Raises InputError without captions, for an output that is damaged or belongs to other captions,
    and where something else stands at `out` or in `pictures`.
    """
    refuse_file(out, "report of capgrade", generated_by(_GENERATOR))
    if pictures:
        refuse_foreign(pictures, "pictures")
    data = ReportData(folder)
    thumbnails = PageThumbnails(data.at(CAPTIONS_KIND), images, out.parent)
    sections, first = sections_of(data, thumbnails), opening(data)
    thumbnails.pictures.tell()
    foot = (
        f"capgrade {package_version()}; captions {data.captions.digest[:12]}, evaluated split"
        f" {data.captions.split}."
    )
    page = render(
        title or f"capgrade: {folder.resolve().name}",
        first,
        sections,
        _GENERATOR,
        foot=foot,
        runs=data.runs,
    )
    write_text(out, page)
    files = write_pictures([first, *sections], pictures) if pictures else []
    return WrittenReport(len(page.encode()), len(sections), list(data.lacking), files)
