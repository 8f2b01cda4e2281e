"""Questions to every voice at once: what each ranks first for a caption or an image, and where they
disagree."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from capgrade.agreement.judgements import Judgements
from capgrade.explorer.corpus import LabelledCorpus
from capgrade.explorer.pairs import (
    APART,
    ERRORS,
    JUDGED,
    PEOPLE_SCORES,
    Disagreement,
    LabelledPairs,
    disagreements,
)
from capgrade.explorer.voices import MatrixVoice, MeasureVoice
from capgrade.pictures.lookup import PictureLookup
from capgrade.schemas.errors import InputError
from capgrade.schemas.pictures import decode_image

if TYPE_CHECKING:
    from capgrade.explorer.models import ModelVoice  # which loads torch
    from capgrade.pipelines.detectors.selection import Detector

Voice: TypeAlias = MeasureVoice | MatrixVoice
_LONGEST = 2000  # characters of a typed caption
PLACES = 5  # decimals to which two scores of a tie are the same
TYPED = "answers captions of the corpus, not typed ones"
UNKNOWN = "does not know this item: it is not in its index"


@dataclass(frozen=True)
class RankedItem:
    """An image or a caption by its number, with its score; `rank` is shared where the score is
    `tied`; `own`: it belongs to what was asked; `beside`: its rank by the other one where two are
    asked, None where that has no score."""

    number: int
    score: float
    rank: int
    tied: bool
    own: bool
    beside: int | None = None


@dataclass(frozen=True)
class Answer:
    """What one voice ranks first, or why it does not answer; `more`: how many that are not shown
    have the last one's score; its scores are between `low` and `high`."""

    voice: str
    kind: str
    hits: tuple[RankedItem, ...]
    seconds: float
    note: str = ""
    more: int = 0
    low: float = 0.0
    high: float = 1.0

    def filled(self, score: float) -> float:
        """How full the bar of a score is, 0 to 1: the way from 0 to `high`, from `low` where
        nothing is above 0."""
        zero = max(self.low, 0.0) if self.high > 0 else self.low
        return min(max((score - zero) / (self.high - zero), 0.0), 1.0) if self.high > zero else 0.0


def best(scores: np.ndarray, count: int, own: set[int]) -> tuple[tuple[RankedItem, ...], int]:
    """The `count` highest scores, equal ones in order and NaN never, and how many more are tied
    with the last."""
    known = np.flatnonzero(~np.isnan(scores))
    order = known[np.argsort(-scores[known], kind="stable")][:count]
    near = np.round(scores, PLACES)
    above, same = ([int(f(near, near[k]).sum()) for k in order] for f in (np.greater, np.equal))
    hits = zip(order.tolist(), above, same, strict=True)
    found = tuple(RankedItem(k, float(scores[k]), a + 1, s > 1, k in own) for k, a, s in hits)
    return found, above[-1] + same[-1] - len(found) if found else 0


def ranked_beside(
    hits: tuple[RankedItem, ...], scores: np.ndarray | None
) -> tuple[RankedItem, ...]:
    """The hits with their ranks by other scores."""
    if scores is None:
        return hits
    near = np.round(scores, PLACES)
    return tuple(
        replace(
            hit,
            beside=None if np.isnan(near[hit.number]) else 1 + int((near > near[hit.number]).sum()),
        )
        for hit in hits
    )


