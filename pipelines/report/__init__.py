"""Stage `report`: everything that a pipeline wrote, on one page that opens from disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from capgrade.pipelines.report.agreement import agreement
from capgrade.pipelines.report.alignments import alignments
from capgrade.pipelines.report.corpus import corpus
from capgrade.pipelines.report.cost import cost
from capgrade.pipelines.report.data import CAPTIONS, ReportData, open_data
from capgrade.pipelines.report.distributions import distributions
from capgrade.pipelines.report.embedding_map import embedding_map
from capgrade.pipelines.report.examples import examples
from capgrade.pipelines.report.findings import findings
from capgrade.pipelines.report.mined import mined
from capgrade.pipelines.report.page import GENERATOR, generated_by, render, write_pictures
from capgrade.pipelines.report.parts import Missing, PageSection
from capgrade.pipelines.report.regions import regions
from capgrade.pipelines.report.runs import curves, runs
from capgrade.pipelines.report.thumbnails import PageThumbnails
from capgrade.pipelines.report.training import training
from capgrade.schemas.files import package_version, write_text
from capgrade.schemas.output import refuse_file, refuse_foreign

LEAD = (
    "Benchmarks count one image as right for a caption and every other image as wrong. This page shows the "
    "degrees between: their distribution, their agreement with people, and models "
    "that are trained and scored with them."
)


@dataclass(frozen=True)
class WrittenReport:
    """What `report` wrote."""

    bytes: int
    sections: int
    missing: list[str]  # what the page says is not there
    pictures: list[Path]


def sections_of(data: ReportData, thumbnails: PageThumbnails) -> list[PageSection]:
    """Every section of the page, in order."""
    seen = [corpus(data), regions(data, thumbnails)]
    labels = [findings(data), *seen, distributions(data), agreement(data), mined(data)]
    models = [runs(data), training(data), curves(data)]
    return [*labels, *models, embedding_map(data, thumbnails), examples(data, thumbnails), alignments(data), cost(data)]


def report(
    folder: Path, out: Path, pictures: Path | None = None, title: str | None = None, images: str | Path | None = None
) -> WrittenReport:
    """Write the page of a folder of outputs (captions, relevance, runs, ... as dvc.yaml names them), and its pictures
    in the folder `pictures`. `images` are the corpus' pictures: a folder, a zip, or a URL template (`lookup.py`). What
    is not there is said on the page, with the command that makes it.

    Raises InputError without captions, for an output that is damaged or belongs to other captions, and where something
    else stands at `out` or in `pictures`.
    """
    refuse_file(out, "report of capgrade", generated_by(GENERATOR))
    if pictures:
        refuse_foreign(pictures, "pictures")
    data = open_data(folder)
    thumbnails = PageThumbnails(data.at(CAPTIONS), images, out.parent)
    sections = sections_of(data, thumbnails)
    thumbnails.tell()
    foot = f"capgrade {package_version()}; captions {data.captions.digest[:12]}, evaluated split {data.captions.split}."
    page = render(title or f"capgrade: {folder.resolve().name}", sections, lead=LEAD, foot=foot, runs=data.runs)
    write_text(out, page)
    files = write_pictures(sections, pictures) if pictures else []
    missing = [part.what for section in sections for part in section.parts if isinstance(part, Missing)]
    return WrittenReport(len(page.encode()), len(sections), missing, files)
