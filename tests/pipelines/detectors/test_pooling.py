"""ROIPool against a slow reference, loop by loop as the upstream code has it."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.detectors.pooling import roi_pool

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
    """Two images; rois beyond the map, of no area, with corners on halves of a cell; sometimes
    none."""
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
