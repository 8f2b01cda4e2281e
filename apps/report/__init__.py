"""Command `report`: everything that a pipeline wrote, on one page that opens from disk."""

from dataclasses import dataclass
from pathlib import Path

from capgrade.apps.page import render_page, write_pictures
from capgrade.apps.page.parts import Note, PageSection
from capgrade.apps.page.thumbnails import PageThumbnails
from capgrade.apps.report.agreement import agreement_section, best_measure_sentence
from capgrade.apps.report.data import CAPTIONS_KIND, ReportData
from capgrade.apps.report.embedding_map import embedding_map_section
from capgrade.apps.report.items import alignments_section, examples_section, regions_section
from capgrade.apps.report.labels import (
    corpus_section,
    distributions_section,
    headline_parts,
    mined_section,
)
from capgrade.apps.report.runs import (
    curves_section,
    first_run_sentence,
    runs_section,
    training_section,
)
from capgrade.schemas.files import package_version, write_text
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.output import refuse_foreign

_GENERATOR = "capgrade"


@dataclass(frozen=True)
class WrittenReport:
    """What `report` wrote."""

    bytes: int
    sections: int
    missing: list[str]  # the outputs that the page lists as not there
    pictures: list[Path]


def opening_section(data: ReportData) -> PageSection:
    """The findings: a figure and a chart of the labels, one sentence on the measures and one on the
    runs."""
    sentences = (best_measure_sentence(data), first_run_sentence(data))
    notes = [Note(sentence) for sentence in sentences if sentence]
    return PageSection("opening", "", "", [*headline_parts(data), *notes])


def sections_of(data: ReportData, thumbnails: PageThumbnails) -> list[PageSection]:
    """Every section with something to show, in the page's order; the last lists the outputs that
    are missing."""
    labels = [distributions_section(data), agreement_section(data), mined_section(data)]
    models = [
        runs_section(data),
        curves_section(data),
        training_section(data),
        embedding_map_section(data, thumbnails),
    ]
    pictures = [
        examples_section(data, thumbnails),
        alignments_section(data),
        regions_section(data, thumbnails),
    ]
    sections = [*labels, *models, *pictures, corpus_section(data)]
    sections.append(
        PageSection("missing", f"Not here ({len(data.missing)})", "", list(data.missing.values()))
    )
    return [section for section in sections if section.parts]


def report(
    folder: Path,
    out: Path,
    pictures: Path | None = None,
    title: str | None = None,
    images: str | Path | None = None,
    force: bool = False,
) -> WrittenReport:
    """Write the page `out` on a folder of outputs, named as in dvc.yaml, and its charts as files in
    the folder `pictures`. `images` are the corpus' pictures: a folder, a zip, or a URL template
    (`lookup.py`). The page lists missing outputs with the commands that make them.

    Raises InputError without captions, for an output that is damaged or belongs to other captions,
    where `pictures` exists and is not a report's, and where a file is at `out`, but with `force`.
    """
    refuse_file(out, force)
    if pictures:
        refuse_foreign(pictures, "pictures")
    data = ReportData(folder)
    thumbnails = PageThumbnails(data.path(CAPTIONS_KIND), images, out.parent)
    sections = sections_of(data, thumbnails)
    opening = opening_section(data)
    thumbnails.pictures.warn_of_missing()
    foot = (
        f"capgrade {package_version()}; captions {data.captions.digest[:12]}, evaluated split"
        f" {data.captions.split}."
    )
    page = render_page(
        title or f"capgrade: {folder.resolve().name}",
        opening,
        sections,
        _GENERATOR,
        foot=foot,
        runs=data.runs,
    )
    write_text(out, page)
    files = write_pictures([opening, *sections], pictures) if pictures else []
    return WrittenReport(len(page.encode()), len(sections), list(data.missing), files)
