"""The parts of research/studies/negatives.py and research/studies/ranks.py, on scenes."""

from pathlib import Path

import numpy as np

from capgrade import Labels
from research.studies import negatives, ranks
from tests.capgrade.conftest import made  # noqa: F401  # a fixture


def test_both_ways_mine_captions_of_other_images(made: Path) -> None:  # noqa: F811
    labels = Labels.load(made / "relevance", captions=made / "captions")
    texts = {
        text: np.random.default_rng(k).standard_normal(16)
        for k, text in enumerate(sorted(set(labels.texts)))
    }
    vectors = np.stack([texts[text] / np.linalg.norm(texts[text]) for text in labels.texts]).astype(
        np.float32
    )
    ours = negatives.mine_by_labels(labels, vectors, "rouge_l", 0.5, 2)
    theirs = negatives.mine_by_margin(labels, vectors, -9.0, 2)  # so wide that nothing is left out
    values = labels.block(range(12), range(60), "rouge_l").relevance
    assert len(ours) == 24 and (values[tuple(ours.T)] < 0.5).all()
    assert len(theirs) and (labels.owner[ours[:, 1]] != ours[:, 0]).all()


def test_ranks_have_a_row_for_each_system(made: Path) -> None:  # noqa: F811
    rows = "\n".join(ranks.table(made / "captions", made / "relevance")).splitlines()
    assert rows[0].startswith(ranks.HEAD) and [row.split(" | ")[0] for row in rows[2:]] == [
        "| Sentence-BERT", "| 24 of its numbers", "| tf-idf of words"
    ]  # fmt: skip
    assert all(row.count("|") == rows[0].count("|") for row in rows)
