"""Images a second of the region detector, step by step, beside the arithmetic that the machine can do.

The steps are timed one after the other on pictures one at a time, so that each has its own time; in a run, decoding
and resizing happen in other processes meanwhile. Multiply-adds are counted by running the model on the meta device.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from capgrade.pipelines.detectors.batched import BottomUpDetector
from capgrade.pipelines.detectors.bottom_up import BottomUp
from capgrade.pipelines.detectors.catalogue import make_detector
from capgrade.pipelines.detectors.selection import select_regions
from capgrade.pipelines.pictures.listing import Picture, read_pictures
from capgrade.pipelines.regions import as_regions
from capgrade.schemas.console import console
from capgrade.schemas.devices import precision_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import RegionsParams
from capgrade.schemas.progress import progress
from capgrade.schemas.regions import Regions as Stored
from capgrade.schemas.regions import Rounding, region_schema, write_shard

STEPS = ("decode", "backbone", "rpn", "head", "selection", "write")
MATRIX = 4096  # side of the product that measures the arithmetic


@dataclass
class Clock:
    """Seconds by step; on a GPU a step ends when the device has done it."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._wait()
        start = time.perf_counter()
        yield
        self._wait()
        self.seconds[name] += time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@torch.inference_mode()
def bench(images: Path, params: RegionsParams, *, limit: int = 3) -> dict[str, Any]:
    """images_per_s and steps over the first `limit` pictures.

    A step has ms per image, gmac an image, and share_of_limit: its multiply-adds a second over those of a large
    product in the same precision. InputError for a detector that is not the bottom-up model.
    """
    detector = make_detector(params)
    if not isinstance(detector, BottomUpDetector):
        raise InputError(f"detector {detector.name} has no such steps", remedy="choose scenes or bottom_up")
    pictures = read_pictures(images)[:limit]
    _warm_up(detector, pictures[0])
    clock, kept = Clock(detector.device), []
    gmac: dict[str, float] = {}
    rates = [arithmetic_rate(detector)]
    with progress("timing", len(pictures), unit="images") as advance:
        for picture in pictures:
            stored, shape, proposals = _one(detector, picture, clock)
            kept.append(stored)
            for name, count in gmacs(detector.model, *shape, proposals, deltas=detector.rule.regresses).items():
                gmac[name] = gmac.get(name, 0.0) + count
            rates.append(arithmetic_rate(detector))
            advance()
    with clock.step("write"), tempfile.TemporaryDirectory() as folder:
        schema = region_schema(detector.n_features, "float16")
        write_shard(Path(folder) / "one.arrow", kept, schema, Rounding())
    total = sum(clock.seconds.values())
    result: dict[str, Any] = {
        "detector": detector.name, "device": str(detector.device), "precision": detector.precision,
        "threads": torch.get_num_threads(), "images": len(pictures), "images_per_s": len(pictures) / total,
        "limit_gmac_per_s": max(rates), "steps": _steps(clock, gmac, len(pictures), max(rates)),
    }  # fmt: skip
    if detector.precision != "float32":
        result[detector.precision] = feature_error(detector, pictures)
    return result


def _one(detector: BottomUpDetector, picture: Picture, clock: Clock) -> tuple[Stored, tuple[int, int], int]:
    """What is stored of a picture, the height and width of the prepared one, and how many proposals it has."""
    model = detector.model
    with clock.step("decode"):
        rgb, _ = picture.decode()
        image, scale = detector.prepare(rgb)
        batch = image[None].to(detector.device).contiguous(memory_format=detector.format)
    with detector.arithmetic():
        with clock.step("backbone"):
            features = model.backbone(batch)
        with clock.step("rpn"):
            proposals = model.propose(features, (image.shape[1], image.shape[2]), [scale])
        with clock.step("head"):
            regions = model.describe(features, proposals, deltas=detector.rule.regresses)[0]
    with clock.step("selection"):
        detections = select_regions([regions], [scale], [(rgb.shape[1], rgb.shape[0])], detector.rule)[0]
    return as_regions(picture.image_id, detections), (image.shape[1], image.shape[2]), len(regions.boxes)


def _warm_up(detector: BottomUpDetector, picture: Picture) -> None:
    """Kernels chosen and, with `compile`, compiled; a few regions only, as the head takes most of the time."""
    rgb, _ = picture.decode()
    image, scale = detector.prepare(rgb)
    model = detector.model
    with detector.arithmetic():
        features = model.backbone(image[None].to(detector.device).contiguous(memory_format=detector.format))
        boxes, scores = model.propose(features, (image.shape[1], image.shape[2]), [scale])[0]
        few = len(boxes) if detector.device.type == "cuda" else 8
        model.describe(features, [(boxes[:few], scores[:few])])


