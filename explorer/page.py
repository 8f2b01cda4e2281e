"""HTML of the explorer. Captions, ids and names come from strangers: all of it enters through `text` only."""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

from capgrade.explorer.answers import Answer, Explorer
from capgrade.explorer.findings import RANK, Finding

SHOWN = 5  # captions of an image
# Gradio puts values into a JavaScript template and a Handlebars one: their signs are escaped as HTML's are.
_TEMPLATE_SIGNS = {ord(c): f"&#{ord(c)};" for c in "${}`\\"}


def text(value: object) -> str:
    """As it is read, wherever it stands in HTML."""
    return html.escape(str(value), quote=True).translate(_TEMPLATE_SIGNS)


def problem(message: object) -> str:
    return f'<p class="cg-problem" role="alert">{text(message)}</p>'


def note(message: object) -> str:
    return f'<p class="cg-note">{text(message)}</p>'


def image(explorer: Explorer, number: int, without: int | None = None) -> str:
    """The picture if there is one, and the image's captions, except one that is shown beside it."""
    return picture(explorer, number) + captions_of(explorer, number, without)


def picture(explorer: Explorer, number: int) -> str:
    if number not in explorer.thumbnails:
        return ""
    name = text(explorer.corpus.captions.image_ids[number])
    return f'<img src="picture/{number}" alt="image {name}" loading="lazy">'


def captions_of(explorer: Explorer, number: int, without: int | None = None) -> str:
    captions = explorer.corpus.captions
    rows = captions.refs[captions.ref_ptr[number] : captions.ref_ptr[number + 1]].tolist()
    texts = [captions.texts[row] for row in rows if row != without][:SHOWN]
    lines = "".join(f"<li>{text(t)}</li>" for t in texts) or "<li>(no other caption)</li>"
    return f'<ul class="cg-captions">{lines}</ul>'


def answers(explorer: Explorer, title: str, found: Sequence[Answer], images: bool) -> str:
    """One column per voice: `images` or captions, the best first."""
    columns = "".join(_column(explorer, answer, images) for answer in found)
    total = 1000 * sum(answer.seconds for answer in found)
    return (
        f'<section class="cg-answer"><header><div>{title}</div><span class="cg-time">{total:.0f} ms</span></header>'
        f'<div class="cg-columns">{columns}</div></section>'
    )


def _column(explorer: Explorer, answer: Answer, images: bool) -> str:
    hits = "".join(_hit(explorer, hit.number, hit.score, hit.own, images) for hit in answer.hits)
    body = f"<ol>{hits}</ol>" if hits else note(answer.note)
    kind = f'<span class="cg-kind">{text(answer.kind)}, {1000 * answer.seconds:.0f} ms</span>'
    return f'<div class="cg-column" data-voice="{text(answer.voice)}"><h3>{text(answer.voice)}{kind}</h3>{body}</div>'


def _hit(explorer: Explorer, number: int, score: float, own: bool, images: bool) -> str:
    what = "image" if images else "caption"
    body = (
        image(explorer, number) if images else f'<p class="cg-text">{text(explorer.corpus.captions.texts[number])}</p>'
    )
    mark = '<span class="cg-own">original</span>' if own else ""
    return (
        f'<li class="cg-hit{" cg-is-own" if own else ""}"><button type="button" data-pick="{what}:{number}">'
        f'<span class="cg-score">{score:.3f}</span>{mark}{body}</button></li>'
    )


def caption_title(explorer: Explorer, caption: int) -> str:
    captions = explorer.corpus.captions
    return f"Images for “{text(captions.texts[caption])}” <code>{text(captions.caption_ids[caption])}</code>"


def image_title(explorer: Explorer, number: int) -> str:
    name = text(explorer.corpus.captions.image_ids[number])
    return f'<div class="cg-asked">Captions for image <code>{name}</code>{image(explorer, number)}</div>'


def upload_title(jpeg: bytes) -> str:
    data = b64encode(jpeg).decode("ascii")
    return f'<div class="cg-asked">Captions for<img alt="uploaded picture" src="data:image/jpeg;base64,{data}"></div>'


def findings(explorer: Explorer, found: Sequence[Finding], explained: str) -> str:
    """One card per pair: its image, its caption, what each voice says."""
    cards = "".join(_finding(explorer, one) for one in found) or note("no such pair")
    return f'<section>{note(explained)}<div class="cg-cards">{cards}</div></section>'


def _finding(explorer: Explorer, found: Finding) -> str:
    captions = explorer.corpus.captions
    mark = '<span class="cg-own">original</span>' if found.original else ""
    return (
        f'<article class="cg-card">{mark}<p class="cg-text"><button type="button" data-pick="caption:{found.caption}">'
        f"{text(captions.texts[found.caption])}</button></p>"
        f'<button type="button" data-pick="image:{found.image}">{image(explorer, found.image, found.caption)}</button>'
        f"{values(found.values)}</article>"
    )


def values(found: dict[str, float]) -> str:
    """What each voice says, as a table; RANK is kept negative, so that high is good for all."""
    rows = [(name, f"{-value:.0f}" if name == RANK else f"{value:.3f}") for name, value in found.items()]
    return table(rows)


def table(rows: Iterable[tuple[object, object]]) -> str:
    body = "".join(f"<tr><th>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in rows)
    return f'<table class="cg-table">{body}</table>'


def pair_to_rate(explorer: Explorer, number: int, caption: int) -> str:
    """A pair as reviewers see it: the picture alone, or where there is none the image's captions without the rated one;
    no score, and not whether the caption is the image's own."""
    seen = picture(explorer, number)
    asked = "How well does the caption describe the image" + ("?" if seen else " that these captions were written for?")
    return (
        f'<div class="cg-pair"><p>{asked}</p>'
        f'<p class="cg-text" id="cg-rated">{text(explorer.corpus.captions.texts[caption])}</p>'
        f"{seen or captions_of(explorer, number, caption)}</div>"
    )


def agreement(found: dict[str, Any]) -> str:
    """What `judgements.agreement` found."""
    rows: list[tuple[object, object]] = [
        (f"rated by {name}", f"{n} of {found['items']}") for name, n in found["reviewers"].items()
    ]
    rows.append(("pairs rated by two or more", found["rated_twice"]))
    for level, value in found["alpha"].items():
        undefined = "– (needs pairs that two people rated, and two different scores)"
        rows.append((f"Krippendorff's alpha, {level}", undefined if value is None else f"{value:.3f}"))
    recall = found.get("recall")
    if recall:
        rows.append(("R@10 of the labels", f"{recall['labels']:.1f}"))
        rows += [(f"R@10 by {name}", f"{value:.1f}") for name, value in recall["reviewers"].items()]
        rows.append(("R@10, mean of reviewers", "–" if recall["mean"] is None else f"{recall['mean']:.1f}"))
    return table(rows) if found["reviewers"] else note("Nobody has rated a pair yet.")
