"""Relevance of a caption to an image's picture, by a dual encoder such as CLIP or SigLIP.

CLIPScore and RefCLIPScore are those of Hessel et al. 2021 (arXiv 2104.08718):
CLIP-S(c, v) = 2.5 max(cos(c, v), 0), and RefCLIP-S(c, R, v) is the harmonic mean of CLIP-S(c, v)
and max(0, the largest cos(c, r) over references r in R). The authors' code (jmhessel/clipscore)
puts "A photo depicts " before every caption and reference.
"""

from __future__ import annotations

from typing import Any

COSINE, CLIPSCORE, REFCLIPSCORE = "cosine", "clipscore", "refclipscore"
WEIGHT = 2.5  # of CLIPScore
PROMPTS = {COSINE: "", CLIPSCORE: "A photo depicts", REFCLIPSCORE: "A photo depicts"}
RANGES = {
    COSINE: (-1.0, 1.0),
    CLIPSCORE: (0.0, WEIGHT),
    REFCLIPSCORE: (0.0, 2 * WEIGHT / (WEIGHT + 1)),
}
SMALLEST = 1e-30  # of a sum that is divided by
EXAMPLE = "openai/clip-vit-base-patch32, google/siglip2-base-patch16-224, or a folder"


def combine_cosines(form: str, picture_cosine: Any, reference_cosine: Any = None) -> Any:
    """A form's values from float32 cosines of captions with pictures and, for RefCLIPScore, the
    largest with a reference: arrays, or tensors, of one shape."""
    if form == COSINE:
        return picture_cosine
    score = WEIGHT * picture_cosine.clip(0)
    if form == CLIPSCORE:
        return score
    reference_cosine = reference_cosine.clip(0)
    return 2 * score * reference_cosine / (score + reference_cosine).clip(SMALLEST)
