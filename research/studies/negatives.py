"""The share of mined hard negatives that people accept, by the labels' rule and by a relative
margin, on MS-COCO's 5K test split.

    python -m research.studies.negatives --captions DIR --relevance DIR \
        --judgements cxc_sits_test.csv --out negatives.md

All rows mine with the same sentence vectors: an image's first caption is the anchor, and `--k`
captions of other images are mined for each anchor and positive. People are those of Crisscrossed
Captions, who judged some of the pairs (a score of 3 of 5 accepts), and of ECCV Caption, which has
lists of some of the images.
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
from capgrade.measures.embeddings import embed
from capgrade.metrics import Positives, human_lists
from capgrade.pretrained import EMBEDDED
from research.studies import arguments, write_rows

HEAD = "| mined by | pairs | mean cosine | judged | of them accepted |"  # the table's beginning
MARGINS = (0.05, 0.1)
BELOW = {"sbert": (0.6, 0.5), "rouge_l": (0.5, 0.4), "cider": (1.0, 0.5)}
ACCEPTED = 3.0  # the least score of an accepted pair


class Vectors:
    """A model with ready sentence vectors, with the methods that `mine_hard_negatives` calls."""

    device = torch.device("cpu")
    similarity, similarity_pairwise = staticmethod(cos_sim), staticmethod(pairwise_cos_sim)

    def __init__(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        self.vector_of = dict(zip(texts, vectors, strict=True))

    def encode_query(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        return np.stack([self.vector_of[text] for text in texts])

    encode_document = encode_query


def accepted(
    pairs: np.ndarray, judged: Judgements, lists: Positives
) -> tuple[int, float, int, float]:
    """For pairs int64 [n, 2] of image rows and caption rows: how many CxC judged, and the share
    that it accepted; how many have an image with a list of ECCV Caption, and the share in it."""
    scores = zip(judged.image, judged.caption, judged.score, strict=True)
    verdict_of = {(image, caption): score >= ACCEPTED for image, caption, score in scores}
    verdicts = [verdict_of[pair] for pair in map(tuple, pairs.tolist()) if pair in verdict_of]
    with_list = pairs[lists.sizes[pairs[:, 0]] > 0]
    listed = {*zip(lists.queries.tolist(), lists.indices.tolist(), strict=True)}
    inside = [pair in listed for pair in map(tuple, with_list.tolist())]
    return len(verdicts), float(np.mean(verdicts)), len(with_list), float(np.mean(inside))


def mine_by_margin(labels: Labels, vectors: np.ndarray, margin: float, k: int) -> np.ndarray:
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


def mine_by_labels(
    labels: Labels, vectors: np.ndarray, measure: str, below: float, k: int
) -> np.ndarray:
    """The pairs that `Labels.negatives` mines."""
    first = np.unique(labels.owner, return_index=True)[1]
    scores = vectors[first], vectors
    mined = labels.negatives(k, accepted_below=below, measure=measure, scores=scores)
    anchors = np.repeat(mined.anchors, k)
    return np.unique(np.stack([anchors, mined.documents[:, 1:].ravel()], axis=1), axis=0)


def table(captions: Path, relevance: Path, judgements: Path, k: int) -> Iterator[str]:
    """The lines of the Markdown table."""
    labels = Labels.load(relevance, captions=captions)
    assert labels.captions is not None
    vectors = embed(labels.texts, EMBEDDED)
    lists, _ = human_lists("eccv", labels.image_ids, labels.caption_ids)
    judged = read_judgements(judgements, labels.captions)
    first = np.unique(labels.owner, return_index=True)[1]
    yield f"{HEAD} in ECCV Caption's lists |\n|---|---:|---:|---:|---:|---:|"
    rows = [("no filter", mine_by_labels(labels, vectors, "rouge_l", np.inf, k))]
    rows += [
        (f"`relative_margin={margin:g}`", mine_by_margin(labels, vectors, margin, k))
        for margin in MARGINS
    ]
    rows += [
        (f"`{name}`, `accepted_below={below:g}`", mine_by_labels(labels, vectors, name, below, k))
        for name, thresholds in BELOW.items()
        for below in thresholds
    ]
    for name, pairs in rows:
        cosine = np.mean(np.sum(vectors[first[pairs[:, 0]]] * vectors[pairs[:, 1]], axis=1))
        n_judged, share, n_listed, inside = accepted(pairs, judged, lists)
        yield (
            f"| {name} | {len(pairs):,} | {cosine:.3f} | {n_judged:,} | {share:.1%} |"
            f" {inside:.1%} of {n_listed:,} |"
        )


def main() -> None:
    option = {"type": int, "default": 5}
    args = arguments(__doc__, "captions", "relevance", "judgements", k=option)
    write_rows(table(args.captions, args.relevance, args.judgements, args.k), args.out)


if __name__ == "__main__":
    main()
