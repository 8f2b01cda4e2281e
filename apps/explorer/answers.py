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
from capgrade.apps.explorer.corpus import LabelledCorpus
from capgrade.apps.explorer.pairs import (
    APART,
    ERRORS,
    JUDGED,
    PEOPLE_SCORES,
    Disagreement,
    find_disagreements,
)
from capgrade.apps.explorer.voices import (
    MatrixVoice,
    MeasureVoice,
    leave_themselves_out,
    rows_saying,
)
from capgrade.pictures.lookup import PictureLookup
from capgrade.pictures.picture import decode_image
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.pairs import Pairs

if TYPE_CHECKING:
    from capgrade.apps.explorer.models import ModelVoice  # which loads torch
    from capgrade.pipelines.detectors.selection import Detector

Voice: TypeAlias = MeasureVoice | MatrixVoice
_LONGEST = 2000  # characters of a typed caption
TIE_DECIMALS = 5  # scores that agree to so many decimals are tied
TYPED_NOTE = "answers captions of the corpus, not typed ones"
LONELY_NOTE = (
    "does not rank the own caption of an image that has no other one, as captions are not compared"
    " with themselves"
)
UNKNOWN_NOTE = "does not know this item: it is not in its index"


@dataclass(frozen=True)
class RankedItem:
    """An image or a caption in a voice's ranking."""

    number: int
    score: float
    rank: int  # shared by tied scores
    tied: bool
    own: bool  # belongs to the caption or image that was asked about
    other_rank: int | None = None  # by the other voice, where two are asked and it has a score


@dataclass(frozen=True)
class Answer:
    """What one voice ranks first, or a note on why it does not answer."""

    voice: str
    kind: str
    hits: tuple[RankedItem, ...]
    seconds: float
    note: str = ""
    more: int = 0  # items that are not shown and have the last hit's score

    def bar_fill(self, score: float) -> float:
        """How full the bar of a hit's score is, 0 to 1: it is full at the highest score of the hits
        and empty at 0, or at their lowest where none is above 0."""
        shown = [hit.score for hit in self.hits if np.isfinite(hit.score)]
        highest = max(shown, default=0.0)
        empty = 0.0 if highest > 0 else min(shown, default=0.0)
        return max((score - empty) / (highest - empty), 0.0) if highest > empty else 0.0


def rank_best(scores: np.ndarray, count: int, own: set[int]) -> tuple[tuple[RankedItem, ...], int]:
    """The items of the `count` highest scores, without NaN and equal ones in order, and how many
    more are tied with the last."""
    scored = np.flatnonzero(~np.isnan(scores))
    order = scored[np.argsort(-scores[scored], kind="stable")][:count]
    rounded = np.round(scores, TIE_DECIMALS)
    n_above = [int((rounded > rounded[k]).sum()) for k in order]
    n_equal = [int((rounded == rounded[k]).sum()) for k in order]
    hits = zip(order.tolist(), n_above, n_equal, strict=True)
    items = tuple(RankedItem(k, float(scores[k]), a + 1, s > 1, k in own) for k, a, s in hits)
    return items, n_above[-1] + n_equal[-1] - len(items) if items else 0


def _add_other_ranks(
    hits: tuple[RankedItem, ...], scores: np.ndarray | None
) -> tuple[RankedItem, ...]:
    """The hits with their ranks by the other voice's scores."""
    if scores is None:
        return hits
    rounded = np.round(scores, TIE_DECIMALS)

    def rank(number: int) -> int | None:
        score = rounded[number]
        return None if np.isnan(score) else 1 + int((rounded > score).sum())

    return tuple(replace(hit, other_rank=rank(hit.number)) for hit in hits)


