"""What each column of a published dataset is, in words; how a measure's value comes about follows its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capgrade.pipelines.measures.own_pairs import LEFT_OUT

COLUMNS = {
    "image_id": "the image's id in the source",
    "caption_id": "the caption's id in the source",
    "original": "the caption was written for this image",
    "reasons": "why the pair was kept: `own` caption, among the highest (`top_*`), drawn from a window of a measure's "
    "range (`window_*`), drawn uniformly (`uniform`)",
    "weight": "1 / probability of being kept: `sum(weight * x) / captions` over an image's rows estimates the mean of "
    "x over all captions without bias",
    "caption": "the caption as the source has it",
    "tokens": "the caption's tokens; CIDEr and BLEU divide one with a no-break space inside",
    "image_file": "the image's file name, where the source knows it",
}
OVER = {
    "max": "the largest over the references",
    "mean": "the mean over the references",
    "first": "the first reference",
}
Used = dict[str, Any]


def _idf(used: Used) -> str:
    corpus = used.get("document_frequency")
    return f"document frequencies of `{corpus}`" if corpus else "document frequencies of this split's images"


def _rouge(used: Used) -> str:
    largest = "F of the largest precision and the largest recall over the references, which may be of two of them"
    return f"ROUGE-L, 0..1: {largest if used['references'] == 'max' else OVER['mean'] + ' of F'}; beta {used['beta']:g}"


def _sbert(used: Used) -> str:
    return f"cosine of Sentence-BERT embeddings (`{used['model']}`), -1..1: {OVER[used['references']]}"


def _sbert_shared(used: Used) -> str:
    shared = f"Sentence-BERT embeddings (`{used['model']}`), mapped to what captions of one image share in this split"
    return f"cosine of {shared}, -1..1: {OVER[used['references']]}"


MEASURES: dict[str, Callable[[Used], str]] = {
    "bleu": lambda used: f"BLEU-{used['n']}, 0..1: n-grams clipped by their largest count in any reference",
    "cider": lambda used: f"CIDEr-D, 0..10: {OVER['mean']}, {_idf(used)}",
    "cider_plain": lambda used: f"CIDEr without clipping and length penalty, 0..10: {OVER['mean']}, {_idf(used)}",
    "meteor": lambda _: f"METEOR 1.5, 0..1: {OVER['max']}",
    "rouge_l": _rouge,
    "sbert": _sbert,
    "sbert_mean": _sbert,
    "sbert_shared": _sbert_shared,
    "sbert_shared_mean": _sbert_shared,
    "scene_graph": lambda _: "F-score of scene graphs, 0..1: the caption's with one of all references together",
    "spice": lambda _: "SPICE, 0..1: the caption's scene graph with one of all references together",
    "tfidf_cosine": lambda _: f"cosine of tf-idf word vectors, 0..1: {OVER['mean']}",
}


def meaning(column: str, used: dict[str, Used]) -> str:
    """A column in words; `used` are the parameters of each measure, as `MeasuresParams.used` gives them."""
    if column in COLUMNS:
        return COLUMNS[column]
    if column not in used:
        name = column.removesuffix(LEFT_OUT)
        return (
            f"of own pairs alone: `{name}` with the caption itself left out of the references; null for other pairs, "
            "where it makes no difference, and where the image has no other caption"
        )
    params = used[column]
    if "weights" in params:
        parts = (
            f"{weight:.3g} `{name}` ({meaning(name, params['measures'])})" for name, weight in params["weights"].items()
        )
        return f"weighted sum: {' + '.join(parts)}"
    return "relevance that another program computed" if "imported" in params else MEASURES[column](params)
