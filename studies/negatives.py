"""How many mined hard negatives people accept: by the labels' rule, by a relative margin, on
MS-COCO's 5K test split.

    python -m studies.negatives --captions DIR --relevance DIR \
        --judgements cxc_sits_test.csv --out negatives.md

All rows mine with the same sentence vectors: an image's first caption is the anchor, and what is
mined are captions of other images, `--k` per anchor and positive. People are those of Crisscrossed
Captions, who judged some of the pairs (accepted: 3 of 5 or more), and of ECCV Caption's lists,
which have some of the images.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.util import cos_sim, mine_hard_negatives, pairwise_cos_sim

from capgrade.agreement.judgement_files import read_judgements
from capgrade.agreement.judgements import Judgements
from capgrade.labels import Labels
from capgrade.measures.embeddings import EMBEDDED, embed
from capgrade.metrics import human_lists
from capgrade.metrics.base import Positives
from studies import arguments, write_rows

HEAD = "| mined by | pairs | mean cosine | judged | of them accepted |"  # how the table begins
MARGINS = (0.05, 0.1)
BELOW = {"sbert": (0.6, 0.5), "rouge_l": (0.5, 0.4), "cider": (1.0, 0.5)}
LIKED = 3.0


class Vectors:
    """A model whose sentence vectors are there already, as `mine_hard_negatives` calls one."""

    device = torch.device("cpu")
    similarity, similarity_pairwise = staticmethod(cos_sim), staticmethod(pairwise_cos_sim)

    def __init__(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        self.of = dict(zip(texts, vectors, strict=True))

    def encode_query(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        return np.stack([self.of[text] for text in texts])

    encode_document = encode_query


def accepted(
    pairs: np.ndarray, judged: Judgements, lists: Positives
) -> tuple[int, float, int, float]:
    """Of pairs int64 [n, 2], image rows and caption rows: those that CxC judged, the share
    accepted; those of images with a list of ECCV Caption, the share in it."""
    scores = zip(judged.image, judged.caption, judged.score, strict=True)
    liked = {(image, caption): score >= LIKED for image, caption, score in scores}
    found = [liked[pair] for pair in map(tuple, pairs.tolist()) if pair in liked]
    of = pairs[lists.sizes[pairs[:, 0]] > 0]
    listed = {*zip(lists.queries.tolist(), lists.indices.tolist(), strict=True)}
    inside = [pair in listed for pair in map(tuple, of.tolist())]
    return len(found), float(np.mean(found)), len(of), float(np.mean(inside))


def by_margin(labels: Labels, vectors: np.ndarray, margin: float, k: int) -> np.ndarray:
    """The pairs that sentence-transformers mines: int64 [n, 2], images and captions."""
    texts, owner = labels.texts, labels.owner
    first = np.unique(owner, return_index=True)[1]
    others = [row for row in range(len(texts)) if row != first[owner[row]]]
    pairs = {
        "anchor": [texts[first[owner[row]]] for row in others],
        "positive": [texts[row] for row in others],
    }
    model: Any = Vectors(texts, vectors)
    mined = mine_hard_negatives(
        Dataset.from_dict(pairs),
        model,
        relative_margin=margin,
        num_negatives=k,
        corpus=texts,
        verbose=False,
    )
    image = {texts[row]: owner[row] for row in first[::-1]}
    caption = {text: row for row, text in reversed(list(enumerate(texts)))}
    rows = zip(mined["anchor"], mined["negative"], strict=True)
    return np.unique([(image[anchor], caption[negative]) for anchor, negative in rows], axis=0)


def by_labels(
    labels: Labels, vectors: np.ndarray, measure: str, below: float, k: int
) -> np.ndarray:
    """The pairs that `Labels.negatives` mines."""
    first = np.unique(labels.owner, return_index=True)[1]
    found = labels.negatives(
        k, accepted_below=below, measure=measure, scores=(vectors[first], vectors)
    )
    anchors = np.repeat(found.anchors, k)
    return np.unique(np.stack([anchors, found.documents[:, 1:].ravel()], axis=1), axis=0)


def table(captions: Path, relevance: Path, judgements: Path, k: int) -> Iterator[str]:
    """Row by row."""
    labels = Labels.load(relevance, captions=captions)
    assert labels.captions is not None
    vectors = embed(labels.texts, EMBEDDED)
    lists, _ = human_lists("eccv", labels.image_ids, labels.caption_ids)
    judged = read_judgements(judgements, labels.captions)
    first = np.unique(labels.owner, return_index=True)[1]
    yield f"{HEAD} in ECCV Caption's lists |\n|---|---:|---:|---:|---:|---:|"
    rows = [("no filter", by_labels(labels, vectors, "rouge_l", np.inf, k))]
    rows += [
        (f"`relative_margin={margin:g}`", by_margin(labels, vectors, margin, k))
        for margin in MARGINS
    ]
    rows += [
        (f"`{name}`, `accepted_below={below:g}`", by_labels(labels, vectors, name, below, k))
        for name, thresholds in BELOW.items()
        for below in thresholds
    ]
    for name, pairs in rows:
        cosine = np.mean(np.sum(vectors[first[pairs[:, 0]]] * vectors[pairs[:, 1]], axis=1))
        known, share, listed, inside = accepted(pairs, judged, lists)
        yield (
            f"| {name} | {len(pairs):,} | {cosine:.3f} | {known:,} | {share:.1%} | {inside:.1%} of"
            f" {listed:,} |"
        )


def main() -> None:
    given = arguments(
        __doc__, HEAD, "captions", "relevance", "judgements", k={"type": int, "default": 5}
    )
    write_rows(table(given.captions, given.relevance, given.judgements, given.k), given.out)


if __name__ == "__main__":
    main()
