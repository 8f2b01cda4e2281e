"""What the columns of a published dataset mean, those of a calibration included: what a label means to people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.agreement.calibration import ACCEPTED, SCORE, SHIPPED, Calibration
from capgrade.measures import MEASURES as CATALOGUE
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.own_pairs import LEFT_OUT
from capgrade.schemas.params import MeasuresParams

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
LARGEST = "F of the largest precision and the largest recall over the references, which may be of two of them"
_SHARED = (
    "cosine of Sentence-BERT embeddings (`{model}`), mapped to what captions of one image share in this split, -1..1: "
    "{over}"
)
_SBERT = "cosine of Sentence-BERT embeddings (`{model}`), -1..1: {over}"
# Of each measure, with its parameters, `over` its references, and `idf`: of what its document frequencies are.
MEASURES = {
    "bleu": "BLEU-{n}, 0..1: n-grams clipped by their largest count in any reference",
    "cider": f"CIDEr-D, 0..10: {OVER['mean']}, document frequencies of {{idf}}",
    "cider_plain": f"CIDEr without clipping and length penalty, 0..10: {OVER['mean']}, document frequencies of {{idf}}",
    "meteor": f"METEOR 1.5, 0..1: {OVER['max']}",
    "rouge_l": "ROUGE-L, 0..1: {f}; beta {beta:g}",
    "sbert": _SBERT,
    "sbert_mean": _SBERT,
    "sbert_shared": _SHARED,
    "sbert_shared_mean": _SHARED,
    "scene_graph": "F-score of scene graphs, 0..1: the caption's with one of all references together",
    "spice": "SPICE, 0..1: the caption's scene graph with one of all references together",
    "tfidf_cosine": f"cosine of tf-idf word vectors, 0..1: {OVER['mean']}",
}


def meaning(column: str, used: dict[str, dict[str, Any]], calibrated: Calibrated | None = None) -> str:
    """A column in words; `used` are the parameters of each measure, as `MeasuresParams.used` gives them."""
    if calibrated and column in calibrated.columns:
        return calibrated.meaning(column)
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
    if "imported" in params:
        return "relevance that another program computed"
    if column not in MEASURES:  # somebody's own, in the catalogue
        said = type(CATALOGUE[column](MeasuresParams())).__doc__ or "relevance by a measure of the publisher's own"
        return said.splitlines()[0]
    corpus, references = params.get("document_frequency"), params.get("references", "")
    words = {
        "over": OVER.get(references),
        "idf": f"`{corpus}`" if corpus else "this split's images",
        "f": LARGEST if references == "max" else f"{OVER['mean']} of F",
    }
    return MEASURES[column].format(**params, **words)


@dataclass(frozen=True)
class Calibrated:
    """A calibration file: its name, its digest, and what it says of the published measures."""

    file: str
    sha256: str
    calibration: Calibration

    @property
    def measures(self) -> list[str]:
        return list(self.calibration.curves)

    @property
    def shipped(self) -> bool:
        return self.sha256 == file_digest(SHIPPED)

    @property
    def columns(self) -> dict[str, str]:
        """Column -> measure, in their order."""
        return {name + end: name for name in self.measures for end in (SCORE, ACCEPTED)}

    def of_pairs(self, values: Mapping[str, np.ndarray]) -> dict[str, pa.Array]:
        """Each column from the values of its measure, float32 [n]: the expected score 0..5, or the probability 0..1."""
        found = {}
        for column, name in self.columns.items():
            curve = self.calibration.curves[name]
            meant = curve.expected if column.endswith(SCORE) else curve.probability
            found[column] = pa.array(meant(values[name]).astype(np.float32))
        return found

    def facts(self) -> dict[str, Any]:
        """What the manifest says: the file, its digest, version and judgements, and each measure's error."""
        known = self.calibration
        of = {name: {"ece": known.curves[name].ece, "pairs": known.curves[name].pairs} for name in self.measures}
        return {"file": self.file, "sha256": self.sha256, **known.facts, "measures": of, "columns": self.columns}

    def meaning(self, column: str) -> str:
        facts, name = self.calibration.facts, self.columns[column]
        judged = f"by `{name}` and the calibration; an own pair's is that of its value, as any other's"
        if column.endswith(SCORE):
            return f"human score to be expected, 0..5, {judged}"
        return f"probability that a person gives at least {facts['accept']:g} of {facts['high']:g}, {judged}"
