"""The scores by name, each from a corpus: values of the candidates, and what the corpus score is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capgrade.kernels import as_python, is_compiled
from capgrade.measures.base import ImagePairs, OfReferences
from capgrade.measures.bleu import bleu_of, matches_of_pairs, statistics_of_pairs
from capgrade.measures.cider import cider_of_pairs, inverse_norms
from capgrade.measures.cider import score_pairs as cider_pairs
from capgrade.measures.cider_kernel import Form, Weighted
from capgrade.measures.meteor import FittedMeteor, counts_to_add, index_captions, score_counts
from capgrade.measures.meteor import kernel as meteor_kernel
from capgrade.measures.ngrams import MAX_ORDER, Sentences
from capgrade.measures.rouge import WordRows, rouge_l_of_pairs
from capgrade.measures.rouge import score_pairs as rouge_pairs
from capgrade.measures.sbert import Sbert, cosine_of_pairs
from capgrade.measures.scene_graph import SceneGraph
from capgrade.measures.scene_graph import kernel as scene_kernel
from capgrade.measures.scores.corpus import Corpus
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import SbertParams, SceneGraphParams
from capgrade.schemas.say import warn
from capgrade.text.language import warn_unless_english

SIGMA = 6.0  # of CIDEr-D


@dataclass(frozen=True)
class Scored:
    """One measure: `sentences` float64 [candidates]; `statistics` float64 [candidates, k], of whose sums [n, k] `of`
    makes corpus scores [n]."""

    sentences: np.ndarray
    statistics: np.ndarray
    of: Callable[[np.ndarray], np.ndarray]

    @property
    def corpus(self) -> float:
        """The score of all candidates together."""
        return float(self.of(self.statistics.sum(axis=0, keepdims=True))[0])


def mean_of(sums: np.ndarray) -> np.ndarray:
    """Means from sums float64 [n, 2]: of values, and of ones."""
    return sums[:, 0] / sums[:, 1]


def averaged(values: np.ndarray) -> Scored:
    """A measure whose corpus score is the mean over candidates."""
    values = np.asarray(values, np.float64)
    return Scored(values, np.stack([values, np.ones_like(values)], axis=1), mean_of)


def bleu(corpus: Corpus) -> dict[str, Scored]:
    """BLEU-1 to BLEU-4, 0..1, as pycocoevalcap `bleu/bleu_scorer.py` with the closest reference length."""
    given, sentences = corpus.given, corpus.grams
    counts = statistics_of_pairs(given.pairs, sentences, sentences)
    values = bleu_of(counts)
    return {
        f"bleu_{k + 1}": Scored(values[:, k], counts, lambda sums, k=k: bleu_of(sums)[:, k])  # type: ignore[misc]
        for k in range(MAX_ORDER)
    }


def cider_scores(pairs: ImagePairs, sentences: Sentences, idf: np.ndarray, sigma: float) -> np.ndarray:
    """CIDEr-D, 0..10, float64 [pairs], of sentences with others; `idf` float64, of each n-gram by its number."""
    gain = idf**2
    weighted = Weighted(sentences, inverse_norms(sentences, gain))
    return cider_pairs(pairs, weighted, weighted, gain, Form(clip=True, sigma=sigma))


def cider(corpus: Corpus) -> dict[str, Scored]:
    """CIDEr-D, 0..10, as pycocoevalcap `cider/cider_scorer.py`."""
    return {"cider": averaged(cider_scores(corpus.given.pairs, corpus.grams, corpus.idf, SIGMA))}


def rouge_l(corpus: Corpus) -> dict[str, Scored]:
    """ROUGE-L, 0..1, as pycocoevalcap `rouge/rouge.py`."""
    given, texts = corpus.given, WordRows(corpus.tokens.ptr, corpus.tokens.word)
    return {"rouge_l": averaged(rouge_pairs(given.pairs, texts, texts))}


def meteor(corpus: Corpus) -> dict[str, Scored]:
    """METEOR 1.5, 0..1, as its jar; the corpus score is of summed statistics."""
    warn_unless_english("meteor", corpus.table)
    pairs, index = corpus.given.pairs, index_captions(corpus.tokens, corpus.given.texts)
    fitted = FittedMeteor(pairs.ref_ptr, pairs.refs, False, *index)
    values, counts = fitted.with_counts(pairs.images, pairs.captions)
    return {"meteor": Scored(values, counts_to_add(counts), score_counts)}


def scene_graph(corpus: Corpus) -> dict[str, Scored]:
    """F1 of scene-graph tuples, 0..1: `measures.scene_graph` with the candidate outside its references."""
    fitted = SceneGraph(SceneGraphParams(self_reference="included")).fit(corpus.table)
    return {"scene_graph": _own_pairs(fitted, corpus)}


def sbert(corpus: Corpus) -> dict[str, Scored]:
    """Largest Sentence-BERT cosine with a reference, -1..1. InputError when the model cannot be loaded."""
    return {"sbert": _own_pairs(Sbert(SbertParams(self_reference="included")).fit(corpus.table), corpus)}


def _own_pairs(fitted: OfReferences, corpus: Corpus) -> Scored:
    """A fitted measure of each candidate with its own references."""
    pairs = corpus.given.pairs
    return averaged(fitted.regrouped(pairs.ref_ptr, pairs.refs).pairs(pairs.images, pairs.captions))


MEASURES: dict[str, tuple[Callable[[Corpus], dict[str, Scored]], Any]] = {  # and the kernel of each
    "bleu": (bleu, matches_of_pairs),
    "meteor": (meteor, meteor_kernel.score),
    "rouge_l": (rouge_l, rouge_l_of_pairs),
    "cider": (cider, cider_of_pairs),
    "scene_graph": (scene_graph, scene_kernel.score_pairs),
    "sbert": (sbert, cosine_of_pairs),
}
FEW = 500  # sentences that are scored before kernels are compiled
BLEUS = ("bleu_1", "bleu_2", "bleu_3", "bleu_4")
DEFAULT = ("bleu", "meteor", "rouge_l", "cider")  # what pycocoevalcap has without further downloads


def scored(corpus: Corpus, measures: Sequence[str]) -> dict[str, Scored]:
    """The named measures in the order asked for; `bleu` stands for bleu_1 .. bleu_4. InputError for an unknown one."""
    names = list(dict.fromkeys(one for name in measures for one in (BLEUS if name == "bleu" else (name,))))
    unknown = [name for name in names if name not in MEASURES and name not in BLEUS]
    if unknown or not names:
        problem = f"unknown measure '{unknown[0]}'" if unknown else "no measure"
        raise InputError(problem, remedy=f"choose from: {', '.join((*MEASURES, *BLEUS))}")
    corpus.warn_of_empty()
    found: dict[str, Scored] = {}
    for name in names:
        measure = "bleu" if name in BLEUS else name
        if name not in found:
            score, kernel = MEASURES[measure]
            with as_python(len(corpus.given.texts) <= FEW and not is_compiled(kernel)):
                found |= score(corpus)
    none = [name for name in names if name in BLEUS and not found[name].statistics[:, 1 + int(name[-1])].any()]
    if none and corpus.words.sizes[: len(corpus.given.owner)].any():  # else that is said already
        why = f"no {none[0][-1]} words in a row of any candidate are in its references (BLEU is for larger corpora)"
        warn(f"{', '.join(none)}: 0, as {why}")
    return {name: found[name] for name in names}