def gmacs(model: BottomUp, height: int, width: int, proposals: int, *, deltas: bool = True) -> dict[str, float]:
    """Billions of multiply-adds of each step for a picture of that prepared size, from shapes alone."""
    model = deepcopy(model).to("meta")
    image = torch.empty(1, 3, height, width, device="meta")
    with torch.no_grad():
        features = model.backbone(image)
        pooled = torch.empty(proposals, features.shape[1], model.config.pooled, model.config.pooled, device="meta")
        return {
            "backbone": _count(lambda: model.backbone(image)),
            "rpn": _count(lambda: _rpn(model, features)),
            "head": _count(lambda: _head(model, pooled, deltas)),
        }


def _rpn(model: BottomUp, features: Tensor) -> None:
    hidden = model.rpn.conv(features)
    model.rpn.objectness_logits(hidden), model.rpn.anchor_deltas(hidden)


def _head(model: BottomUp, pooled: Tensor, deltas: bool) -> None:
    features = model.head.features(pooled)
    model.head.cls_score(features)
    if deltas:
        model.head.bbox_pred(features)
    if model.config.n_attributes:
        model.head.attribute_logits(features, torch.zeros(len(features), dtype=torch.long, device="meta"))


def _count(run: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / 2e9


def arithmetic_rate(detector: BottomUpDetector, repeats: int = 5) -> float:
    """Billions of multiply-adds a second of a large product in a detector's precision: the best of a few, as other work
    slows some.

    As a matrix product and as a 1x1 convolution, which are other libraries' work (MKL and oneDNN on a CPU).
    """
    device = detector.device
    side = MATRIX if device.type == "cuda" else MATRIX // 2
    a = torch.randn(side, side, device=device)
    if detector.precision == "bf16":
        a = a.bfloat16()
    image, kernel = a.reshape(1, side, 64, -1), a[:, :, None, None]
    rates = []
    for product in (lambda: a @ a, lambda: functional.conv2d(image, kernel)):
        product()
        for _ in range(repeats):
            clock = Clock(device)
            with detector.arithmetic(), clock.step("head"):
                product()
            rates.append(side**3 / clock.seconds["head"] / 1e9)
    return max(rates)


def _steps(clock: Clock, gmac: dict[str, float], images: int, limit: float) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for name, seconds in clock.seconds.items():
        rows[name] = {"ms": seconds / images * 1000, "images_per_s": images / seconds}
        if name in gmac:
            share = gmac[name] / seconds / limit
            rows[name] |= {"gmac": gmac[name] / images, "share_of_limit": share}
    return rows


def feature_error(detector: BottomUpDetector, pictures: Sequence[Picture], most: int = 36) -> dict[str, float]:
    """Its precision beside float32 on the same boxes, the first `most` proposals: relative error and cosine of
    features."""
    model, errors, cosines = detector.model, [], []
    for picture in pictures:
        rgb, _ = picture.decode()
        image, scale = detector.prepare(rgb)
        batch = image[None].to(detector.device).contiguous(memory_format=detector.format)
        with precision_of("float32", detector.device):
            exact = model.backbone(batch)
            boxes, scores = model.propose(exact, (image.shape[1], image.shape[2]), [scale])[0]
            some = [(boxes[:most], scores[:most])]
            expected = model.describe(exact, some)[0].features
        with detector.arithmetic():
            found = model.describe(model.backbone(batch), some)[0].features
        errors.append(float((found - expected).norm() / expected.norm()))
        cosines.append(float(functional.cosine_similarity(found, expected).min()))
    return {"relative_error": float(np.mean(errors)), "least_cosine": min(cosines)}


def show(result: dict[str, Any]) -> None:
    """The steps as a table, then the rest."""
    from rich.table import Table

    title = f"{result['detector']}, {result['precision']} on {result['device']}, {result['images_per_s']:.3g} images/s"
    table = Table("step", "ms per image", "images/s", "GMAC an image", "share of the limit", title=title)
    for name, row in result["steps"].items():
        counted = (f"{row['gmac']:.1f}", f"{row['share_of_limit']:.0%}") if "gmac" in row else ("", "")
        table.add_row(name, f"{row['ms']:.1f}", f"{row['images_per_s']:.3g}", *counted)
    on = console()
    on.print(table)
    on.print(f"limit: a large product, {result['limit_gmac_per_s']:.0f} GMAC/s", highlight=False)
    for name in ("bf16", "tf32"):
        if name in result:
            on.print(name, result[name])
