"""The order of three systems by recall and NDCG of own captions, and by NDCG of graded labels,
which count other captions too.

    python -m research.studies.ranks --captions DIR --relevance DIR --out ranks.md

The systems search the images of a split, each by its first caption in place of its picture:
Sentence-BERT's cosine, the same of 24 of its 384 numbers, and the cosine of tf-idf word counts.
Queries are the other captions, and images.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from capgrade.evaluation import evaluate
from capgrade.labels import Labels
from capgrade.measures.embeddings import embed
from capgrade.pretrained import EMBEDDED
from capgrade.schemas.captions import Captions
from research.studies import arguments, write_rows

HEAD = "| system | recall@1 | ndcg@10, own captions |"  # the beginning of the table


def tfidf(captions: Captions) -> np.ndarray:
    """Unit vectors of word counts times log(captions / captions with the word), float32
    [n_captions, words]."""
    tokens = captions.table["tokens"].to_pylist()
    vocabulary = sorted({word for row in tokens for word in row})
    number = {word: k for k, word in enumerate(vocabulary)}
    rows = np.repeat(np.arange(len(tokens)), [len(row) for row in tokens])
    columns = np.array([number[word] for row in tokens for word in row])
    ones = np.ones(len(rows), np.float32)
    counts = csr_array((ones, (rows, columns)), shape=(len(tokens), len(number)))
    n_with_word = np.bincount(
        np.unique(np.stack([rows, columns]), axis=1)[1], minlength=len(number)
    )
    weighted = counts.multiply(np.log(len(tokens) / n_with_word)[None, :]).tocsr()
    return weighted.multiply(1 / np.sqrt(weighted.multiply(weighted).sum(axis=1))[:, None]).tocsr()


def table(captions: Path, relevance: Path) -> Iterator[str]:
    """The lines of the Markdown table."""
    labels = Labels.load(relevance, captions=captions)
    first = np.unique(labels.owner, return_index=True)[1]
    others = np.setdiff1d(np.arange(labels.n_captions), first)
    owner, words, vectors = labels.owner[others], tfidf(labels.table), embed(labels.texts, EMBEDDED)
    short = vectors[:, ::16] / np.linalg.norm(vectors[:, ::16], axis=1, keepdims=True)
    is_own = owner[None, :] == np.arange(len(first))[:, None]
    graded = {"own": is_own.astype(np.float32)}
    for name in labels.measures:
        graded[name] = labels.block(range(len(first)), others, name).relevance
    columns = "".join(f" ndcg@10, `{name}` |" for name in labels.measures)
    yield f"{HEAD}{columns}\n|---{'|---:' * (len(graded) + 1)}|"
    systems = {
        "Sentence-BERT": lambda: vectors[first] @ vectors[others].T,
        "24 of its numbers": lambda: short[first] @ short[others].T,
        "tf-idf of words": lambda: (words[first] @ words[others].T).toarray().astype(np.float32),
    }
    for name, scores in systems.items():
        metrics = ["recall@1", "ndcg@10"]
        evaluation = evaluate(scores(), graded, metrics, owner=owner, intervals=None)
        directions = evaluation.t2i, evaluation.i2t
        pairs = zip(*(direction.mean.values() for direction in directions), strict=True)
        yield f"| {name} | {' | '.join(f'{t2i:.3f}, {i2t:.3f}' for t2i, i2t in pairs)} |"


def main() -> None:
    args = arguments(__doc__, "captions", "relevance")
    write_rows(table(args.captions, args.relevance), args.out)


if __name__ == "__main__":
    main()
