"""Questions to every voice at once: what each ranks first for a caption or an image."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from capgrade.explorer.corpus import LabelledCorpus
from capgrade.explorer.findings import Finding, between, judged, retrieved, wrong_errors
from capgrade.explorer.pairs import LabelledPairs
from capgrade.explorer.pictures import Thumbnails
from capgrade.explorer.voices import NOTHING, MeasureVoice, Voice, top, usual
from capgrade.pipelines.agree import Judgements
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions

if TYPE_CHECKING:
    from capgrade.explorer.models import ModelVoice  # which loads torch
    from capgrade.pipelines.detectors.selection import Detector

LONGEST = 2000  # characters of a typed caption


@dataclass(frozen=True)
class ShownHit:
    """An image or a caption by its number, with its score; `own`: it belongs to what was asked."""

    number: int
    score: float
    own: bool


@dataclass(frozen=True)
class VoiceAnswer:
    """What one voice ranks first, or why it does not answer, or that nothing is like what was asked."""

    voice: str
    kind: str
    hits: tuple[ShownHit, ...]
    seconds: float
    note: str = ""


@dataclass
class Explorer:
    """A corpus, who ranks it, and what people said of it. Questions are answered one at a time: kernels use all cores
    themselves, and not every threading layer of numba lets two callers in."""

    corpus: LabelledCorpus
    measures: Sequence[MeasureVoice]
    models: Sequence[ModelVoice] = ()
    thumbnails: Thumbnails = field(default=None)  # type: ignore[assignment]
    people: Judgements | None = None
    detector: Detector | None = None

    def __post_init__(self) -> None:
        self.thumbnails = self.thumbnails or Thumbnails(self.corpus.captions, None)
        self._lock = threading.Lock()
        self.retrieved = lru_cache(maxsize=8)(self._retrieved)
        self._usual: dict[str, float] = {}

    @property
    def voices(self) -> list[Voice]:
        """All that rank: the measures, then the models."""
        return [*self.measures, *self.models]

    @property
    def looks_at_pictures(self) -> bool:
        """Whether `of_upload` answers: measures know images by their captions, models by what a detector finds."""
        return self.detector is not None and bool(self.models)

    def of_text(self, text: str, count: int = 8) -> list[VoiceAnswer]:
        """Images for a caption in words; of each voice with a note where nothing is like it. InputError for one that is
        empty or too long."""
        if not text.strip() or len(text) > LONGEST:
            raise InputError(f"a caption of {len(text)} characters", remedy=f"type 1 to {LONGEST}")
        same = np.array([k for k, known in enumerate(self.corpus.captions.texts) if known == text], np.int64)
        own = set(self.corpus.captions.owner[same].tolist())
        answers = [self._answer(voice, partial(voice.of_text, text), own, count) for voice in self.voices]
        return [self._noted(voice, answer) for voice, answer in zip(self.voices, answers, strict=True)]

    def _noted(self, voice: Voice, answer: VoiceAnswer) -> VoiceAnswer:
        """With the note that nothing is like it, where the best score is below what is usual."""
        if not answer.hits or any(hit.own for hit in answer.hits):
            return answer
        if voice.name not in self._usual:
            with self._lock:
                self._usual[voice.name] = usual(voice, self.corpus.captions)
        best = answer.hits[0].score
        unlike = best < self._usual[voice.name] or (voice.kind == "measure" and best <= 0)
        return replace(answer, note=NOTHING) if unlike else answer

    def of_caption(self, caption: int, count: int = 8) -> list[VoiceAnswer]:
        """Images for a caption of the corpus."""
        own = {int(self.corpus.captions.owner[caption])}
        return [self._answer(voice, partial(voice.of_caption, caption), own, count) for voice in self.voices]

    def of_image(self, image: int, count: int = 8) -> list[VoiceAnswer]:
        """Captions for an image of the corpus."""
        own = set(np.flatnonzero(self.corpus.captions.owner == image).tolist())
        return [self._answer(voice, partial(voice.of_image, image), own, count) for voice in self.voices]

    def of_upload(self, data: bytes, count: int = 8) -> list[VoiceAnswer]:
        """Captions for a picture that is not of the corpus, by the models alone. InputError for a file that is not a
        picture, and if there is no model and detector to look at it."""
        if self.detector is None or not self.models:
            remedy = "start with --run, --index and --detector"
            raise InputError("a picture needs a trained model and the detector it was trained with", remedy=remedy)
        with self._lock:
            regions = detect(self.detector, data)
        return [self._answer(m, partial(m.of_regions, regions), set(), count) for m in self.models]

    def _answer(self, voice: Voice, ask: Callable[[], np.ndarray | None], own: set[int], count: int) -> VoiceAnswer:
        start = time.perf_counter()
        with self._lock:
            scores = ask()
        if scores is None:
            return VoiceAnswer(voice.name, voice.kind, (), 0.0, "answers captions of the corpus, not typed ones")
        best = top(scores, count).tolist()
        hits = tuple(ShownHit(k, float(scores[k]), k in own) for k in best)
        note = "" if hits else "does not know this item: it is not in its index"
        return VoiceAnswer(voice.name, voice.kind, hits, time.perf_counter() - start, note)

    def _retrieved(self, model: str, label: str) -> LabelledPairs:
        by_model = next(voice for voice in self.models if voice.name == model)
        by_label = next(voice for voice in self.measures if voice.name == label)
        with self._lock:
            return retrieved(by_model, by_label, self.corpus.captions)

    def errors_that_are_none(self, model: str, label: str, count: int) -> list[Finding]:
        """What the model retrieves above the original, the highest labels first."""
        return wrong_errors(self.retrieved(model, label), label, count)

    def measures_apart(self, high: str, low: str, count: int) -> list[Finding]:
        """Labelled pairs that the measure `high` ranks highest above `low`, `count` at most."""
        return between(self.corpus.pairs, high, low, count)

    def labels_and_people(self, high: str, low: str, count: int) -> list[Finding]:
        """One of the two names is PEOPLE."""
        return between(self.judged(), high, low, count)

    def judged(self) -> LabelledPairs:
        """InputError where there are no judgements."""
        if self.people is None:
            raise InputError("no human judgements were given", remedy="start with --judgements FILE")
        if not hasattr(self, "_judged"):
            with self._lock:
                self._judged = judged(self.people, [*self.measures, *self.models], self.corpus.captions)
        return self._judged


def detect(detector: Detector, data: bytes) -> Regions:
    """Regions of an uploaded picture. InputError for a file that is not a picture, and for a picture in
    which nothing is found."""
    from capgrade.pipelines.regions import as_regions
    from capgrade.schemas.pictures import decode_image

    rgb = decode_image(data, "uploaded picture")
    prepared, scale = detector.prepare(rgb)
    found = detector.detect(prepared[None], [scale], [(rgb.shape[1], rgb.shape[0])])[0]
    return as_regions("uploaded", found)