@dataclass
class Explorer:
    """A corpus, the voices that rank it (measures and models), and people's judgements of it.
    Questions are answered one at a time, because kernels use all cores themselves."""

    corpus: LabelledCorpus
    measures: Sequence[MeasureVoice]
    models: Sequence[ModelVoice] = ()
    matrices: Sequence[MatrixVoice] = ()  # scores of models that are not loaded
    pictures: PictureLookup = field(default_factory=PictureLookup)
    people: Judgements | None = None
    detector: Detector | None = None

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._errors = cache(self._find_errors)

    @property
    def voices(self) -> list[Voice]:
        """The measures, then the models."""
        return [*self.measures, *self._matrix_voices]

    @property
    def _matrix_voices(self) -> list[MatrixVoice]:
        return [*self.models, *self.matrices]

    @property
    def looks_at_pictures(self) -> bool:
        """Whether `answer_upload` works, which needs a model and a detector: measures know images
        only by their captions."""
        return self.detector is not None and bool(self.models)

    def answer_text(self, text: str, count: int = 8, names: Collection[str] = ()) -> list[Answer]:
        """Images for a typed caption, by the voices of these names, by default all. InputError for
        a caption that is empty or too long, and for a name that no voice has."""
        if not text.strip() or len(text) > _LONGEST:
            raise InputError(f"a caption of {len(text)} characters", remedy=f"type 1 to {_LONGEST}")
        own = self.corpus.captions.owner[rows_saying(self.corpus.captions, text)]
        return self._ask(
            lambda voice: voice.score_text(text), own, count, self.choose_voices(names)
        )

    def answer_caption(
        self, caption: int, count: int = 8, names: Collection[str] = ()
    ) -> list[Answer]:
        """Images for a caption of the corpus; `names` as of `answer_text`."""
        own = self.corpus.captions.owner[[caption]]
        return self._ask(
            lambda voice: voice.score_caption(caption), own, count, self.choose_voices(names)
        )

    def answer_image(self, image: int, count: int = 8, names: Collection[str] = ()) -> list[Answer]:
        """Captions for an image of the corpus; `names` as of `answer_text`."""
        own = np.flatnonzero(self.corpus.captions.owner == image)
        return self._ask(
            lambda voice: voice.score_image(image), own, count, self.choose_voices(names)
        )

    def choose_voices(self, names: Collection[str]) -> list[Voice]:
        """The voices of these names, by default all. InputError for a name that no voice has."""
        voices_by_name = {voice.name: voice for voice in self.voices}
        if unknown := [name for name in names if name not in voices_by_name]:
            raise InputError(
                f"nobody is named '{unknown[0]}'", remedy=choose_from(unknown[0], voices_by_name)
            )
        return [voice for name, voice in voices_by_name.items() if not names or name in names]

    def answer_upload(self, data: bytes, count: int = 8) -> list[Answer]:
        """Captions for a picture that is not of the corpus, by the models alone. InputError for a
        file that is not a picture, for a picture without regions, and without model or detector."""
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
            lambda voice: voice.score_regions(regions.check()), np.empty(0, int), count, self.models
        )

    def _ask(
        self,
        question: Callable[[Any], np.ndarray | None],
        own: np.ndarray,
        count: int,
        voices: Sequence[Voice],
    ) -> list[Answer]:
        answers, scores_of_voices = [], []
        for voice in voices:
            start = time.perf_counter()
            with self._lock:
                scores = question(voice)
            hits, more = ((), 0) if scores is None else rank_best(scores, count, set(own.tolist()))
            note = TYPED_NOTE if scores is None else "" if hits else UNKNOWN_NOTE
            seconds = time.perf_counter() - start
            if scores is not None and voice.kind == "measure" and np.isnan(scores[own]).any():
                note = LONELY_NOTE
            answers.append(Answer(voice.name, voice.kind, hits, seconds, note, more))
            scores_of_voices.append(scores)
        if len(answers) == 2:
            pairs = zip(answers, reversed(scores_of_voices), strict=True)
            return [
                replace(answer, hits=_add_other_ranks(answer.hits, scores))
                for answer, scores in pairs
            ]
        return answers

    def sides(self, kind: str) -> tuple[list[str], list[str]]:
        """The names of voices to choose from in one of KINDS: who ranks pairs high, and who low."""
        labels = list(self.corpus.pairs.values)
        models = [voice.name for voice in self._matrix_voices]
        people = (
            [PEOPLE_SCORES, *(voice.name for voice in self.voices)]
            if self.people is not None
            else []
        )
        measures = [voice.name for voice in self.measures]
        # The page begins with the first name of the one list and the last of the other.
        both = [*labels, *models], [*models, *labels]
        return {APART: both, JUDGED: (people, people), ERRORS: (models, measures)}[kind]

    def disagreements(self, kind: str, high: str, low: str, count: int) -> list[Disagreement]:
        """At most `count` pairs of one of KINDS. InputError for names that do not go together."""
        highs, lows = self.sides(kind)
        if high not in highs or low not in lows or high == low:
            raise InputError("choose two different measures or models")
        with self._lock:
            if kind == ERRORS:
                pairs = self._errors(high, low)
            else:
                pairs = self._judged if kind == JUDGED else self._labelled
            return find_disagreements(pairs, self.corpus.captions.owner, high, low, count)

    def _find_errors(self, model: str, label: str) -> Pairs:
        models = {voice.name: voice for voice in self._matrix_voices}
        measures = {voice.name: voice for voice in self.measures}
        return models[model].find_errors(measures[label], self.corpus.captions)

    @cached_property
    def _labelled(self) -> Pairs:
        """The labelled pairs, with the scores of the models. Own captions are compared with the
        others of their image, not with themselves."""
        pairs = leave_themselves_out(
            self.corpus.pairs, self.corpus.captions.owner, self.measures, self.corpus.params
        )
        scores = {
            model.name: model.score_pairs(pairs.image, pairs.caption)
            for model in self._matrix_voices
        }
        return replace(pairs, values={**pairs.values, **scores})

    @cached_property
    def _judged(self) -> Pairs:
        assert self.people is not None
        image, caption = self.people.image, self.people.caption
        values = {voice.name: voice.score_pairs(image, caption) for voice in self.voices}
        values[PEOPLE_SCORES] = self.people.score.astype(np.float32)
        return Pairs(image, caption, np.ones(len(image)), values)
