"""pycocoevalcap's classes without Java: change the import line of a program and it prints the same
numbers.

`compute_score(gts, res)` takes tokenised captions, dicts of id -> list with one candidate in each
list of `res`, and returns what pycocoevalcap returns, equal within 1e-6. What it refuses with an
assertion, or passes over, is an InputError that says what is wrong. Corpus METEOR and BLEU are of
summed counts, the others means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capgrade.measures.base import Scored
from capgrade.measures.bleu import Bleu as BleuMeasure
from capgrade.measures.cider import SIGMA, CiderParams
from capgrade.measures.cider import Cider as CiderMeasure
from capgrade.measures.corpus import Candidates, Corpus, pair_candidates
from capgrade.measures.frequencies import Frequencies
from capgrade.measures.meteor import Meteor as MeteorMeasure
from capgrade.measures.ngrams import MAX_ORDER
from capgrade.measures.rouge import RougeL
from capgrade.measures.spice import Spice as SpiceMeasure
from capgrade.measures.spice import SpiceParams
from capgrade.schemas.block import validated
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn
from capgrade.text.language import warn_of_scripts
from capgrade.text.tokens import NO_TOKENIZER, tokenize_as_words

__all__ = ["Bleu", "COCOEvalCap", "Cider", "Meteor", "PTBTokenizer", "Rouge", "Spice"]

Gts = Mapping[Any, Sequence[str]]
_Array = NDArray[np.float64]


class PTBTokenizer:
    """Stanford's PTB tokens in lower case without punctuation, as pycocoevalcap's `PTBTokenizer`,
    without Java."""

    def tokenize(
        self, captions_for_image: Mapping[Any, Sequence[Mapping[str, Any]]]
    ) -> dict[Any, list[str]]:
        """id -> [{"caption": text}, ...] to id -> [tokens with a space between], in the same order.

        >>> PTBTokenizer().tokenize({1: [{"caption": "A man's dog, running."}]})
        {1: ["a man 's dog running"]}
        """
        texts = [
            _text(annotation, image, k)
            for image, annotations in captions_for_image.items()
            for k, annotation in enumerate(annotations)
        ]
        warn_of_scripts(texts, "ptb_py")
        words = tokenize_as_words(texts, "ptb_py", lists=(0,))
        lines = iter([" ".join(words.sentence(k)) for k in range(len(texts))])
        return {
            image: [next(lines) for _ in annotations]
            for image, annotations in captions_for_image.items()
        }


def _text(annotation: Any, image: Any, k: int) -> str:
    text = annotation.get("caption") if isinstance(annotation, Mapping) else None
    if not isinstance(text, str):
        raise InputError(
            'no {"caption": text}',
            row=f"captions[{image!r}][{k}]",
            remedy="give COCO's annotations",
        )
    return text


def _pair(gts: Gts, res: Gts) -> Candidates:
    """One candidate for each image. InputError for any other number, for ids that differ, for what
    is not text."""
    for image, candidates in res.items():
        if isinstance(candidates, str) or len(candidates) != 1:
            problem = f"{1 if isinstance(candidates, str) else len(candidates)} candidates"
            raise InputError(problem, row=f"res[{image!r}]", remedy="give a list of one caption")
    in_order = {image: res[image] for image in gts if image in res}
    return pair_candidates({**in_order, **res}, gts)


class _Scorer:
    NAME: str

    def method(self) -> str:
        """The score's name in pycocoevalcap."""
        return self.NAME


