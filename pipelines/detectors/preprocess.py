"""Pictures as input of the bottom-up detector: BGR less its mean, then resized as OpenCV does."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from capgrade.schemas.errors import InputError

PIXEL_MEANS = (102.9801, 115.9465, 122.7717)  # B, G, R: lib/fast_rcnn/config.py
SHORT_SIDE, LONG_SIDE = 600, 1000
# The least side of a prepared picture: the stem's convolution makes of 3 pixels the 2 that its pool
# needs.
NARROWEST = 3


def resize_scale(
    height: int, width: int, *, short: int = SHORT_SIDE, long: int = LONG_SIDE
) -> float:
    """The factor that makes the short side `short` pixels, or less where the long side would be
    longer than `long`. Source: _get_image_blob, lib/fast_rcnn/test.py, bottom-up-attention."""
    scale = short / min(height, width)
    if round(scale * max(height, width)) > long:
        scale = long / max(height, width)
    return scale


def resized_size(height: int, width: int, scale: float) -> tuple[int, int]:
    """Height and width after a resize; halves are rounded to even, as cvRound does."""
    return max(1, round(height * scale)), max(1, round(width * scale))


def resize(image: Tensor, scale: float) -> Tensor:
    """Bilinear without antialiasing: float32 (C, H, W) -> (C, round(H scale), round(W scale)).

    Equals cv2.resize(image, None, fx=scale, fy=scale, interpolation=INTER_LINEAR): output pixel d
    reads (d + 0.5) / scale - 0.5, computed in float64 and cut to the image.
    """
    # torch's `interpolate` has no such mode: given the output size, it divides by round(H scale) /
    # H instead of scale, and given the factor, it rounds the size down.
    height, width = resized_size(image.shape[-2], image.shape[-1], scale)
    left, right, share = _taps(width, image.shape[-1], scale, image.device)
    image = torch.lerp(image[..., left], image[..., right], share)
    top, bottom, share = _taps(height, image.shape[-2], scale, image.device)
    return torch.lerp(image[..., top, :], image[..., bottom, :], share[:, None])


def _taps(
    size: int, source: int, scale: float, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """The two source pixels of each output pixel, and the float32 share of the second."""
    at = (torch.arange(size, dtype=torch.float64, device=device) + 0.5) / scale - 0.5
    at = at.clamp(0, source - 1)
    first = at.floor().long()
    return first, (first + 1).clamp(max=source - 1), (at - first).float()


@dataclasses.dataclass(frozen=True)
class CaffePrepare:
    """uint8 (H, W, 3) RGB -> float32 (3, h, w) BGR less PIXEL_MEANS, resized; and the scale h / H.

    The mean is subtracted before the resize, there is no division by a deviation and no padding.
    InputError for a picture that is too narrow for the model.
    """

    short: int = SHORT_SIDE
    long: int = LONG_SIDE

    def __call__(self, rgb: np.ndarray) -> tuple[Tensor, float]:
        height, width = rgb.shape[:2]
        if min(self.size(width, height)) < NARROWEST:
            raise InputError(f"{width} x {height} pixels are too narrow for the detector")
        bgr = torch.from_numpy(np.ascontiguousarray(rgb[:, :, ::-1].transpose(2, 0, 1))).float()
        bgr -= torch.tensor(PIXEL_MEANS)[:, None, None]
        scale = resize_scale(height, width, short=self.short, long=self.long)
        return resize(bgr, scale), scale

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Height and width of the prepared picture."""
        return resized_size(
            height, width, resize_scale(height, width, short=self.short, long=self.long)
        )
