"""The tab in which people rate pairs: a name, a pair, six buttons; every click is on the disk before the next pair."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from capgrade.explorer import page
from capgrade.explorer.answers import Explorer
from capgrade.explorer.judgements import agreement
from capgrade.explorer.reviews import Review
from capgrade.schemas.errors import InputError
from capgrade.schemas.reviews import SCORES

MEANING = ("0 nothing alike", "1 little", "2 some of it", "3 about half", "4 most of it", "5 exactly")
INTRODUCTION = (
    "Rate how well a caption describes an image, from 0 to 5. You see no scores and no other ratings, in an order of "
    "your own. Every click is saved. A name is yours in this browser; to go on in another one, give the key too."
)
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def review_tab(explorer: Explorer, review: Review) -> None:
    """The components of the tab, inside the caller's."""
    gr.HTML(page.note(INTRODUCTION))
    with gr.Row(elem_classes="cg-ask"):
        name = gr.Textbox(label="Your name", elem_id="cg-reviewer", max_length=64, scale=2)
        key = gr.Textbox(label="Its key, in another browser", elem_id="cg-key", max_length=64, scale=1)
        start = gr.Button("Start or go on", variant="primary", elem_id="cg-start", min_width=120)
    shown = gr.State(
        None
    )  # reviewer and item, as they were shown: a click rates that pair, whatever the name field says
    keys = gr.BrowserState({}, storage_key="capgrade-keys", secret="capgrade")  # name -> key; any start can read it
    pair = gr.HTML(elem_id="cg-pair")
    with gr.Row(visible=False, elem_classes="cg-rate", equal_height=True) as rate:
        buttons = [gr.Button(MEANING[score], elem_id=f"cg-rate-{score}", min_width=80) for score in SCORES]
    back = gr.Button("Back", visible=False, size="sm", elem_id="cg-back")
    with gr.Accordion("Agreement and export", open=False):
        report = gr.HTML(elem_id="cg-agreement")
        refresh = gr.Button("Work out the agreement", size="sm", elem_id="cg-refresh")
        gr.HTML(f'<a href="judgements.csv" download="judgements.csv" id="cg-export">{page.text(EXPORT)}</a>')

    outputs = [shown, pair, rate, back]
    show = _Show(explorer, review)
    gr.on(
        [start.click, name.submit, key.submit],
        show.start,
        [name, key, keys],
        [*outputs, keys],
        api_name="review_start",
        **QUIET,
    )
    for score, button in zip(SCORES, buttons, strict=True):
        rated = partial(show.rated, score=score)
        button.click(rated, shown, outputs, api_name=f"review_rate_{score}", **QUIET)
    back.click(show.back, shown, outputs, api_name="review_back", **QUIET)
    refresh.click(show.agreement, outputs=report, api_name="review_agreement", **QUIET)


EXPORT = "Download judgements.csv: mean scores, as capgrade agree --judgements reads them"


class _Show:
    """What the tab shows after each click: its state, the pair, the row of buttons and the way back."""

    def __init__(self, explorer: Explorer, review: Review) -> None:
        self.explorer, self.review = explorer, review

    def start(self, name: str, key: str, keys: dict[str, str]) -> tuple[Any, ...]:
        """`keys` are those that the browser keeps; a key that was typed goes before them."""
        try:
            kept = keys.get(" ".join(name.split()), "") if isinstance(keys, dict) else ""
            reviewer, key = self.review.admitted(name, key.strip() or kept)
            state, shown, *rest = self._item(reviewer, self.review.ratings.following(reviewer))
            said = page.note(f"{reviewer}'s key, to go on in another browser: {key}")
            return state, said + shown, *rest, {**keys, reviewer: key}
        except (InputError, OSError) as error:
            return *_nothing(error), keys

    def rated(self, state: tuple[str, int | None] | None, score: int) -> tuple[Any, ...]:
        reviewer, item = state or ("", None)
        if item is None:
            return _nothing("give your name first")
        try:
            self.review.ratings.rate(reviewer, item, score)
        except (InputError, OSError) as error:  # not saved: the same pair stays
            shown = page.problem(f"NOT SAVED: {error}") + page.pair_to_rate(self.explorer, *self.review.pair(item))
            return state, shown, gr.Row(visible=True), gr.Button(visible=True)
        return self._item(reviewer, self.review.ratings.following(reviewer))

    def back(self, state: tuple[str, int | None] | None) -> tuple[Any, ...]:
        if state is None:
            return _nothing("give your name first")
        reviewer, item = state
        previous = self.review.previous(reviewer, item)
        return self._item(reviewer, item if previous is None else previous)

    def agreement(self) -> str:
        try:
            return page.agreement(agreement(self.review.ratings))
        except InputError as error:
            return page.problem(error)

    def _item(self, reviewer: str, item: int | None) -> tuple[Any, ...]:
        done = self.review.ratings.of(reviewer)
        count = f"{len(done)} of {len(self.review.ratings.plan.items)} rated"
        if item is None:
            shown = page.note(f"{count}. That was the last one: thank you, {reviewer}.")
        else:
            again = f", this one {done[item]}" if item in done else ""
            shown = page.note(count + again) + page.pair_to_rate(self.explorer, *self.review.pair(item))
        return (reviewer, item), shown, gr.Row(visible=item is not None), gr.Button(visible=bool(done))


def _nothing(problem: object) -> tuple[Any, ...]:
    return None, page.problem(problem), gr.Row(visible=False), gr.Button(visible=False)
