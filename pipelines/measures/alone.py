"""Whether a pair's value, to the last bit, is one of its own texts alone, whatever other captions there are."""

from __future__ import annotations

from capgrade.schemas.params import MeasuresParams

WORD_FOR_WORD = ("bleu", "rouge_l")  # of whole numbers, which no order of summation changes
CIDERS = ("cider", "cider_plain")


def hangs_on_others(name: str, params: MeasuresParams) -> str | None:
    """Why a measure's value of a pair changes when other captions come or go; None where it does not."""
    if name in params.all_mixtures:
        parts = {part: hangs_on_others(part, params) for part in params.all_mixtures[name]}
        return next((f"of its part {part}, {why}" for part, why in parts.items() if why), None)
    if name in WORD_FOR_WORD:
        return None
    if name in CIDERS:
        fixed = getattr(params, name).document_frequency is not None
        return None if fixed else f"document frequencies are those of the captions (measures.{name}.document_frequency)"
    if name == "tfidf_cosine":
        return "document frequencies are those of the captions"
    if name in params.imported:
        return "the matrix has a row and a column for each image and caption"
    if name.startswith("sbert_shared"):
        return "what captions of one image share is learnt from the captions"
    if name.startswith("sbert"):
        return "the last bits of an embedding hang on the texts that are encoded together"
    return "the last bits of a value may hang on the numbers that words have"
