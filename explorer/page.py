"""HTML of the explorer, from the template beside this file. Captions, ids and names come from strangers: nothing enters
it but through `text`, which the template applies to every value."""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from capgrade.explorer.answers import Explorer, VoiceAnswer
from capgrade.explorer.findings import RANK, Finding
from capgrade.explorer.judgements import agreement_rows

SHOWN = 5  # captions of an image
# Gradio puts values into a JavaScript template and a Handlebars one: their signs are escaped as HTML's are.
_TEMPLATE_SIGNS = {ord(c): f"&#{ord(c)};" for c in "${}`\\"}


def text(value: object) -> Markup:
    """As it is read, wherever it stands in HTML; what has been through here or the template stays as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(str(value), quote=True).translate(_TEMPLATE_SIGNS))


def _captions_shown(explorer: Explorer, number: int, without: int | None) -> list[str]:
    captions = explorer.corpus.captions
    rows = captions.refs[captions.ref_ptr[number] : captions.ref_ptr[number + 1]].tolist()
    return [captions.texts[row] for row in rows if row != without][:SHOWN]


def _readable(values: dict[str, float]) -> list[tuple[str, str]]:
    """What each voice says; RANK is kept negative, so that high is good for all."""
    return [(name, f"{-value:.0f}" if name == RANK else f"{value:.3f}") for name, value in values.items()]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, finalize=text,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
_environment.globals.update(captions_shown=_captions_shown, readable=_readable, milliseconds=_milliseconds)
_page: Any = _environment.get_template("page.html.j2").module


def problem(message: object) -> Markup:
    """One line about what is wrong."""
    return _page.problem(message)


def note(message: object) -> Markup:
    """A paragraph beside the answers."""
    return _page.note(message)


def answers(explorer: Explorer, title: Markup, found: Sequence[VoiceAnswer], images: bool) -> Markup:
    """One column per voice: `images` or captions, the best first."""
    return _page.answers(explorer, title, found, images)


def text_title(caption: str) -> Markup:
    """Above the answers to a caption that somebody has written."""
    return _page.text_title(caption)


def caption_title(explorer: Explorer, caption: int) -> Markup:
    """Above the answers to a caption of the corpus."""
    return _page.caption_title(explorer.corpus.captions, caption)


def image_title(explorer: Explorer, number: int) -> Markup:
    """Above the answers to an image of the corpus."""
    return _page.image_title(explorer, number)


def upload_title(jpeg: bytes) -> Markup:
    """Above the answers to a picture that somebody has brought."""
    return _page.upload_title(b64encode(jpeg).decode("ascii"))


def findings(explorer: Explorer, found: Sequence[Finding], explained: str) -> Markup:
    """One card per pair: its image, its caption, what each voice says."""
    return _page.findings(explorer, found, explained)


def pair_to_rate(explorer: Explorer, number: int, caption: int) -> Markup:
    """A pair as reviewers see it: no score, and not whether the caption is the image's own."""
    return _page.pair_to_rate(explorer, number, caption)


def agreement(found: dict[str, Any]) -> Markup:
    """What `judgements.agreement` found."""
    return _page.table(agreement_rows(found)) if found["reviewers"] else note("Nobody has rated a pair yet.")
