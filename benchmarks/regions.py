"""Pictures per second of the detector by step, beside the arithmetic that the machine can do.

The steps are timed one after the other on pictures one at a time, so that each has its own time; in a run, decoding
and resizing happen in other processes meanwhile. Multiply-adds are counted on the same pictures before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from capgrade.benchmarks.harness import Asked, Rows
from capgrade.pipelines.detectors.bottom_up import BottomUpDetector
from capgrade.pipelines.detectors.catalogue import RANDOM, make_detector
from capgrade.pipelines.detectors.selection import select_regions
from capgrade.pipelines.pictures.listing import Picture, read_pictures
from capgrade.pipelines.regions import as_regions
from capgrade.schemas.devices import precision_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import RegionsParams
from capgrade.schemas.progress import progress
from capgrade.schemas.regions import Regions, Rounding, region_schema, write_shard

STEPS = ("decode", "backbone", "rpn", "head", "selection", "write")
MATRIX = 4096  # side of the product that measures the arithmetic
REPEATS = 5  # of which the best is taken, as other work slows some
COMPARED = 36  # proposals of a picture whose features are compared with float32's


class Clock:
    """Seconds by step; on a GPU a step ends when the device has done it."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.steps = device, dict.fromkeys(STEPS, 0.0)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._wait()
        start = time.perf_counter()
        yield
        self._wait()
        self.steps[name] += time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Counter:
    """Billions of multiply-adds by step."""

    def __init__(self) -> None:
        self.steps = dict.fromkeys(STEPS, 0.0)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        with FlopCounterMode(display=False) as counter:
            yield
        self.steps[name] += counter.get_total_flops() / 2e9


@torch.inference_mode()
def bench(asked: Asked) -> Rows:
    """Of each step: ms and images_per_s, gmac of an image, and share_of_limit, its multiply-adds a second over those of
    a large product in the same precision. `all` has the whole, and below float32 the error of features.

    InputError for a detector that is not the bottom-up model.
    """
    if asked.bench.pictures is None:
        raise InputError("no pictures", remedy="give --set bench.pictures=DIR")
    detector = make_detector(_params(asked))
    if not isinstance(detector, BottomUpDetector):
        raise InputError(f"detector {detector.name} has no such steps", remedy="choose scenes or bottom_up")
    pictures = read_pictures(Path(asked.bench.pictures))[: asked.bench.limit]
    clock, counter, images, rates = Clock(detector.device), Counter(), [], [arithmetic_rate(detector)]
    with progress("timing", len(pictures), unit="images") as advance:
        for picture in pictures:
            _one(detector, picture, counter)  # compiles and fills caches
            images.append(_one(detector, picture, clock))
            rates.append(arithmetic_rate(detector))
            advance()
    with clock.step("write"), tempfile.TemporaryDirectory() as folder:
        write_shard(Path(folder) / "one.arrow", images, region_schema(detector.n_features, "float16"), Rounding())
    n, limit, rows = len(pictures), max(rates), Rows()
    for name, seconds in clock.steps.items():
        rows[name] = {"ms": seconds / n * 1000, "images_per_s": n / seconds}
        if gmac := counter.steps[name]:
            rows[name] |= {"gmac": gmac / n, "share_of_limit": gmac / seconds / limit}
    total = sum(clock.steps.values())
    rows["all"] = {"ms": total / n * 1000, "images_per_s": n / total, "images": n, "limit_gmac_per_s": limit}
    if detector.precision != "float32":
        rows["all"] |= feature_error(detector, pictures)
    return rows


def _params(asked: Asked) -> RegionsParams:
    weights = asked.bench.weights or (RANDOM if asked.bench.detector == "bottom_up" else None)
    changed = {"detector": asked.bench.detector, "weights": weights, "precision": asked.bench.precision}
    return RegionsParams.model_validate(asked.params.regions.model_dump() | changed)


def _one(detector: BottomUpDetector, picture: Picture, meter: Clock | Counter) -> Regions:
    """What is stored of a picture."""
    model = detector.model
    with meter.step("decode"):
        rgb, _ = picture.decode()
        image, scale = detector.prepare(rgb)
        batch = detector.on_device(image[None])
    with detector.arithmetic():
        with meter.step("backbone"):
            features = model.backbone(batch)
        with meter.step("rpn"):
            proposals = model.propose(features, (image.shape[1], image.shape[2]), [scale])
        with meter.step("head"):
            regions = model.describe(features, proposals, deltas=detector.rule.regresses)[0]
    with meter.step("selection"):
        detections = select_regions([regions], [scale], [(rgb.shape[1], rgb.shape[0])], detector.rule)[0]
    return as_regions(picture.image_id, detections)


def arithmetic_rate(detector: BottomUpDetector) -> float:
    """Billions of multiply-adds a second of a large product in a detector's precision.

    As a matrix product and as a 1x1 convolution, which are other libraries' work (MKL and oneDNN on a CPU).
    """
    device = detector.device
    side = MATRIX if device.type == "cuda" else MATRIX // 2
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16 if detector.precision == "bf16" else torch.float32)
    image, kernel = a.reshape(1, side, 64, -1), a[:, :, None, None]
    rates = []
    for product in (lambda: a @ a, lambda: functional.conv2d(image, kernel)):
        product()
        for _ in range(REPEATS):
            clock = Clock(device)
            with detector.arithmetic(), clock.step("head"):
                product()
            rates.append(side**3 / clock.steps["head"] / 1e9)
    return max(rates)


def feature_error(detector: BottomUpDetector, pictures: list[Picture]) -> dict[str, float]:
    """Its precision beside float32 on the same boxes, the first proposals: relative error and cosine of features."""
    model, errors, cosines = detector.model, [], []
    for picture in pictures:
        image, scale = detector.prepare(picture.decode()[0])
        batch = detector.on_device(image[None])
        with precision_of("float32", detector.device):
            exact = model.backbone(batch)
            boxes, scores = model.propose(exact, (image.shape[1], image.shape[2]), [scale])[0]
            some = [(boxes[:COMPARED], scores[:COMPARED])]
            expected = model.describe(exact, some)[0].features
        with detector.arithmetic():
            features = model.describe(model.backbone(batch), some)[0].features
        errors.append(float((features - expected).norm() / expected.norm()))
        cosines.append(float(functional.cosine_similarity(features, expected).min()))
    return {"relative_error": float(np.mean(errors)), "least_cosine": min(cosines)}
