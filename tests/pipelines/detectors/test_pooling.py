"""ROIPool and ROIAlign against slow references, loop by loop as the upstream code has them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.detectors import pooling

BOTH = [True, False]


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


def slow_bilinear(plane: np.ndarray, y: float, x: float) -> float:
    H, W = plane.shape
    if y < -1 or y > H or x < -1 or x > W:
        return 0.0
    y, x = max(y, 0.0), max(x, 0.0)
    y0, x0 = int(y), int(x)
    y0, y1, y = (H - 1, H - 1, float(H - 1)) if y0 >= H - 1 else (y0, y0 + 1, y)
    x0, x1, x = (W - 1, W - 1, float(W - 1)) if x0 >= W - 1 else (x0, x0 + 1, x)
    ly, lx = y - y0, x - x0
    top = plane[y0, x0] * (1 - lx) + plane[y0, x1] * lx
    return top * (1 - ly) + (plane[y1, x0] * (1 - lx) + plane[y1, x1] * lx) * ly


def slow_roi_align(
    features: np.ndarray, rois: np.ndarray, size: int, scale: float, ratio: int, aligned: bool
) -> np.ndarray:
    """ROIAlign_cpu.cpp, loop by loop."""
    C = features.shape[1]
    out = np.zeros((len(rois), C, size, size))
    for n, roi in enumerate(rois.astype(np.float32)):
        x1, y1, x2, y2 = roi[1:] * np.float32(scale) - np.float32(0.5 if aligned else 0)
        w, h = (x2 - x1, y2 - y1) if aligned else (max(x2 - x1, np.float32(1)), max(y2 - y1, np.float32(1)))
        gy, gx = (ratio, ratio) if ratio else (math.ceil(h / size), math.ceil(w / size))
        for ph in range(size):
            for pw in range(size):
                for iy in range(gy):
                    for ix in range(gx):
                        y = y1 + ph * h / size + (iy + 0.5) * h / size / gy
                        x = x1 + pw * w / size + (ix + 0.5) * w / size / gx
                        for c in range(C):
                            out[n, c, ph, pw] += slow_bilinear(features[int(roi[0]), c], float(y), float(x))
        out[n] /= max(gy * gx, 1)
    return out


@st.composite
def maps_and_rois(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    H, W = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    features = rng.normal(size=(2, 3, H, W)).astype(np.float32)
    corner = rng.uniform(-20, 16 * np.array([W, H]), (6, 2))
    side = rng.uniform(0, 1.3 * 16 * np.array([W, H]), (6, 2)) * rng.integers(0, 2, (6, 1))
    boxes = np.concatenate([corner, corner + side], axis=1)
    boxes[:3] = np.round(boxes[:3] / 8) * 8  # corners that fall on halves of a cell
    return features, np.concatenate([rng.integers(0, 2, (6, 1)), boxes], axis=1).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(maps_and_rois(), st.sampled_from([1, 3, 7, 14]))
def test_roi_pool_equals_the_loop(case: tuple[np.ndarray, np.ndarray], size: int) -> None:
    features, rois = case
    found = pooling.roi_pool(torch.from_numpy(features), torch.from_numpy(rois), size, 1 / 16)
    np.testing.assert_array_equal(found.numpy(), slow_roi_pool(features, rois, size, 1 / 16))


@settings(max_examples=25, deadline=None)
@given(maps_and_rois(), st.sampled_from([1, 2, 4]), st.sampled_from([0, 1, 2]), st.booleans())
def test_roi_align_equals_the_loop(case: tuple[np.ndarray, np.ndarray], size: int, ratio: int, aligned: bool) -> None:
    features, rois = case
    found = pooling.roi_align(
        torch.from_numpy(features), torch.from_numpy(rois), size, 1 / 16, sampling_ratio=ratio, aligned=aligned
    )
    expected = slow_roi_align(features, rois, size, 1 / 16, ratio, aligned)
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("op", [pooling.roi_pool, pooling.roi_align])
def test_no_rois(op: object) -> None:
    assert callable(op)
    assert op(torch.rand(1, 3, 5, 5), torch.zeros(0, 5), 7, 1 / 16).shape == (0, 3, 7, 7)


def test_roi_pool_gradient_reaches_the_maxima_once() -> None:
    features = torch.randn(1, 2, 9, 9, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor([[0.0, 0, 0, 128, 128]])  # 9 x 9 cells
    pooling.roi_pool(features, rois, 3, 1 / 16).sum().backward()
    blocks = features.detach().unfold(2, 3, 3).unfold(3, 3, 3)
    is_maximum = blocks == blocks.amax(dim=(4, 5), keepdim=True)
    assert features.grad is not None
    assert torch.equal(features.grad.unfold(2, 3, 3).unfold(3, 3, 3), is_maximum.double())


@pytest.mark.parametrize("aligned", BOTH)
def test_roi_align_gradient(aligned: bool) -> None:
    features = torch.randn(1, 1, 4, 5, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor([[0.0, 3, 5, 60, 44]])
    assert torch.autograd.gradcheck(lambda x: pooling.roi_align(x, rois, 2, 1 / 16, aligned=aligned), (features,))


def test_one_image_does_not_see_another() -> None:
    features = torch.randn(2, 3, 8, 9)
    rois = torch.tensor([[0.0, 5, 5, 100, 90], [1, 5, 5, 100, 90]])
    for op in (pooling.roi_pool, pooling.roi_align):
        apart = torch.cat([op(features[i : i + 1], rois[:1], 7, 1 / 16) for i in range(2)])
        torch.testing.assert_close(op(features, rois, 7, 1 / 16), apart)
