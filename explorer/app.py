"""The explorer's page: three tabs of Gradio components around the functions that answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when Gradio is imported

import gradio as gr
import numpy as np

from capgrade.explorer import page
from capgrade.explorer.answers import Explorer
from capgrade.explorer.findings import PEOPLE
from capgrade.explorer.review_tab import review_tab
from capgrade.explorer.reviews import Review
from capgrade.schemas.errors import InputError

CSS = Path(__file__).with_name("style.css")
TITLE = "capgrade explorer"
PICKED = """element.addEventListener('click', event => {
  const picked = event.target.closest('[data-pick]');
  if (picked) trigger('click', {pick: picked.dataset.pick});
});"""
READY = "() => { document.body.dataset.ready = 'yes'; }"  # from now on the page answers
THEME = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
APART, JUDGED, ERRORS = "Measures disagree", "Labels and people disagree", "A model's errors that labels call relevant"
COUNT = 12
KEPT = 300  # seconds that an uploaded picture may stay that was never asked about
PRIVATE: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
QUIET = {**PRIVATE, "queue": False}


def build(explorer: Explorer, review: Review) -> gr.Blocks:
    """The app; it is served by `capgrade.explorer.server`."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=(60, KEPT)) as blocks:
        gr.HTML(_headline(explorer), elem_id="cg-headline")
        with gr.Tabs(selected="search") as tabs:
            with gr.Tab("Search", id="search"):
                pick = _search_tab(explorer)
            with gr.Tab("Disagreements", id="disagreements"):
                found = _disagreements_tab(explorer)
            with gr.Tab("Review", id="review"):
                review_tab(explorer, review)
        found.click(pick.answer, outputs=pick.output, api_name="found_pick", **QUIET)
        found.click(lambda: gr.Tabs(selected="search"), outputs=tabs, api_name="found_show", **QUIET)
        blocks.load(js=READY)
    return blocks


def _headline(explorer: Explorer) -> str:
    captions = explorer.corpus.captions
    counts = (
        f"{captions.n_captions:,} captions of {captions.n_images:,} images, split {captions.split}; "
        f"{len(explorer.corpus.pairs):,} labelled pairs"
    )
    return f"<h1>{page.text(TITLE)}</h1>{page.note(counts)}"


def answered(ask: Callable[[], str]) -> str:
    """What a question gives, or the one line about what is wrong with it."""
    try:
        return ask()
    except InputError as error:
        return page.problem(error)


class _Picks:
    """Answers what is clicked: an image or a caption, wherever it is shown."""

    def __init__(self, explorer: Explorer, output: gr.HTML) -> None:
        self.explorer, self.output = explorer, output

    def answer(self, event: gr.EventData) -> str:
        what, _, number = str(event.pick).partition(":")
        known = {"image": self.explorer.corpus.captions.n_images, "caption": self.explorer.corpus.captions.n_captions}
        if what not in known or not number.isdecimal() or int(number) >= known[what]:
            return page.problem("no such item")
        return answered(lambda: (self.image if what == "image" else self.caption)(int(number)))

    def text(self, text: str) -> str:
        if not text.strip():
            return page.note("Type a caption: the images that each measure and model ranks first appear here.")
        title = page.text_title(text)
        return answered(lambda: page.answers(self.explorer, title, self.explorer.of_text(text), images=True))

    def caption(self, number: int) -> str:
        title = page.caption_title(self.explorer, number)
        return page.answers(self.explorer, title, self.explorer.of_caption(number), images=True)

    def image(self, number: int) -> str:
        title = page.image_title(self.explorer, number)
        return page.answers(self.explorer, title, self.explorer.of_image(number), images=False)

    def identified(self, key: str) -> str:
        """By the id of a caption, or else of an image."""
        captions = self.explorer.corpus.captions
        if key.strip() in captions.caption_ids:
            return answered(lambda: self.caption(captions.caption_ids.index(key.strip())))
        if key.strip() in captions.image_ids:
            return answered(lambda: self.image(captions.image_ids.index(key.strip())))
        return page.problem(f"no caption or image has the id '{key.strip()[:80]}'")

    def some(self, what: str) -> str:
        captions = self.explorer.corpus.captions
        count = captions.n_images if what == "image" else captions.n_captions
        number = int(np.random.default_rng().integers(count))
        return answered(lambda: (self.image if what == "image" else self.caption)(number))

    def upload(self, path: str) -> str:
        """The file is read and deleted: nothing of it stays on the server."""
        data = Path(path).read_bytes()
        Path(path).unlink()

        def ask() -> str:
            found = self.explorer.of_upload(data)
            return page.answers(self.explorer, page.upload_title(thumbnail(data)), found, images=False)

        return answered(ask)


def thumbnail(data: bytes) -> bytes:
    """JPEG bytes of an uploaded picture, small enough for the page. InputError for what is no picture."""
    from PIL import Image

    from capgrade.explorer.pictures import jpeg
    from capgrade.schemas.pictures import decode_image

    return jpeg(Image.fromarray(decode_image(data, "uploaded picture")))


