"""A measure of one's own is one class that knows its pairs, one that fits it, and one line of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from capgrade.explorer.voices import measure_voices
from capgrade.pipelines.measures import MEASURES, choose
from capgrade.pipelines.measures.base import ArrayState
from capgrade.pipelines.measures.on_device import on_device
from capgrade.pipelines.measures.own_pairs import own_left_out
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.params import MeasuresParams, RelevanceParams, ShardsParams, WindowsParams
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.shards import read_shards
from tests.conftest import caption_table, random_sets, write_captions_folder


@dataclass(frozen=True)
class FittedToy(ArrayState):
    """How near a caption's length is to that of a reference, the nearest: 1 / (1 + difference)."""

    ref_ptr: np.ndarray
    refs: np.ndarray
    words: np.ndarray
    leave_out: bool

    @property
    def columns(self) -> int:
        return len(self.words)

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        out = np.empty(len(captions), np.float32)
        for k, (image, caption) in enumerate(zip(images, captions, strict=True)):
            own = self.refs[self.ref_ptr[image] : self.ref_ptr[image + 1]]
            own = own[own != caption] if self.leave_out else own
            out[k] = 1 / (1 + np.abs(self.words[own] - self.words[caption]).min())
        return out


class Toy:
    low, high = 0.0, 1.0

    def fit(self, captions: Captions) -> FittedToy:
        words = np.array([len(text.split()) for text in captions.texts])
        return FittedToy(captions.ref_ptr, captions.refs, words, leave_out=False)


def test_every_road_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEASURES, "toy", lambda params: Toy())
    folder = write_captions_folder(tmp_path / "captions", [caption_table(random_sets(20, seed=3, least=2))])
    captions = read_captions(folder)
    fitted = choose(["toy"], MeasuresParams())["toy"].fit(captions)
    image, row = np.indices((captions.n_images, captions.n_captions)).reshape(2, -1)
    wanted = fitted.pairs(image, row).reshape(captions.n_images, -1)
    relevance(folder, tmp_path / "relevance", RelevanceParams(measures=("toy",)), MeasuresParams())
    assert np.array_equal(read_relevance(tmp_path / "relevance" / "toy.arrow").matrix(), wanted)
    for among in ("all", 0.5):
        plan = ShardsParams(measures=("toy", "rouge_l"), top=3, windows=WindowsParams(among=among))
        shards(folder, tmp_path / f"{among}", plan, MeasuresParams())
        for batch in read_shards(tmp_path / f"{among}").batches():
            for kept in batch.to_pylist():
                np.testing.assert_array_equal(kept["toy"], wanted[kept["image"], kept["captions"]])
                best = [v for v, why in zip(kept["toy"], kept["reasons"], strict=True) if why & 4]
                assert sorted(best) == sorted(np.sort(wanted[kept["image"]])[-3:])
    left_out = own_left_out(Toy(), captions)
    assert left_out is not None and (left_out <= wanted[captions.owner, np.arange(captions.n_captions)]).all()
    (voice,) = measure_voices(captions, ["toy"], MeasuresParams())
    assert np.array_equal(voice.of_image(2), wanted[2]) and np.array_equal(voice.of_pairs(image, row), wanted.ravel())
    assert on_device(fitted, "cpu") is fitted