class Cider(_Scorer):
    """CIDEr-D, 0..10. `n` and `sigma` as pycocoevalcap's; document frequencies are counted on `gts`
    unless `frequencies` gives them (`Frequencies` counted with tokenizer "none"). InputError for
    another n than 4."""

    NAME = "CIDEr"

    def __init__(
        self,
        test: Any = None,
        refs: Any = None,
        n: int = 4,
        sigma: float = SIGMA,
        frequencies: Frequencies | None = None,
    ) -> None:
        if n != 4:
            raise InputError(f"CIDEr-D of n-grams of {n} words", remedy="leave n at 4")
        self._measure = CiderMeasure(validated(CiderParams, {"sigma": sigma}))
        self._frequencies = frequencies

    def compute_score(self, gts: Gts, res: Gts) -> tuple[np.float64, _Array]:
        """Mean, and float64 [images] in the order of `gts`.

        >>> gts = {1: ["a dog runs", "the dog is running"], 2: ["two men talk", "men talking"]}
        >>> score, scores = Cider().compute_score(gts, {1: ["a dog runs"], 2: ["two men talk"]})
        >>> round(float(score), 4), scores.shape
        (4.1796, (2,))
        """
        corpus = Corpus(_pair(gts, res), NO_TOKENIZER, self._frequencies)
        values = self._measure.of_corpus(corpus)["cider"].sentences
        return values.mean(), values


class Bleu(_Scorer):
    """BLEU-1..n, 0..1, n at most 4, reference length `closest`. InputError for
    another n."""

    NAME = "Bleu"

    def __init__(self, n: int = 4) -> None:
        if n not in range(1, MAX_ORDER + 1):
            raise InputError(
                f"BLEU of n-grams of {n} words", remedy=f"give an n of 1 to {MAX_ORDER}"
            )
        self._n = n

    def compute_score(
        self, gts: Gts, res: Gts, verbose: int = 1
    ) -> tuple[list[float], list[list[float]]]:
        """n corpus scores, and n lists of a value for each image. `verbose` above 0 prints the
        summed counts.

        >>> scores, each = Bleu(2).compute_score({1: ["a dog is running"]}, {1: ["a dog runs"]},
        ...     verbose=0)
        >>> [round(score, 4) for score in scores], len(each)
        ([0.4777, 0.4137], 2)
        """
        by_order = list(BleuMeasure().of_corpus(Corpus(_pair(gts, res), NO_TOKENIZER)).values())
        if verbose:
            words, closest, *counts = (int(value) for value in by_order[0].statistics.sum(axis=0))
            correct, guess = counts[: self._n], counts[MAX_ORDER:][: self._n]
            print({"testlen": words, "reflen": closest, "guess": guess, "correct": correct})
            print("ratio:", words / (closest + 1e-9))
        each = [scored.sentences.tolist() for scored in by_order]
        return [scored.corpus for scored in by_order][: self._n], each[: self._n]


class Rouge(_Scorer):
    """ROUGE-L, 0..1."""

    NAME = "Rouge"

    def compute_score(self, gts: Gts, res: Gts) -> tuple[np.float64, _Array]:
        """Mean, and float64 [images] in the order of `gts`.

        >>> score, scores = Rouge().compute_score({1: ["a dog is running"]}, {1: ["a dog runs"]})
        >>> round(float(score), 4)
        0.5571
        """
        values = _score_measure(RougeL(), gts, res).sentences
        return values.mean(), values


class Meteor(_Scorer):
    """METEOR 1.5, 0..1, English, as the jar computes it."""

    NAME = "METEOR"

    def compute_score(self, gts: Gts, res: Gts) -> tuple[float, list[float]]:
        """Score of the summed counts, and a value for each image in the order of `gts`.

        >>> score, scores = Meteor().compute_score({1: ["a dog is running"]}, {1: ["a dog runs"]})
        >>> round(score, 4)
        0.3124
        """
        spaced = {  # as pycocoevalcap's `_stat`
            image: [text.replace("|||", "").replace("  ", " ") for text in texts]
            for image, texts in res.items()
        }
        scored = _score_measure(MeteorMeasure(), gts, spaced)
        return scored.corpus, scored.sentences.tolist()


