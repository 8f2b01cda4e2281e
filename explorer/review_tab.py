"""The tab in which people rate pairs: a name, a pair, six buttons; every click is on the disk before the next pair."""

from __future__ import annotations

from typing import Any

import gradio as gr

from explorer import page
from explorer.answers import Explorer
from explorer.judgements import agreement
from explorer.ratings import SCORES, reviewer_name
from explorer.reviews import Review
from schemas.errors import InputError

MEANING = ("0 nothing alike", "1 little", "2 some of it", "3 about half", "4 most of it", "5 exactly")
INTRODUCTION = (
    "Rate how well a caption describes an image, from 0 to 5. You see no scores and no other ratings, in an order of "
    "your own. Every click is saved; give the same name to go on later."
)


def review_tab(explorer: Explorer, review: Review) -> None:
    """The components of the tab, inside the caller's."""
    gr.HTML(page.note(INTRODUCTION))
    with gr.Row(elem_classes="cg-ask"):
        name = gr.Textbox(label="Your name", elem_id="cg-reviewer", max_length=64, scale=2)
        start = gr.Button("Start or go on", variant="primary", elem_id="cg-start", min_width=120)
    shown = gr.State(
        None
    )  # reviewer and item, as they were shown: a click rates that pair, whatever the name field says
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
    quick: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
    gr.on([start.click, name.submit], show.start, name, outputs, **quick)
    for score, button in zip(SCORES, buttons, strict=True):
        button.click(lambda state, score=score: show.rated(state, score), shown, outputs, **quick)
    back.click(show.back, shown, outputs, **quick)
    refresh.click(lambda: show.agreement(), outputs=report, **quick)


EXPORT = "Download judgements.csv: mean scores, as capgrade agree --judgements reads them"


class _Show:
    """What the tab shows after each click: its state, the pair, the row of buttons and the way back."""

    def __init__(self, explorer: Explorer, review: Review) -> None:
        self.explorer, self.review = explorer, review

    def start(self, name: str) -> tuple[Any, ...]:
        try:
            reviewer = reviewer_name(name)
            return self._item(reviewer, self.review.ratings.following(reviewer))
        except (InputError, OSError) as error:
            return None, page.problem(error), gr.Row(visible=False), gr.Button(visible=False)

    def rated(self, state: tuple[str, int | None] | None, score: int) -> tuple[Any, ...]:
        reviewer, item = state or ("", None)
        if item is None:
            return None, page.problem("give your name first"), gr.Row(visible=False), gr.Button(visible=False)
        try:
            self.review.ratings.rate(reviewer, item, score)
        except (InputError, OSError) as error:  # not saved: the same pair stays
            shown = page.problem(f"NOT SAVED: {error}") + page.pair_to_rate(self.explorer, *self.review.pair(item))
            return state, shown, gr.Row(visible=True), gr.Button(visible=True)
        return self._item(reviewer, self.review.ratings.following(reviewer))

    def back(self, state: tuple[str, int | None] | None) -> tuple[Any, ...]:
        if state is None:
            return self.start("")
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
