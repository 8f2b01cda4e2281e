"""The forms for a GPU beside the kernels: on the processor, and on a GPU where one is."""

import numpy as np
import pytest
import torch

from capgrade.measures import choose
from capgrade.measures.base import CHUNK
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from research.benchmarks.gpu import BLOCK_FORMS
from tests.conftest import caption_table, make_captions, random_sets, write_captions_folder

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
# image_text has tests of its own, as it wants pictures.
FORMS = [form for form in BLOCK_FORMS if form[0] != "image_text"]


def largest_difference(
    captions: Captions, name: str, block: dict, device: str, images: np.ndarray
) -> float:
    fitted = choose([name], MeasuresParams(**{name: block}))[name].fit(captions)
    moved = fitted.on_device(torch.device(device))
    assert type(moved) is not type(fitted)
    found, some = moved.score(images), np.array([9, 2, 9, captions.n_captions - 1])
    assert np.array_equal(moved.score(images, some), found[:, some])
    return float(np.abs(found - fitted.score(images)).max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "block"), FORMS, ids=lambda value: str(value))
def test_equals_the_kernels(
    name: str, block: dict, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Across chunks; with short, long and very long references, empty captions, images in any
    order."""
    monkeypatch.setattr("capgrade.measures.base.CHUNK", 32)
    sets = random_sets(14, seed=5, least=2) + [
        ["a dog " * 20, "cat"],
        ["red ball " * 40, "a dog", "ball"],
        ["", "a cat"],
    ]
    images = np.random.default_rng(0).permutation(len(sets))
    assert largest_difference(make_captions(sets), name, block, device, images) < 1e-5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["cider", "rouge_l"])
def test_equals_the_kernels_on_coco(name: str, device: str, coco: Captions) -> None:
    images = np.arange(4990, 5000)
    assert coco.n_captions > CHUNK
    assert largest_difference(coco, name, {}, device, images) < 1e-5


def test_a_mixture_moves_its_parts() -> None:
    captions = make_captions(random_sets(6))
    params = MeasuresParams(mixtures={"m": {"cider": 0.1, "bleu": 1.0}})
    fitted = choose(["m"], params)["m"].fit(captions)
    moved = fitted.on_device(torch.device("cpu"))
    assert type(moved.parts["cider"]).__name__ == "CiderOnDevice"  # type: ignore[attr-defined]
    assert type(moved.parts["bleu"]).__name__ == "FittedBleu"  # type: ignore[attr-defined]
    np.testing.assert_allclose(moved.score(np.arange(6)), fitted.score(np.arange(6)), atol=1e-5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu(tmp_path) -> None:
    folder = write_captions_folder(tmp_path / "c", [caption_table(random_sets(4))])
    with pytest.raises(
        InputError, match="no GPU 0 for device cuda: torch sees 0 -> use device cpu, or install"
    ):
        shards(
            folder,
            tmp_path / "s",
            ShardsParams(measures=("cider",), device="cuda"),
            MeasuresParams(),
        )
