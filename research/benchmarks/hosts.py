"""Pairs a second of a training step of a host, beside its authors' code.

`bench.authors` is a folder with clones of the authors' repositories, each named after itself: SCAN
of kuanghuei and SGRAF of Paranioar. Ours and theirs see the same batch of made-up features and
words, have the same sizes and the same loss, and take turns, on one thread. Their code was written
for Python 2 and a GPU: a division is written anew, and torchvision is not imported. Other hosts
are not here. VSE++, VSRN and VSE-infinity's captions ask for a GPU in the middle of a layer.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capgrade.losses import triplet
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.trainer.models import configure, model_of
from capgrade.trainer.models.base import CaptionTokens, Images
from research.benchmarks.harness import Asked, Rows, once

BATCH, REGIONS, DIM, WORD, EMBED, SIMILARITY = 32, 36, 2048, 300, 1024, 256
_VOCABULARY = 10_000
_ROUNDS = 3
_REPOSITORIES = {"scan": "SCAN", "saf": "SGRAF", "sgr": "SGRAF"}
_Scores = Callable[[], Tensor]  # [BATCH, BATCH], of images to captions


@dataclass(frozen=True)
class HostBatch:
    """Made-up regions float32 [BATCH, REGIONS, DIM] and words int64 [BATCH, longest], the longest
    caption first, as the authors' code wants them."""

    regions: Tensor
    words: Tensor
    lengths: list[int]


def bench(asked: Asked) -> Rows:
    """For each host: pairs_per_s, authors_pairs_per_s and their ratio. Lengths of captions are of
    --captions. InputError without `bench.authors`, or where it lacks a repository."""
    if asked.bench.authors is None:
        raise InputError("no authors' code", remedy="give --set bench.authors=FOLDER")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batch = _make_batch(asked)
    result = Rows()
    for name, repository in _REPOSITORIES.items():
        module = _read_module(Path(asked.bench.authors) / repository / "model.py")
        steps = [_step(*made) for made in (_ours(name, batch), _theirs(name, module, batch))]
        for step in steps:
            step()
        seconds = [[once(step)[0].processor for step in steps] for _ in range(_ROUNDS)]
        ours, theirs = (BATCH / min(times) for times in zip(*seconds, strict=True))
        result[name] = {
            "pairs_per_s": ours,
            "authors_pairs_per_s": theirs,
            "ratio": ours / theirs,
        }
    return result


def _make_batch(asked: Asked) -> HostBatch:
    captions = read_captions(asked.captions, asked.bench.split)
    random = np.random.default_rng(0)
    chosen = random.choice(captions.n_captions, BATCH, replace=captions.n_captions < BATCH)
    lengths = sorted((len(captions.texts[k].split()) + 2 for k in chosen), reverse=True)
    words = torch.zeros(BATCH, lengths[0], dtype=torch.int64)
    for row, length in enumerate(lengths):
        words[row, :length] = torch.from_numpy(random.integers(4, _VOCABULARY, length))
    return HostBatch(torch.randn(BATCH, REGIONS, DIM).relu(), words, lengths)


def _step(scores_of: _Scores, parameters: list[torch.nn.Parameter]) -> Callable[[], None]:
    optimiser = torch.optim.Adam(parameters, 2e-4)

    def step() -> None:
        optimiser.zero_grad()
        triplet(scores_of(), margin=0.2, negatives="hard").backward()
        optimiser.step()

    return step


def _ours(name: str, batch: HostBatch) -> tuple[_Scores, list[torch.nn.Parameter]]:
    sizes = {"embed": EMBED, "word": WORD}
    options = {"similarity": SIMILARITY} if name != "scan" else {"direction": "t2i"}
    config = configure(name, {**sizes, **options}, DIM, 0)
    model = model_of(name)(config, DIM, _VOCABULARY).train()
    there = torch.ones(BATCH, REGIONS, dtype=torch.bool)
    images = Images(batch.regions, torch.rand(BATCH, REGIONS, 5), there)
    captions = CaptionTokens(batch.words, batch.words > 0, torch.arange(BATCH))
    return lambda: model.scores(*model(images, captions)), list(model.parameters())


def _theirs(
    name: str, authors: ModuleType, batch: HostBatch
) -> tuple[_Scores, list[torch.nn.Parameter]]:
    code: Any = authors
    of_text = code.EncoderText(_VOCABULARY, WORD, EMBED, 1, use_bi_gru=True)
    if name == "scan":
        of_image = code.EncoderImage("f30k_precomp", DIM, EMBED)
        asked = SimpleNamespace(
            raw_feature_norm="clipped_l2norm", agg_func="LogSumExp", lambda_lse=6.0
        )
        asked.lambda_softmax = 9.0
        parts = [of_image, of_text]

        def scores() -> Tensor:
            words, lengths = of_text(batch.words, batch.lengths)
            return code.xattn_score_t2i(of_image(batch.regions), words, lengths, asked)
    else:
        of_image = code.EncoderImage(DIM, EMBED)
        of_pair = code.EncoderSimilarity(EMBED, SIMILARITY, name.upper(), 3)
        parts = [of_image, of_text, of_pair]

        def scores() -> Tensor:
            words = of_text(batch.words, batch.lengths)
            return of_pair(of_image(batch.regions), words, batch.lengths)

    return scores, [parameter for part in parts for parameter in part.train().parameters()]


def _read_module(path: Path) -> ModuleType:
    """The authors' model.py as a module. InputError where it is not there."""
    if not path.is_file():
        remedy = f"clone the authors' repository as {path.parent}"
        raise InputError("no such file", file=path, remedy=remedy)
    text = path.read_text(encoding="utf-8")
    for before, after in (
        ("/2]", "//2]"),
        ("/2:]", "//2:]"),
        ("import torchvision.models as models", ""),
        ("import clip_grad_norm\n", "import clip_grad_norm_\n"),
    ):
        text = text.replace(before, after)
    module = ModuleType(path.parent.name)
    sys.modules[module.__name__] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module
