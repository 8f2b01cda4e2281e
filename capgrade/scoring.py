"""`capgrade.score`, `capgrade.CaptionScores`: BLEU, METEOR, ROUGE-L, CIDEr-D, scene graphs,
Sentence-BERT, and mixtures of these, such as `people`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.measures import Measure, MeasuresParams, choose, names_of
from capgrade.measures.base import Scored
from capgrade.measures.corpus import CaptionSets, Corpus, pair_candidates
from capgrade.measures.frequencies import Frequencies
from capgrade.metrics.uncertainty import Interval, PairedTest, correct, interval, paired
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.say import warn

BLEUS = ("bleu_1", "bleu_2", "bleu_3", "bleu_4")
DEFAULT = ("bleu", "meteor", "rouge_l", "cider")  # what pycocoevalcap has without further downloads


@dataclass(frozen=True, repr=False)
class Scores:
    """Scores of candidates; printed, the corpus scores.

    `ids`: the image of each candidate, in the order given; `corpus`: measure -> float; `sentences`:
    measure -> float64 [candidates] in the order of `ids`.

    >>> ours, theirs = (score([text], [["a dog is running"]], "rouge_l") for text in
    ...     ("a dog runs", "a cat"))
    >>> round(ours.compare(theirs)["rouge_l"].difference, 4)
    0.2426
    >>> print(ours)
    Scores of 1 candidates: rouge_l 0.5571
    """

    ids: list[Any]
    corpus: dict[str, float]
    sentences: dict[str, np.ndarray]
    _scored: dict[str, Scored]
    _read: str = ""  # SHA-256 of the references and the tokenizer

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:.4f}" for name, value in self.corpus.items())
        return f"Scores of {len(self.ids):,} candidates: {values}"

    def intervals(
        self, *, level: float = 0.95, samples: int = 1000, seed: int = 0
    ) -> dict[str, Interval]:
        """Percentile bootstrap intervals of the corpus scores, over candidates; seeded."""
        return {
            n: interval(scored_measure, level=level, samples=samples, seed=seed)
            for n, scored_measure in self._scored.items()
        }

    def compare(
        self, other: Scores, *, level: float = 0.95, samples: int = 1000, seed: int = 0
    ) -> dict[str, PairedTest]:
        """This system less another on the same images, measure by measure: paired bootstrap
        interval of the difference and the p-value of approximate randomisation (Riezler and Maxwell
        2005), also corrected for the number of measures.

        InputError when the candidates are not of the same images in the same order, or references
        or measures differ.
        """
        if self.ids != other.ids:
            raise InputError(
                "the systems have candidates of different images",
                remedy="score both on the same images",
            )
        if self._read != other._read:
            raise InputError(
                "the systems were scored by other references, or another tokenizer",
                remedy="score both alike",
            )
        if self.corpus.keys() != other.corpus.keys():
            raise InputError(
                "the systems have different measures", remedy="score both with the same measures"
            )
        return correct(
            {
                name: paired(
                    scored_measure, other._scored[name], level=level, samples=samples, seed=seed
                )
                for name, scored_measure in self._scored.items()
            }
        )


def score(
    candidates: CaptionSets,
    references: CaptionSets,
    measures: Sequence[str] = DEFAULT,
    *,
    tokenizer: str = "ptb_py",
    frequencies: Frequencies | str | Path | None = None,
    params: MeasuresParams | None = None,
) -> Scores:
    """Score candidate captions against the references of their own images.

    candidates, references: two dicts (id -> captions) with the same ids, or two lists in one order;
    a string stands for one caption. measures: of `bleu` (gives bleu_1 .. bleu_4, each of which may
    be asked for alone), `meteor`, `rouge_l`, `cider` (CIDEr-D, 0..10), `scene_graph`, all 0..1 but
    CIDEr-D; `sbert`, `sbert_mean` and `sbert_shared` (-1..1); and mixtures of these, such as
    `people` and `people_shared`. tokenizer: `ptb_py` as pycocoevalcap, another of docs/captions.md,
    or `none` for tokens with spaces between them. frequencies: the document frequencies of CIDEr-D,
    counted on the references where None; a `Frequencies`, or the path of what `capgrade
    frequencies` wrote. params: the block `measures` of params.yaml, with mixtures of your own, and
    `sbert.shared_from`, without which `people_shared` learns from the references of all candidates.

    Corpus scores are pycocoevalcap's: BLEU and METEOR from summed counts, the others means. Values
    are float64, equal to pycocoevalcap within 1e-6. Raises InputError for ids that differ, an image
    without references, what is not text, an unknown measure or tokenizer. Captions without words,
    and frequencies of one image, which make values 0, are warned of.

    >>> found = score({"1": ["a dog runs"]}, {"1": ["a dog is running", "the dog runs fast"]},
    ...     measures=["bleu_1"])
    >>> round(found.corpus["bleu_1"], 4), found.sentences["bleu_1"].shape
    (0.7165, (1,))
    """
    if isinstance(frequencies, str | Path):
        frequencies = Frequencies.read(frequencies, tokenizer)
    names = [measures] if isinstance(measures, str) else measures
    captions = pair_candidates(candidates, references)
    by_measure = score_corpus(Corpus(captions, tokenizer, frequencies), names, params)
    corpus, sentences = {}, {}
    for name, scored_measure in by_measure.items():
        corpus[name], sentences[name] = scored_measure.corpus, scored_measure.sentences
    texts = captions.texts[len(captions.ids) :]
    read = sha256(repr((tokenizer, texts)).encode()).hexdigest()
    return Scores(captions.ids, corpus, sentences, by_measure, read)


def known_scores(params: MeasuresParams | None = None) -> list[str]:
    """What `score` takes: measures and mixtures that score candidates, and BLEU of each order."""
    params = params or MeasuresParams()
    every = choose(sorted(names_of(params)), params)
    return [*(name for name, one in every.items() if one.scores_candidates), *BLEUS]


def choose_scoring(
    names: Sequence[str], params: MeasuresParams | None = None
) -> dict[str, Measure[Any]]:
    """The measure that gives each of the named scores, with its parameters.

    InputError for one that `known_scores` has not.
    """
    params = params or MeasuresParams()
    known = known_scores(params)
    for name in names:
        if name not in known:
            raise InputError(f"unknown measure '{name}'", remedy=choose_from(name, known))
    of = {name: "bleu" if name in BLEUS else name for name in names}
    chosen = choose(list(dict.fromkeys(of.values())), params)
    return {name: chosen[one] for name, one in of.items()}


def score_corpus(
    corpus: Corpus, measures: Sequence[str], params: MeasuresParams | None = None
) -> dict[str, Scored]:
    """The named measures in the order asked for; `bleu` stands for bleu_1 .. bleu_4.

    InputError for an unknown one.
    """
    names: list[str] = []
    for name in measures:
        names += BLEUS if name == "bleu" else [name]
    if not names:
        raise InputError("no measure", remedy=choose_from("", known_scores(params)))
    chosen = choose_scoring(names, params)
    corpus.warn_of_empty()
    by_measure: dict[str, Scored] = {}
    for name, measure in chosen.items():
        if name not in by_measure:
            by_measure |= measure.of_corpus(corpus)
    asked = {name: by_measure[name] for name in names}
    zero = [n for n in asked if n in BLEUS and not asked[n].statistics[:, 1 + int(n[-1])].any()]
    # Where no candidate has words, a warning has said so already.
    if zero and corpus.words.sizes[: len(corpus.candidates.ids)].any():
        why = f"no {zero[0][-1]} words in a row of any candidate are in its references"
        warn(f"{', '.join(zero)}: 0, as {why} (BLEU is for larger corpora)")
    return asked


class CaptionScores:
    """`score` of captions gathered batch by batch, for validation loops.

    `update` with each batch, `compute` at the end, `reset` before the next epoch: as torchmetrics'
    metrics.

    measures, tokenizer, frequencies, params: as of `capgrade.score`. Several processes:
    `merge_state` what the others gathered (`torch.distributed.all_gather_object` carries the object
    as it is).

    >>> meter = CaptionScores(measures=["rouge_l"])
    >>> meter.update(["a dog runs"], [["a dog is running", "the dog runs fast"]])
    >>> meter.update(["two men talk"], [["two men are talking"]])
    >>> round(meter.compute().corpus["rouge_l"], 4)
    0.5571
    """

    def __init__(
        self,
        measures: Sequence[str] = DEFAULT,
        *,
        tokenizer: str = "ptb_py",
        frequencies: Frequencies | str | Path | None = None,
        params: MeasuresParams | None = None,
    ) -> None:
        self.measures, self.tokenizer = measures, tokenizer
        self.frequencies, self.params = frequencies, params
        self.reset()

    def reset(self) -> None:
        """Forget every batch."""
        self._ids: list[object] = []  # None of a list's images, which are numbered at the end
        self._candidates: list[str | Sequence[str]] = []
        self._references: list[str | Sequence[str]] = []

    def update(self, candidates: CaptionSets, references: CaptionSets) -> None:
        """Add a batch: two dicts (id -> captions), or two lists in one order.

        InputError as of `capgrade.score`, and for an id of an earlier batch; a batch with an error
        is not added.
        """
        pair_candidates(candidates, references)
        if isinstance(candidates, Mapping) and isinstance(references, Mapping):
            new = list(candidates)
            self._add(new, [candidates[i] for i in new], [references[i] for i in new])
        else:
            self._add([None] * len(candidates), list(candidates), list(references))

    def merge_state(self, other: CaptionScores) -> None:
        """Add what another has gathered; images of lists, which have no ids, are numbered through.

        InputError for an id that both have; then nothing is added.
        """
        self._add(other._ids, other._candidates, other._references)

    def _add(self, ids: list, candidates: list, references: list) -> None:
        earlier = set(self._ids)
        repeated = [image for image in ids if image is not None and image in earlier]
        if repeated:
            raise InputError(
                f"image {repeated[0]!r} was in an earlier batch",
                remedy="reset() before another epoch",
            )
        self._ids += ids
        self._candidates += candidates
        self._references += references

    def compute(self) -> Scores:
        """Scores of everything since `reset`. InputError where nothing was added, or an id is the
        number of an image that was given in a list."""
        ids = [k if image is None else image for k, image in enumerate(self._ids)]
        if len(set(ids)) < len(ids):
            remedy = "give dicts everywhere, or lists everywhere"
            raise InputError("an id is also the number of an image in a list", remedy=remedy)
        candidates = dict(zip(ids, self._candidates, strict=True))
        references = dict(zip(ids, self._references, strict=True))
        return score(
            candidates,
            references,
            self.measures,
            tokenizer=self.tokenizer,
            frequencies=self.frequencies,
            params=self.params,
        )
