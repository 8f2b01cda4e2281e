"""The measure that docs/measures.md shows, which is two classes and one line of the catalogue, on
every road."""

from pathlib import Path

import numpy as np
import pytest

from capgrade.apps.explorer.voices import fit_measure_voices
from capgrade.measures import MEASURES, choose
from capgrade.measures.on_device import on_device
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.publish.folder import publish
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.pipelines.stages.shards import ShardsParams, WindowsParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.own_pairs import read_own_pairs
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.shards import read_shards
from tests.conftest import ROOT, caption_table, random_sets, write_captions_folder
from tests.docs.blocks import examples


def test_every_road_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEASURES, "length", None)  # taken out afterwards
    names: dict = {}
    (shown,) = (
        e.text for e in examples(ROOT / "docs" / "measures.md") if "class FittedLength" in e.text
    )
    exec(shown, names)
    folder = write_captions_folder(
        tmp_path / "captions", [caption_table(random_sets(20, seed=3, least=2))]
    )
    captions = read_captions(folder)
    fitted = choose(["length"], MeasuresParams())["length"].fit(captions)
    image, row = np.indices((captions.n_images, captions.n_captions)).reshape(2, -1)
    wanted = fitted.pairs(image, row).reshape(captions.n_images, -1)
    relevance(
        folder, tmp_path / "relevance", RelevanceParams(measures=("length",)), MeasuresParams()
    )
    assert np.array_equal(read_relevance(tmp_path / "relevance" / "length.arrow").matrix(), wanted)
    for among in ("all", 0.5):
        plan = ShardsParams(
            measures=("length", "rouge_l"), top=3, windows=WindowsParams(among=among)
        )
        shards(folder, tmp_path / f"{among}", plan, MeasuresParams())
        for batch in read_shards(tmp_path / f"{among}").batches():
            for kept in batch.to_pylist():
                np.testing.assert_array_equal(
                    kept["length"], wanted[kept["image"], kept["captions"]]
                )
                best = [
                    v for v, why in zip(kept["length"], kept["reasons"], strict=True) if why & 4
                ]
                assert sorted(best) == sorted(np.sort(wanted[kept["image"]])[-3:])
    publish(folder, [tmp_path / "all"], tmp_path / "dataset", PublishParams(license="cc0-1.0"))
    card = (tmp_path / "dataset" / "README.md").read_text()
    assert f"| `length` | float32 | {names['Length'].__doc__.splitlines()[0]} |" in card
    own = read_own_pairs(tmp_path / "relevance")
    assert np.array_equal(own["length"], wanted[captions.owner, np.arange(captions.n_captions)])
    assert (own["length_left_out"] <= own["length"]).all() and (
        own["length_left_out"] < own["length"]
    ).any()
    (voice,) = fit_measure_voices(captions, ["length"], MeasuresParams())
    compared = wanted.copy()  # a caption is no reference of itself
    compared[captions.owner, np.arange(captions.n_captions)] = own["length_left_out"]
    np.testing.assert_array_equal(voice.score_image(2), compared[2])
    np.testing.assert_array_equal(voice.score_pairs(image, row), compared.ravel())
    assert on_device(fitted, "cpu") is fitted
