"""Reading, scale and resize against OpenCV's rules written out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.detectors.preprocess import (
    NARROWEST,
    PIXEL_MEANS,
    CaffePrepare,
    resize,
    resize_scale,
)
from capgrade.pipelines.detectors.resnet import Stem
from capgrade.schemas.errors import InputError


@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [
        (375, 500, 1.6),
        (500, 375, 1.6),
        (600, 1000, 1.0),
        (480, 800, 1.25),  # 1000 exactly is allowed
        (480, 801, 1000 / 801),
        (300, 900, 1000 / 900),
        (1200, 1200, 0.5),
        (1199, 1999, 600 / 1199),  # the long side becomes 1000.3, which rounds to 1000
    ],
)
def test_scale(height: int, width: int, scale: float) -> None:
    assert resize_scale(height, width) == pytest.approx(scale, abs=0)


def slow_resize(plane: np.ndarray, scale: float) -> np.ndarray:
    """cv::resize, INTER_LINEAR, float32: pixel by pixel."""
    H, W = plane.shape
    out = np.zeros((max(1, round(H * scale)), max(1, round(W * scale))), np.float32)
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            fy, fx = ((v + 0.5) / scale - 0.5 for v in (y, x))
            y0, x0 = math.floor(fy), math.floor(fx)
            fy, fx = fy - y0, fx - x0
            y0, fy = (0, 0.0) if y0 < 0 else (y0, fy)
            x0, fx = (0, 0.0) if x0 < 0 else (x0, fx)
            y0, fy = (H - 1, 0.0) if y0 >= H - 1 else (y0, fy)
            x0, fx = (W - 1, 0.0) if x0 >= W - 1 else (x0, fx)
            y1, x1 = min(y0 + 1, H - 1), min(x0 + 1, W - 1)
            top = plane[y0, x0] * (1 - fx) + plane[y0, x1] * fx
            out[y, x] = top * (1 - fy) + (plane[y1, x0] * (1 - fx) + plane[y1, x1] * fx) * fy
    return out


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 15), st.integers(1, 15), st.floats(0.3, 4.0))
def test_resize_equals_the_loop(height: int, width: int, scale: float) -> None:
    plane = (
        np.random.default_rng(height * 16 + width)
        .uniform(-120, 150, (height, width))
        .astype(np.float32)
    )
    found = resize(torch.from_numpy(plane)[None], scale)[0].numpy()
    np.testing.assert_allclose(found, slow_resize(plane, scale), atol=1e-4)


def test_prepared_is_bgr_less_the_mean() -> None:
    rgb = np.zeros((60, 80, 3), np.uint8)
    rgb[..., 0], rgb[..., 1], rgb[..., 2] = 10, 20, 30
    image, scale = CaffePrepare()(rgb)
    assert scale == 10.0 and image.shape == (3, 600, 800) and image.dtype == torch.float32
    for channel, value in enumerate((30, 20, 10)):
        expected = torch.full((600, 800), value - PIXEL_MEANS[channel])
        torch.testing.assert_close(image[channel], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("width", "height"), [(1, 1), (9, 400), (640, 480), (333, 500), (1001, 999)]
)
def test_the_prepared_size_is_told_beforehand(width: int, height: int) -> None:
    prepare = CaffePrepare(64, 128)
    assert (
        prepare.size(width, height) == prepare(np.zeros((height, width, 3), np.uint8))[0].shape[1:]
    )


def test_a_picture_too_narrow_for_the_model_is_refused_and_no_wider_one() -> None:
    with pytest.raises(InputError, match="1 x 400 pixels are too narrow"):
        CaffePrepare()(np.zeros((400, 1, 3), np.uint8))
    assert Stem(1)(torch.zeros(1, 3, 9, NARROWEST)).numel()
