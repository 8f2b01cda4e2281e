"""What the names of metrics mean, for those that a page shows."""

from __future__ import annotations

from collections.abc import Iterable

from capgrade.pipelines.report.parts import Terms

MEANINGS = {
    "i2t, t2i": "image to text: captions are found for an image; text to image: images for a caption.",
    "recall@k": "Share of queries with one of their own items among the first k. Binary: nothing else counts.",
    "rsum": "Sum of recall@1, @5 and @10 of both directions, in percent: 0 to 600.",
    "ncs@k": "Normalised cumulative semantic score: relevance among the first k over the most that k can have.",
    "nsum": "Sum of ncs@1, @5 and @10 of both directions, in percent: 0 to 600. The graded counterpart of rsum.",
    "ndcg@k": "Like ncs, but an item counts less the later it comes.",
    "asp": "Average semantic precision: how near ranks by similarity are to ranks by relevance. Chance is not 0.",
    "kendall_tau_b": "Rank correlation of similarity and relevance: 1 for the same order, 0 for none.",
}  # docs/metrics.md has the formulas


def glossary(names: Iterable[str]) -> Terms:
    """The terms among these names of metrics; `ncs@10[sbert]` is a kind of `ncs@k`."""
    bases = {name.split("[")[0].split("@")[0] for name in names}
    shown = {term: said for term, said in MEANINGS.items() if term.split("@")[0] in bases or term == "i2t, t2i"}
    return Terms("What the names mean", shown)
