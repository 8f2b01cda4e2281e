"""The page: sections in, one HTML file out that needs nothing else. Every text is escaped by the template; the only
scripts that may run are the two of this module, named by their hash, so that no caption can bring one."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from capgrade.pipelines.report.parts import Section
from capgrade.pipelines.report.theme import THEMES
from capgrade.schemas.output import Recogniser, signed

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


def render(title: str, sections: Sequence[Section], generator: str = GENERATOR, **facts: Any) -> str:
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