class Spice(_Scorer):
    """SPICE by its Java scorer, which pycocoevalcap carries without the parser that it needs.

    InputError where a jar of the parser, or a Java of version 8 to 14, is missing.
    """

    NAME = "SPICE"

    def compute_score(self, gts: Gts, res: Gts) -> tuple[float, list[dict[str, Any]]]:
        """Mean F-score, and {"All": {"f": value}} of each image; F-scores by kind of tuple are not
        read."""
        corpus = Corpus(_pair(gts, res), NO_TOKENIZER)
        fitted = SpiceMeasure(SpiceParams(self_reference="included")).fit(corpus.table)
        pairs = corpus.candidates.pairs
        values = fitted.regroup(pairs.ref_ptr, pairs.refs).pairs(pairs.images, pairs.captions)
        return float(values.mean()), [{"All": {"f": float(value)}} for value in values]


def _score_measure(measure: Any, gts: Gts, res: Gts) -> Scored:
    return next(iter(measure.of_corpus(Corpus(_pair(gts, res), NO_TOKENIZER)).values()))


class COCOEvalCap:
    """COCO's caption evaluation: `evaluate()` fills `eval` (metric -> corpus score), `imgToEval`
    and `evalImgs`.

    `coco` and `cocoRes` are pycocotools' COCO objects, or any with `getImgIds()` and `imgToAnns`.
    SPICE is left out, with a warning, where its scorer cannot run.

    >>> from types import SimpleNamespace
    >>> def captions(text):
    ...     return SimpleNamespace(getImgIds=lambda: [1], imgToAnns={1: [{"caption": text}]})
    >>> evaluation = COCOEvalCap(captions("A dog is running."), captions("a dog runs"))
    >>> evaluation.evaluate()  # doctest: +ELLIPSIS
    tokenization...
    >>> round(float(evaluation.eval["ROUGE_L"]), 4)
    0.5571
    """

    def __init__(self, coco: Any, cocoRes: Any) -> None:  # noqa: N803  # pycocoevalcap's name
        self.evalImgs: list[dict[str, Any]] = []
        self.eval: dict[str, float] = {}
        self.imgToEval: dict[Any, dict[str, Any]] = {}
        self.coco, self.cocoRes = coco, cocoRes
        self.params = {"image_id": coco.getImgIds()}

    def evaluate(self) -> None:
        """Score the images of `params["image_id"]`."""
        images = self.params["image_id"]
        print("tokenization...")
        tokenizer = PTBTokenizer()
        gts = tokenizer.tokenize({image: self.coco.imgToAnns[image] for image in images})
        res = tokenizer.tokenize({image: self.cocoRes.imgToAnns[image] for image in images})
        print("setting up scorers...")
        for scorer, methods in (
            (Bleu(4), ["Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4"]),
            (Meteor(), ["METEOR"]),
            (Rouge(), ["ROUGE_L"]),
            (Cider(), ["CIDEr"]),
            (Spice(), ["SPICE"]),
        ):
            print(f"computing {scorer.method()} score...")
            try:
                score, scores = scorer.compute_score(gts, res)
            except InputError as error:
                if not isinstance(scorer, Spice):
                    raise
                warn(f"SPICE is left out: {error}")
                continue
            by_method: Any = (score, scores) if isinstance(scorer, Bleu) else ([score], [scores])
            for name, value, values in zip(methods, *by_method, strict=True):
                self.setEval(value, name)
                self.setImgToEvalImgs(values, gts.keys(), name)
                print(f"{name}: {value:0.3f}")
        self.setEvalImgs()

    def setEval(self, score: float, method: str) -> None:  # noqa: N802
        """Keep a corpus score; like the two below for subclasses, which bring scorers of their
        own."""
        self.eval[method] = score

    def setImgToEvalImgs(self, scores: Any, imgIds: Any, method: str) -> None:  # noqa: N802, N803
        """Keep a value for each image."""
        for image, score in zip(imgIds, scores, strict=True):
            self.imgToEval.setdefault(image, {"image_id": image})[method] = score

    def setEvalImgs(self) -> None:  # noqa: N802
        """List what is kept, image by image."""
        self.evalImgs = list(self.imgToEval.values())