def _search_tab(explorer: Explorer) -> _Picks:
    query = gr.Textbox(label="Caption", placeholder="a dog runs on the beach", elem_id="cg-query", max_length=2000)
    with gr.Row(elem_classes="cg-ask"):
        key = gr.Textbox(label="Or the id of a caption or an image; enter", elem_id="cg-id", max_length=300, scale=2)
        caption = gr.Button("Any caption", elem_id="cg-any-caption", min_width=100)
        image = gr.Button("Any image", elem_id="cg-any-image", min_width=100)
    with gr.Accordion("Or a picture of yours", open=False, elem_id="cg-upload-area"):
        if not explorer.looks_at_pictures:
            gr.HTML(page.note(NO_UPLOAD), elem_id="cg-no-upload")
            upload = None
        else:
            upload = gr.File(label="Picture", file_types=["image"], type="filepath", elem_id="cg-upload", height=140)
    output = gr.HTML(elem_id="cg-answers", js_on_load=PICKED)
    picks = _Picks(explorer, output)
    output.value = picks.text("")
    query.change(picks.text, query, output, trigger_mode="always_last", api_name="search_text", **QUIET)
    key.submit(picks.identified, key, output, api_name="search_id", **QUIET)
    caption.click(partial(picks.some, "caption"), outputs=output, api_name="search_any_caption", **QUIET)
    image.click(partial(picks.some, "image"), outputs=output, api_name="search_any_image", **QUIET)
    output.click(picks.answer, outputs=output, api_name="search_pick", **QUIET)
    if upload is not None:
        upload.upload(picks.upload, upload, output, api_name="search_picture", **PRIVATE)
    return picks


NO_UPLOAD = (
    "Labels rank the images they know by their captions. To rank captions for another picture, start with a trained "
    "model and the detector it was trained with: --run, --index and --detector."
)


def _disagreements_tab(explorer: Explorer) -> gr.HTML:
    names = list(explorer.corpus.pairs.values)
    kinds = [APART] * (len(names) > 1) + [JUDGED] * (explorer.people is not None) + [ERRORS] * bool(explorer.models)
    if not kinds:
        return gr.HTML(page.note("There is only one measure, so no measures disagree."), js_on_load=PICKED)
    with gr.Row():
        kind = gr.Radio(kinds, value=kinds[0], label="What", elem_id="cg-kind")
        first = gr.Dropdown(label="Ranks it high", elem_id="cg-high")
        second = gr.Dropdown(label="Ranks it low", elem_id="cg-low")
    output = gr.HTML(elem_id="cg-findings", js_on_load=PICKED)

    def choices(chosen: str) -> tuple[gr.Dropdown, gr.Dropdown]:
        high, low, labels = voices_of(explorer, chosen)
        return gr.Dropdown(high, value=high[0], label=labels[0]), gr.Dropdown(low, value=low[-1], label=labels[1])

    def show(chosen: str, high: str, low: str) -> str:
        return answered(lambda: found_html(explorer, chosen, high, low))

    chosen = [kind, first, second]
    changed = kind.change(choices, kind, [first, second], api_name="found_choices", **PRIVATE)
    changed.then(show, chosen, output, api_name="found", **PRIVATE)
    gr.on([first.input, second.input], show, chosen, output, api_name="found_by", **PRIVATE)
    high, low, labels = voices_of(explorer, kinds[0])
    first.choices, first.value, first.label = [(n, n) for n in high], high[0], labels[0]
    second.choices, second.value, second.label = [(n, n) for n in low], low[-1], labels[1]
    output.value = show(kinds[0], high[0], low[-1])
    return output


def voices_of(explorer: Explorer, kind: str) -> tuple[list[str], list[str], tuple[str, str]]:
    """The names of the two lists, and their labels."""
    measures, models = [m.name for m in explorer.measures], [m.name for m in explorer.models]
    if kind == ERRORS:
        return models, measures, ("Model", "Labels by")
    names = list(explorer.corpus.pairs.values) if kind == APART else [PEOPLE, *measures, *models]
    return names, names, ("Ranks it high", "Ranks it low")


def found_html(explorer: Explorer, kind: str, high: str, low: str) -> str:
    """The pairs of one kind of disagreement. InputError for names that do not go together."""
    firsts, seconds, _ = voices_of(explorer, kind)
    if high not in firsts or low not in seconds or high == low:
        raise InputError("choose two different measures or models")
    if kind == ERRORS:
        found = explorer.errors_that_are_none(high, low, COUNT)
        explained = (
            f"Not the caption's own image, but ranked above it among the first ten by {high}; highest {low} first."
        )
    elif kind == JUDGED:
        found = explorer.labels_and_people(high, low, COUNT)
        explained = f"Judged pairs that {high} ranks highest above {low}, by rank among all judged pairs."
    else:
        found = explorer.measures_apart(high, low, COUNT)
        explained = f"Pairs that {high} ranks highest above {low}, by rank among the labelled pairs."
    return page.findings(explorer, found, explained)
