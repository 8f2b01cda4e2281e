"""Reading, scale and resize against OpenCV's rules, and ROIPool against the upstream code, written out loop by loop."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.detectors.pooling import roi_pool
from capgrade.pipelines.detectors.preprocess import NARROWEST, PIXEL_MEANS, CaffePrepare, resize, resize_scale
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
    plane = np.random.default_rng(height * 16 + width).uniform(-120, 150, (height, width)).astype(np.float32)
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


@pytest.mark.parametrize(("width", "height"), [(1, 1), (9, 400), (640, 480), (333, 500), (1001, 999)])
def test_the_prepared_size_is_told_beforehand(width: int, height: int) -> None:
    prepare = CaffePrepare(64, 128)
    assert prepare.size(width, height) == prepare(np.zeros((height, width, 3), np.uint8))[0].shape[1:]


def test_a_picture_too_narrow_for_the_model_is_refused_and_no_wider_one() -> None:
    with pytest.raises(InputError, match="1 x 400 pixels are too narrow"):
        CaffePrepare()(np.zeros((400, 1, 3), np.uint8))
    assert Stem(1)(torch.zeros(1, 3, 9, NARROWEST)).numel()


WHOLE = slice(None)


def slow_round(x: float) -> int:
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def slow_roi_pool(features: np.ndarray, rois: np.ndarray, size: int, scale: float) -> np.ndarray:
    """roi_pooling_layer.cpp, variable by variable."""
    B, C, H, W = features.shape
    f32 = np.float32
    out = np.zeros((len(rois), C, size, size), f32)
    for n, roi in enumerate(rois):
        x1, y1, x2, y2 = (slow_round(float(v * f32(scale))) for v in roi[1:])
        bin_h, bin_w = (f32(max(b - a + 1, 1)) / f32(size) for a, b in ((y1, y2), (x1, x2)))
        for ph in range(size):
            for pw in range(size):
                h1, w1 = (int(np.floor(f32(p) * b)) for p, b in ((ph, bin_h), (pw, bin_w)))
                h2, w2 = (int(np.ceil(f32(p + 1) * b)) for p, b in ((ph, bin_h), (pw, bin_w)))
                h1, h2 = (min(max(h + y1, 0), H) for h in (h1, h2))
                w1, w2 = (min(max(w + x1, 0), W) for w in (w1, w2))
                if h2 > h1 and w2 > w1:
                    out[n, :, ph, pw] = features[int(roi[0]), :, h1:h2, w1:w2].max(axis=(1, 2))
    return out


@st.composite
def maps_and_rois(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two images; rois beyond the map, of no area, with corners on halves of a cell; sometimes none."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    H, W, n = draw(st.integers(1, 20)), draw(st.integers(1, 20)), draw(st.sampled_from([0, 6]))
    features = rng.normal(size=(2, 3, H, W)).astype(np.float32)
    corner = rng.uniform(-20, 16 * np.array([W, H]), (n, 2))
    side = rng.uniform(0, 1.3 * 16 * np.array([W, H]), (n, 2)) * rng.integers(0, 2, (n, 1))
    boxes = np.concatenate([corner, corner + side], axis=1)
    boxes[:3] = np.round(boxes[:3] / 8) * 8
    return features, np.concatenate([rng.integers(0, 2, (n, 1)), boxes], axis=1).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(maps_and_rois(), st.sampled_from([1, 3, 7, 14]))
def test_roi_pool_equals_the_loop(case: tuple[np.ndarray, np.ndarray], size: int) -> None:
    features, rois = case
    found = roi_pool(torch.from_numpy(features), torch.from_numpy(rois), size, 1 / 16)(WHOLE)
    np.testing.assert_array_equal(found.numpy(), slow_roi_pool(features, rois, size, 1 / 16))


def test_roi_pool_gradient_reaches_the_maxima_once() -> None:
    features = torch.randn(1, 2, 9, 9, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor([[0.0, 0, 0, 128, 128]])  # 9 x 9 cells
    roi_pool(features, rois, 3, 1 / 16)(WHOLE).sum().backward()
    blocks = features.detach().unfold(2, 3, 3).unfold(3, 3, 3)
    is_maximum = blocks == blocks.amax(dim=(4, 5), keepdim=True)
    assert features.grad is not None
    assert torch.equal(features.grad.unfold(2, 3, 3).unfold(3, 3, 3), is_maximum.double())
