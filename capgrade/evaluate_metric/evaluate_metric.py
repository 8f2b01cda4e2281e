"""`capgrade.score` as a metric of `evaluate`, which copies this file and runs the copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datasets
import evaluate

import capgrade

DESCRIPTION = (
    "BLEU, ROUGE-L, METEOR and CIDEr-D of captions, tokenised and scored as by COCO's evaluation,"
    " without Java."
)
ARGUMENTS = """
    predictions: list of captions, one for each image.
    references: for each image a list of captions, or one.
    measures: of bleu, rouge_l, meteor, cider (the default), bleu_1 to bleu_4, scene_graph, sbert,
        people.
    tokenizer, frequencies, params: as of `capgrade.score`.

Returns measure -> value of the corpus: CIDEr-D 0..10, sbert -1..1, all others 0..1.
"""
CITATION = "https://github.com/tylin/coco-caption"


class CaptionMetric(evaluate.Metric):
    """`compute(predictions=..., references=...)` gives {"bleu_1": .., ..., "cider": ..}, the scores
    of the corpus."""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        features = [
            datasets.Features({"predictions": text, "references": references})
            for references in (datasets.Sequence(text), text)
        ]
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=ARGUMENTS,
            features=features,
        )

    def _compute(
        self,
        predictions: Sequence[str],
        references: Sequence[Any],
        measures: Sequence[str] = ("bleu", "rouge_l", "meteor", "cider"),
        **options: Any,
    ) -> dict[str, float]:
        return capgrade.score(predictions, references, measures, **options).corpus
