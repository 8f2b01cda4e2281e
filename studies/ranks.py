"""How three systems rank when other captions count too: recall and NDCG of own captions, and NDCG
by graded labels.

    python -m studies.ranks --captions DIR --relevance DIR --out ranks.md

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
from capgrade.measures.embeddings import EMBEDDED, embed
from capgrade.schemas.captions import Captions
from studies import arguments, write_rows

HEAD = "| system | recall@1 | ndcg@10, own captions |"  # how the table begins


def tfidf(captions: Captions) -> np.ndarray:
    """Unit vectors of word counts times log(captions / captions with the word), float32
    [n_captions, words]."""
    tokens = captions.table["tokens"].to_pylist()
    at = {word: k for k, word in enumerate(sorted({word for row in tokens for word in row}))}
    rows = np.repeat(np.arange(len(tokens)), [len(row) for row in tokens])
    columns = np.array([at[word] for row in tokens for word in row])
    counts = csr_array(
        (np.ones(len(rows), np.float32), (rows, columns)), shape=(len(tokens), len(at))
    )
    having = np.bincount(np.unique(np.stack([rows, columns]), axis=1)[1], minlength=len(at))
    weighted = counts.multiply(np.log(len(tokens) / having)[None, :]).tocsr()
    return weighted.multiply(1 / np.sqrt(weighted.multiply(weighted).sum(axis=1))[:, None]).tocsr()


def table(captions: Path, relevance: Path) -> Iterator[str]:
    """Row by row."""
    labels = Labels.load(relevance, captions=captions)
    first = np.unique(labels.owner, return_index=True)[1]
    others = np.setdiff1d(np.arange(labels.n_captions), first)
    owner, words, vectors = labels.owner[others], tfidf(labels.table), embed(labels.texts, EMBEDDED)
    short = vectors[:, ::16] / np.linalg.norm(vectors[:, ::16], axis=1, keepdims=True)
    graded = {
        name: labels.block(range(len(first)), others, name).relevance for name in labels.measures
    }
    graded = {
        "own": (owner[None, :] == np.arange(len(first))[:, None]).astype(np.float32),
        **graded,
    }
    yield "".join(
        [
            HEAD,
            *(f" ndcg@10, `{name}` |" for name in labels.measures),
            "\n|---",
            "|---:" * (len(graded) + 1),
            "|",
        ]
    )
    systems = {
        "Sentence-BERT": lambda: vectors[first] @ vectors[others].T,
        "24 of its numbers": lambda: short[first] @ short[others].T,
        "tf-idf of words": lambda: (words[first] @ words[others].T).toarray().astype(np.float32),
    }
    for name, scores in systems.items():
        found = evaluate(scores(), graded, ["recall@1", "ndcg@10"], owner=owner, intervals=None)
        both = zip(*(way.mean.values() for way in (found.t2i, found.i2t)), strict=True)
        yield (
            f"| {name} |"
            f" {' | '.join(f'{to_image:.3f}, {to_text:.3f}' for to_image, to_text in both)} |"
        )


def main() -> None:
    given = arguments(__doc__, HEAD, "captions", "relevance")
    write_rows(table(given.captions, given.relevance), given.out)


if __name__ == "__main__":
    main()
