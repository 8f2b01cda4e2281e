"""pycocoevalcap's scorers, the peers of our caption scores and of our relevance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

Texts = Mapping[Any, list[str]]  # by image: references, or one candidate
Scorer = Callable[[Texts, Texts], tuple[Any, Any]]  # of references and candidates: the corpus' score, and each image's

CLASSES = {"bleu": "Bleu", "cider": "Cider", "meteor": "Meteor", "rouge_l": "Rouge"}


def coco_scorer(name: str) -> Scorer:
    """One of pycocoevalcap's, by our name of the measure. METEOR's jar has started and read its data."""
    kind = CLASSES[name]
    scorer = getattr(import_module(f"pycocoevalcap.{kind.lower()}.{kind.lower()}"), kind)()
    options = {"verbose": 0} if name == "bleu" else {}

    def score(references: Texts, candidates: Texts) -> tuple[Any, Any]:
        return scorer.compute_score(references, candidates, **options)

    if name == "meteor":
        score({0: ["a dog"]}, {0: ["a dog"]})
    return score
