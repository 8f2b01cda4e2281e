"""`capgrade.score`: BLEU, METEOR, ROUGE-L, CIDEr-D, scene graphs and Sentence-BERT of candidates with references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.measures.scores.corpus import Corpus
from capgrade.measures.scores.frequencies import Frequencies
from capgrade.measures.scores.given import Captions, given
from capgrade.measures.scores.measures import DEFAULT, Scored, scored
from capgrade.metrics.uncertainty import Interval, PairedTest, interval, paired
from capgrade.schemas.errors import InputError


@dataclass(frozen=True)
class Scores:
    """Scores of candidates.

    `ids`: the image of each candidate, in the order given; `corpus`: measure -> float; `sentences`: measure -> float64
    [candidates] in the order of `ids`.

    >>> ours, theirs = (score([text], [["a dog is running"]], "rouge_l") for text in ("a dog runs", "a cat"))
    >>> round(ours.compare(theirs)["rouge_l"].difference, 4)
    0.2426
    """

    ids: list[Any]
    corpus: dict[str, float]
    sentences: dict[str, np.ndarray]
    _scored: dict[str, Scored] = field(repr=False)

    def intervals(self, *, level: float = 0.95, samples: int = 1000, seed: int = 0) -> dict[str, Interval]:
        """Percentile bootstrap intervals of the corpus scores, over candidates; seeded."""
        return {n: interval(one, level=level, samples=samples, seed=seed) for n, one in self._scored.items()}

    def compare(
        self, other: Scores, *, level: float = 0.95, samples: int = 1000, seed: int = 0
    ) -> dict[str, PairedTest]:
        """This system less another on the same images, measure by measure: paired bootstrap interval of the difference
        and the p-value of approximate randomisation (Riezler and Maxwell 2005).

        InputError when the candidates are not of the same images in the same order, or the measures differ.
        """
        if self.ids != other.ids:
            raise InputError("the systems have candidates of different images", remedy="score both on the same images")
        if self.corpus.keys() != other.corpus.keys():
            raise InputError("the systems have different measures", remedy="score both with the same measures")
        settings = {"level": level, "samples": samples, "seed": seed}
        return {name: paired(one, other._scored[name], **settings) for name, one in self._scored.items()}  # type: ignore[arg-type]


def score(
    candidates: Captions,
    references: Captions,
    measures: Sequence[str] = DEFAULT,
    *,
    tokenizer: str = "ptb_py",
    frequencies: Frequencies | str | Path | None = None,
) -> Scores:
    """Score candidate captions against the references of their own images.

    candidates, references: two dicts (id -> captions) with the same ids, or two lists in one order; a string stands for
    one caption. measures: of `bleu` (gives bleu_1 .. bleu_4, each of which may be asked for alone), `meteor`,
    `rouge_l`, `cider` (CIDEr-D, 0..10), `scene_graph`, all 0..1 but CIDEr-D; and `sbert` (-1..1). tokenizer: `ptb_py`
    as pycocoevalcap, another of docs/captions.md, or `none` for tokens with spaces between them. frequencies: the
    document frequencies of CIDEr-D, counted on the references where None; a `Frequencies`, or the path of what
    `capgrade captions --frequencies` wrote.

    Corpus scores are pycocoevalcap's: BLEU and METEOR from summed counts, the others means. Values are float64, equal
    to pycocoevalcap within 1e-6. Raises InputError for ids that differ, an image without references, what is not text,
    an unknown measure or tokenizer. Captions without words, and frequencies of one image, which make values 0, are
    warned of.

    >>> found = score({"1": ["a dog runs"]}, {"1": ["a dog is running", "the dog runs fast"]}, measures=["bleu_1"])
    >>> round(found.corpus["bleu_1"], 4), found.sentences["bleu_1"].shape
    (0.7165, (1,))
    """
    if isinstance(frequencies, str | Path):
        frequencies = Frequencies.read(frequencies, tokenizer)
    names = [measures] if isinstance(measures, str) else measures
    captions = given(candidates, references)
    found = scored(Corpus(captions, tokenizer, frequencies), names)
    corpus = {name: one.corpus for name, one in found.items()}
    return Scores(captions.ids, corpus, {name: one.sentences for name, one in found.items()}, found)
