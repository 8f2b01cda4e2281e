"""The page: sections in, one HTML file out that needs nothing else; and its pictures as files.

Every text is escaped by the template; the only scripts that may run are the two of this module, named by their hash, so
that no caption can bring one.
"""

from __future__ import annotations

import base64
import copy
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from capgrade.pipelines.report.charts import THEMES
from capgrade.pipelines.report.parts import Chart, PagePicture, PageSection
from capgrade.schemas.files import atomic, write_manifest
from capgrade.schemas.output import Recogniser, output_folder, signed

FOLDER = Path(__file__).parent / "page"
VEGA_LITE = "6.4"
GENERATOR = "capgrade"  # of reports; the page of another stage says its own, so that neither replaces the other


@cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, as the Python package carries them."""
    # JavaScript may write / as \\/ in text, and a page must not read the end of its script there.
    bundle = vl_convert.javascript_bundle(vl_version=VEGA_LITE)  # type: ignore[call-arg]  # its stub wants a snippet
    return bundle.replace("</script", "<\\/script")


def data_uri(data: bytes, suffix: str) -> str:
    """An image in the page itself; `suffix` is its kind: png, webp."""
    return f"data:image/{suffix};base64,{base64.b64encode(data).decode()}"


def content_policy(scripts: Sequence[str]) -> str:
    """No network, no frame, no form, no script but these. Charts bring style attributes of their own."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    rest = "img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {rest}"


def generated_by(generator: str) -> Recogniser:
    """Pages that `render` made for this stage."""
    return signed(b"<!doctype html>", f'content="{generator}"')


def render(title: str, sections: Sequence[PageSection], generator: str = GENERATOR, **facts: Any) -> str:
    """The whole page."""
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.globals.update(data_uri=data_uri, themes=THEMES)
    scripts = [vega(), (FOLDER / "page.js").read_text(encoding="utf-8")]
    return environment.get_template("page.html.j2").render(
        title=title,
        generator=generator,
        sections=sections,
        policy=content_policy(scripts),
        scripts=[Markup(script) for script in scripts],  # our own
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        **facts,
    )


WIDTH, WIDE = 440, 820
SCALE = 2  # pixels of a PNG for one of the page


def write_pictures(sections: Iterable[PageSection], folder: Path) -> list[Path]:
    """NAME.png and NAME.svg of each chart, on white, and the other pictures; returns the files. InputError for a folder
    that something else wrote."""
    with output_folder(folder, "pictures"):
        written = _write_all(sections, folder)
        if written:
            rows = {path.name: 0 for path in written}
            write_manifest(folder, "pictures", params={}, inputs={}, rows=rows)
        return written


def _write_all(sections: Iterable[PageSection], folder: Path) -> list[Path]:
    written = []
    for part in (part for section in sections for part in section.parts):
        if isinstance(part, Chart):
            spec = fixed(part)
            options: dict[str, Any] = {"vl_version": VEGA_LITE, "config": THEMES["light"]}
            written.append(_write(folder / f"{part.name}.svg", vl_convert.vegalite_to_svg(spec, **options).encode()))
            png = vl_convert.vegalite_to_png(spec, scale=SCALE, **options)
            written.append(_write(folder / f"{part.name}.png", png))
        elif isinstance(part, PagePicture):
            written.append(_write(folder / f"{part.name}.{part.suffix}", part.data))
    return written


def fixed(chart: Chart) -> dict[str, Any]:
    """The chart's specification with a width of its own, its title, and what its lists of choices show at first."""
    spec = copy.deepcopy(chart.spec)
    spec["width"] = WIDE if chart.wide else WIDTH
    spec["title"] = chart.title
    return spec


def _write(path: Path, data: bytes) -> Path:
    with atomic(path) as temporary:
        temporary.write_bytes(data)
    return path