@dataclass
class Explorer:
    """A corpus, who ranks it, and what people said of it. Questions are answered one at a time:
    kernels use all cores themselves."""

    corpus: LabelledCorpus
    measures: Sequence[MeasureVoice]
    models: Sequence[ModelVoice] = ()
    matrices: Sequence[MatrixVoice] = ()  # of models that are not here
    pictures: PictureLookup = field(default_factory=PictureLookup)
    people: Judgements | None = None
    detector: Detector | None = None

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._errors = cache(self._above_the_original)

    @property
    def voices(self) -> list[Voice]:
        """All that rank: the measures, then the models."""
        return [*self.measures, *self._scoring]

    @property
    def _scoring(self) -> list[MatrixVoice]:
        return [*self.models, *self.matrices]

    @property
    def looks_at_pictures(self) -> bool:
        """Whether `of_upload` answers: measures know images by their captions, models by what a
        detector finds."""
        return self.detector is not None and bool(self.models)

    def of_text(self, text: str, count: int = 8, names: Collection[str] = ()) -> list[Answer]:
        """Images for a caption in words, by the voices of these names, by default all. InputError
        for one that is empty or too long, and for a name that nobody has."""
        if not text.strip() or len(text) > _LONGEST:
            raise InputError(f"a caption of {len(text)} characters", remedy=f"type 1 to {_LONGEST}")
        same = [k for k, known in enumerate(self.corpus.captions.texts) if known == text]
        own = self.corpus.captions.owner[same]
        return self._ask(lambda voice: voice.of_text(text), own, count, self.named(names))

    def of_caption(self, caption: int, count: int = 8, names: Collection[str] = ()) -> list[Answer]:
        """Images for a caption of the corpus; `names` as of `of_text`."""
        own = self.corpus.captions.owner[[caption]]
        return self._ask(lambda voice: voice.of_caption(caption), own, count, self.named(names))

    def of_image(self, image: int, count: int = 8, names: Collection[str] = ()) -> list[Answer]:
        """Captions for an image of the corpus; `names` as of `of_text`."""
        own = np.flatnonzero(self.corpus.captions.owner == image)
        return self._ask(lambda voice: voice.of_image(image), own, count, self.named(names))

    def named(self, names: Collection[str]) -> list[Voice]:
        """The voices of these names, by default all. InputError for a name that nobody has."""
        known = {voice.name: voice for voice in self.voices}
        if unknown := [name for name in names if name not in known]:
            raise InputError(
                f"nobody is named '{unknown[0]}'", remedy=f"choose from {', '.join(known)}"
            )
        return [voice for name, voice in known.items() if not names or name in names]

    def of_upload(self, data: bytes, count: int = 8) -> list[Answer]:
        """Captions for a picture that is not of the corpus, by the models alone. InputError for a
        file that is not a picture, for one in which nothing is found, and if there is no model and
        detector to look at it."""
        if self.detector is None or not self.models:
            remedy = "start with --run, --index and --set explore.detector=NAME"
            raise InputError(
                "a picture needs a trained model and the detector it was trained with",
                remedy=remedy,
            )
        rgb = decode_image(data, "uploaded picture")
        with self._lock:
            prepared, scale = self.detector.prepare(rgb)
            regions = self.detector.detect(
                prepared[None], [scale], [(rgb.shape[1], rgb.shape[0])], ["uploaded"]
            )[0]
        if not len(regions):
            raise InputError("no region found")
        return self._ask(
            lambda voice: voice.of_regions(regions.check()), np.empty(0, int), count, self.models
        )

    def _ask(
        self,
        question: Callable[[Any], np.ndarray | None],
        own: np.ndarray,
        count: int,
        voices: Sequence[Voice],
    ) -> list[Answer]:
        answers, given = [], []
        for voice in voices:
            start = time.perf_counter()
            with self._lock:
                scores = question(voice)
            hits, more = ((), 0) if scores is None else best(scores, count, set(own.tolist()))
            note = TYPED if scores is None else "" if hits else UNKNOWN
            spent = time.perf_counter() - start
            answers.append(
                Answer(voice.name, voice.kind, hits, spent, note, more, voice.low, voice.high)
            )
            given.append(scores)
        if len(answers) == 2:
            pairs = zip(answers, reversed(given), strict=True)
            return [
                replace(answer, hits=ranked_beside(answer.hits, scores)) for answer, scores in pairs
            ]
        return answers

    def sides(self, kind: str) -> tuple[list[str], list[str]]:
        """Who may rank a pair high, and who low, in one of KINDS."""
        labels, models = list(self.corpus.pairs.values), [voice.name for voice in self._scoring]
        people = (
            [PEOPLE_SCORES, *(voice.name for voice in self.voices)]
            if self.people is not None
            else []
        )
        measures = [voice.name for voice in self.measures]
        apart = [*labels, *models], [*models, *labels]  # measures come first, and last
        return {APART: apart, JUDGED: (people, people), ERRORS: (models, measures)}[kind]

    def disagreements(self, kind: str, high: str, low: str, count: int) -> list[Disagreement]:
        """At most `count` pairs of one of KINDS. InputError for names that do not go together."""
        highs, lows = self.sides(kind)
        if high not in highs or low not in lows or high == low:
            raise InputError("choose two different measures or models")
        with self._lock:
            judged = self._judged if kind == JUDGED else self._labelled
            return disagreements(
                self._errors(high, low) if kind == ERRORS else judged, high, low, count
            )

    def _above_the_original(self, model: str, label: str) -> LabelledPairs:
        models, measures = (
            {one.name: one for one in self._scoring},
            {one.name: one for one in self.measures},
        )
        return models[model].errors(measures[label], self.corpus.captions)

    @cached_property
    def _labelled(self) -> LabelledPairs:
        """The labelled pairs, with the scores of the models."""
        pairs = self.corpus.pairs
        scores = {model.name: model.of_pairs(pairs.image, pairs.caption) for model in self._scoring}
        return replace(pairs, values={**pairs.values, **scores})

    @cached_property
    def _judged(self) -> LabelledPairs:
        assert self.people is not None
        image, caption = self.people.image, self.people.caption
        values = {voice.name: voice.of_pairs(image, caption) for voice in self.voices}
        values[PEOPLE_SCORES] = self.people.score.astype(np.float32)
        return LabelledPairs.of(self.corpus.captions, image, caption, values)
