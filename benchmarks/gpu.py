"""Everything that can run on an accelerator, once, with its figures.

    python -m capgrade.benchmarks.gpu --captions DIR [--device cuda:0] [--pictures 64] [--batch 128] [--images 2000]
        [--out FILE.json]

bottom_up: pictures a second of the full-size detector with random weights, from prepared pictures to stored values,
in both precisions; beside it detectron2's C4 model where it imports. train: pairs per second of a training step, and of
SAF and SGR as a loop over captions. measures: pairs per second of the dense blocks, beside the processor's kernels.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capgrade.benchmarks import train as training
from capgrade.benchmarks.caption_loop import saf_loop, sgr_loop
from capgrade.benchmarks.corpus import corpus
from capgrade.pipelines.detectors.batched import BottomUpDetector
from capgrade.pipelines.detectors.bottom_up import BottomUpConfig
from capgrade.pipelines.detectors.catalogue import random_model
from capgrade.pipelines.detectors.selection import SELECTIONS
from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.on_device import on_device
from capgrade.schemas.captions import Captions
from capgrade.schemas.devices import Precision, autocast, device_of, precision_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams
from capgrade.trainer.models import build, configure
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.search.encode import to_device

LOOPS: dict[str, Any] = {"saf": saf_loop, "sgr": sgr_loop}
MEASURES = ("cider", "rouge_l")  # sbert is one product: embeddings would have to be made first
SIDES = 480, 640  # of the pictures


@dataclass(frozen=True)
class Sizes:
    """How much of each; tests take tiny ones."""

    pictures: int = 64
    batch_pictures: int = 8
    config: BottomUpConfig | None = None  # None: the published model's
    batch: int = 128
    models: tuple[str, ...] = tuple(training.MODELS)
    rounds: int = 3


def seconds_of(work: Callable[[], object], device: torch.device, rounds: int) -> float:
    """The best of a few, after one that warms up; a GPU is waited for."""
    best = float("inf")
    for k in range(rounds + 1):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        best = best if k == 0 else min(best, time.perf_counter() - start)
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def detector(device: torch.device, sizes: Sizes) -> dict[str, Any]:
    """Pictures per second in each precision; detectron2's seconds per picture on its own device, where it imports."""
    random = np.random.default_rng(0)
    rgb = [random.integers(0, 256, (*SIDES, 3), np.uint8) for _ in range(sizes.batch_pictures)]
    found: dict[str, Any] = {}
    for precision in _precisions(device):
        model = random_model(0, sizes.config)
        ours = BottomUpDetector(model, SELECTIONS["fixed36"], device=device, precision=precision)
        images, scales = zip(*map(ours.prepare, rgb), strict=True)
        batch, shapes = torch.stack(images), [(SIDES[1], SIDES[0])] * len(rgb)
        times = max(1, sizes.pictures // len(rgb))
        run = partial(_repeat, times, partial(ours.detect, batch, scales, shapes))
        found[precision] = {"images_per_s": times * len(rgb) / seconds_of(run, device, sizes.rounds)}
    return {**found, "detectron2": _peer(rgb[0])}


def _peer(rgb: np.ndarray) -> dict[str, Any]:
    from capgrade.benchmarks.detectron_parity import compare
    from capgrade.pipelines.detectors.detectron_zoo import need_detectron2

    try:
        need_detectron2()
    except InputError as error:
        return {"note": error.problem}
    return {key: value for key, value in compare([rgb], depth=101).items() if isinstance(value, int | float | str)}


def _repeat(times: int, work: Callable[[], object]) -> None:
    for _ in range(times):
        work()


def steps(device: torch.device, sizes: Sizes) -> dict[str, Any]:
    """Pairs a second of a step of each model, in each precision, and of the loop over captions."""
    torch.manual_seed(0)
    on_cpu = training.random_batch(sizes.batch)
    found: dict[str, Any] = {}
    for name in sizes.models:
        config = configure(name, training.MODELS[name], training.FEATURES, 1)
        model = build(name, config, training.FEATURES, training.VOCABULARY).train().to(device)
        batch = to_device(on_cpu[0], device), to_device(on_cpu[1], device)
        found[name] = {
            precision: sizes.batch / seconds_of(partial(_step, model, *batch, precision), device, sizes.rounds)
            for precision in _precisions(device)
        }
        if name in LOOPS:
            loop = partial(_step, model, *batch, "float32", training.encoded(LOOPS[name]))
            found[name]["caption_loop"] = sizes.batch / seconds_of(loop, device, sizes.rounds)
    return found


def _precisions(device: torch.device) -> tuple[Precision, ...]:
    return ("float32", "tf32", "bf16") if device.type == "cuda" else ("float32", "bf16")


def _step(model: RetrievalModel, images: Any, words: Any, precision: Precision, scores: Any = None) -> None:
    device = next(model.parameters()).device
    with precision_of(precision, device), autocast(precision, device):
        training.step(model, images, words, scores or training.as_trained)


def measures(device: torch.device, captions: Captions, sizes: Sizes) -> dict[str, Any]:
    """Image-caption pairs per second of the dense blocks on the device and by the processor's kernels, and how far
    apart their values are."""
    images = np.arange(min(256, captions.n_images))
    found: dict[str, Any] = {}
    for name in MEASURES:
        fitted = choose([name], MeasuresParams())[name].fit(captions)
        there = on_device(fitted, str(device))
        pairs = len(images) * captions.n_captions
        rates = [pairs / seconds_of(partial(one.score, images), device, sizes.rounds) for one in (there, fitted)]
        apart = float(np.abs(there.score(images) - fitted.score(images)).max())
        found[name] = {"pairs_per_s": rates[0], "processor_pairs_per_s": rates[1], "largest_difference": apart}
    return found


def bench(device: torch.device, captions: Captions, sizes: Sizes) -> dict[str, Any]:
    """All of it, and what it ran on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "processor"
    where = {"device": str(device), "name": name, "torch": torch.__version__, "threads": torch.get_num_threads()}
    return {
        **where,
        "bottom_up": detector(device, sizes),
        "train": steps(device, sizes),
        "measures": measures(device, captions, sizes),
    }


def main() -> None:
    import tempfile

    from capgrade.schemas.captions import read_captions

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=Path, required=True, help="captions folder that the corpus learns from")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to compare with")
    parser.add_argument("--pictures", type=int, default=64, help="pictures of the detector, in batches of 8")
    parser.add_argument("--batch", type=int, default=128, help="pairs of a training step")
    parser.add_argument("--images", type=int, default=2000, help="images of the generated corpus")
    args = parser.parse_args()
    try:
        device = device_of(args.device)
        with tempfile.TemporaryDirectory() as folder:
            corpus(read_captions(args.captions), args.images, Path(folder) / "c", 0, False)
            found = bench(device, read_captions(Path(folder) / "c"), Sizes(args.pictures, batch=args.batch))
    except InputError as error:
        sys.exit(str(error))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
