"""Every path that may run on a GPU beside the processor, on the same small inputs: `make gpu`.

Prints a table for the docs, a row as soon as it is known: the largest difference, what it may be at
most, and the speed on the device. Models are random, pictures and captions are generated scenes:
nothing is fetched. The exit status is 1 where the two disagree, where a path fails, and where the
seconds did not suffice for all. `--small` does the same with small models, in a minute on a
processor.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

import capgrade
from capgrade.apps.judging.cross_encoder import CrossEncoderJudge
from capgrade.devices import autocast, device_of, precision_of
from capgrade.grading import grade
from capgrade.labels import Labels
from capgrade.losses import LOSSES, GradedClipLoss, LossTerms, ScoredBatch
from capgrade.measures import Fitted, MeasuresParams, choose
from capgrade.measures.embeddings import encode, load_encoder
from capgrade.measures.image_text.encoder import encode_pictures, load_dual_encoder
from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpConfig, BottomUpDetector
from capgrade.pipelines.detectors.faster_rcnn import ProposalRule
from capgrade.pipelines.detectors.patches import PatchDetector
from capgrade.pipelines.detectors.selection import Detector, SelectionRule
from capgrade.pipelines.regions import regions
from capgrade.pipelines.sources.scenes import World, generate
from capgrade.pipelines.sources.scenes.drawings import draw_scene
from capgrade.pipelines.stages.captions import ScenesParams
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.pipelines.stages.shards import Sampling
from capgrade.pretrained import quiet_loading
from capgrade.schemas.block import Precision
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import RegionStore
from capgrade.schemas.say import CapgradeWarning, spoken_number
from capgrade.trainer.data.pairs import Batch
from capgrade.trainer.data.relevance import LookedUp
from capgrade.trainer.fit.optimiser import make_optimiser
from capgrade.trainer.fit.train import scored_batch
from capgrade.trainer.models import MODELS, configure, model_of
from capgrade.trainer.models.base import FIRST_WORD, CaptionTokens, Images, RetrievalModel
from capgrade.trainer.models.dual_encoder import DualEncoderConfig, random_dual_encoder
from capgrade.trainer.search.encode import compute_scores, encode_batches
from capgrade.trainer.stages.train import TrainParams
from research.benchmarks.harness import best, once

_T = TypeVar("_T")
SECONDS = 420.0  # of eight minutes: what is begun then ends within them
SEED = 0
REGION_NUMBERS = 2048  # of a region's feature
LONG = {"long": ["a dog " * 20, "a cat"], "longer": ["red ball " * 40, "a dog"]}

# What the two may differ by: of blocks, embeddings and the values of the judge as the docs say it;
# of all else as a share of the largest value.
BLOCKS, EMBEDDINGS, LOSS = 1e-5, 1e-5, 1e-4
STEPS: dict[Precision, float] = {"float32": 1e-3, "bf16": 0.05}
FEATURES: dict[Precision, float] = {"float32": 1e-4, "tf32": 3e-3, "bf16": 3e-2}
MISSED = 0.05  # share of the processor's regions that the device does not find

# The measures with a form for a GPU, and their parameters.
BLOCK_FORMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("cider", {}),
    ("cider", {"self_reference": "left_out"}),
    ("cider_plain", {}),
    ("tfidf_cosine", {}),
    ("rouge_l", {}),
    ("rouge_l", {"references": "mean"}),
    ("rouge_l", {"self_reference": "left_out"}),
    ("sbert", {}),
    ("sbert", {"references": "mean"}),
    ("sbert", {"self_reference": "left_out"}),
    ("image_text", {"form": "cosine"}),
    ("image_text", {"form": "clipscore"}),
    ("image_text", {"form": "refclipscore"}),
)
MIXED, MIXTURE = "mixed", {"cider": 0.1, "rouge_l": 1.0}

GRU = {"embed": 16, "word": 8}
TERN = {"embed_dim": 16, "image_layers": 1, "joint_layers": 1, "heads": 2, "feedforward": 16}
CLIP: dict[str, Any] = {
    "image": 32, "patch": 16, "image_width": 16, "image_layers": 1, "image_heads": 2,
    "text_width": 16, "text_layers": 1, "text_heads": 2, "positions": 32,
}  # fmt: skip
# By model: options of a small one; those of every size, without dropout, which differs between
# devices; and the losses beside the triplet.
HOSTS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "vse": (GRU, {}, ({"name": "sam"},)),
    "vse_infinity": (GRU, {"drop": 0.0}, ()),
    "vsrn": (
        {**GRU, "layers": 1, "caption_hidden": 8, "caption_word": 8},
        {"caption_dropout": 0.0},
        ({"name": "captioning"},),
    ),
    "cvse": (GRU, {"dropout": 0.0, "concepts": 8}, ({"name": "divergence"},)),
    "frozen": (
        {"embed": 16, "hidden": 16},
        {"dropout": 0.0, "text_dropout": 0.0},
        ({"name": "soft_info_nce"},),
    ),
    "clip": (CLIP, {}, ({"name": "soft_info_nce", "of": "logits", "temperature": 1.0},)),
    "siglip": (CLIP, {}, ({"name": "sigmoid", "of": "logits", "temperature": 1.0, "bias": 0.0},)),
    "scan": (GRU, {}, ()),
    "saf": ({**GRU, "similarity": 8}, {"dropout": 0.0}, ()),
    "sgr": ({**GRU, "similarity": 8}, {"dropout": 0.0}, ()),
    "single_stream": (
        {"embed": 8, "side": 6, "cell": 2, "width": 8},
        {},
        ({"name": "classify"}, {"name": "centre", "weight": 0.001}),
    ),
    "tern": (TERN, {"dropout": 0.0}, ()),
    "teran": (TERN, {"dropout": 0.0}, ()),
}


@dataclass(frozen=True)
class Found:
    """The largest difference of device and processor, what it may be, and a speed on the device."""

    difference: float
    bound: float
    rate: float | None = None
    unit: str = ""

    @property
    def agrees(self) -> bool:
        """Never where the difference is NaN."""
        return self.difference <= self.bound


def difference(found: Any, expected: Any, scale: float | None = None) -> float:
    """The largest |found - expected|, divided by `scale`: by the largest |expected| unless given,
    and by 1 at least."""
    ours, theirs = (
        np.asarray(x.detach().float().cpu() if isinstance(x, Tensor) else x, np.float64)
        for x in (found, expected)
    )
    if ours.shape != theirs.shape:
        raise ValueError(f"{ours.shape} on the device, {theirs.shape} on the processor")
    if scale is None:
        scale = float(np.abs(theirs).max(initial=1))
    return float(np.abs(ours - theirs).max(initial=0) / scale)


class Bench:
    """A device, a size, and what the paths are run on; made when it is first asked for."""

    def __init__(self, device: torch.device, small: bool, folder: Path) -> None:
        self.device, self.small, self.folder = device, small, folder
        self.few, self.many = (5, 5) if small else (16, 128)  # pairs compared, and timed
        self.regions, self.words_read = (4, 5) if small else (36, 12)  # of an image, a caption

    def per_second(self, amount: int, work: Callable[[], object]) -> float:
        def whole() -> None:
            work()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)

        return amount / (once(whole)[0].seconds if self.small else best(whole)[0])

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """A processor has no TF32."""
        return ("float32", "tf32", "bf16") if self.device.type == "cuda" else ("float32", "bf16")

    @cached_property
    def world(self) -> World:
        return generate(ScenesParams(train=10 if self.small else 1000, val=0, test=0, seed=SEED))

    @cached_property
    def captions(self) -> dict[str, list[str]]:
        """Captions by image: scenes, and references of more words than one number has bits."""
        found: dict[str, list[str]] = {}
        for one in self.world.captions:
            found.setdefault(one.image_id, []).append(one.text)
        return found | LONG

    @cached_property
    def labels(self) -> Labels:
        return grade(self.captions, measures="rouge_l")

    @cached_property
    def words(self) -> list[str]:
        return sorted({word for text in self.labels.texts for word in text.lower().split()})

    @cached_property
    def texts(self) -> list[str]:
        return self.labels.texts[: 8 if self.small else 1024]

    @cached_property
    def drawn(self) -> list[np.ndarray]:
        """Pictures, uint8 (H, W, 3): of real photographs' size for the full-size detector."""
        size = (96, 80) if self.small else (640, 480)
        return [
            np.asarray(draw_scene(one).convert("RGB").resize(size)) for one in self.world.scenes[:8]
        ]

    @cached_property
    def pictures(self) -> Path:
        """A folder with a picture of each image."""
        folder = self.made("pictures")
        scenes = {one.image_id: one for one in self.world.scenes}
        any_scene = self.world.scenes[0]
        for image_id in self.captions:
            draw_scene(scenes.get(image_id, any_scene)).save(folder / f"{image_id}.png")
        return folder

    @cached_property
    def few_pictures(self) -> Path:
        folder = self.made("few")
        for scene in self.world.scenes[: 4 if self.small else 64]:
            draw_scene(scene).save(folder / f"{scene.image_id}.png")
        return folder

    @cached_property
    def tokenizer(self) -> Any:
        """Word pieces: every word of the captions. Its [CLS] and [SEP] have the numbers that start
        and end a caption of the trainer's CLIP."""
        from transformers import BertTokenizerFast

        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "photo", "depicts", *self.words]
        file = self.folder / "vocab.txt"
        file.write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
        return BertTokenizerFast(vocab=str(file), model_max_length=32)

    def bert(self, name: str, kind: str, **options: Any) -> str:
        """The folder of a random BERT, as large as all-MiniLM-L6-v2."""
        import transformers

        width, layers = (16, 2) if self.small else (384, 6)
        sizes = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers}
        config = transformers.BertConfig(
            vocab_size=len(self.tokenizer), num_attention_heads=width // 8 if self.small else 12,
            max_position_embeddings=64, **sizes, **options,
        )  # fmt: skip
        return self.saved(name, partial(getattr(transformers, kind), config), self.tokenizer)

    @cached_property
    def encoder(self) -> str:
        return self.bert("encoder", "BertModel")

    @cached_property
    def cross_encoder(self) -> str:
        return self.bert("judge", "BertForSequenceClassification", num_labels=1)

    @cached_property
    def dual_encoder(self) -> str:
        """The folder of a random CLIP, a ViT-B/32."""
        from transformers import CLIPImageProcessorPil

        config = DualEncoderConfig(**CLIP) if self.small else DualEncoderConfig()
        square = {"height": config.image, "width": config.image}
        processor = CLIPImageProcessorPil(size={"shortest_edge": config.image}, crop_size=square)

        def make() -> Any:
            model = random_dual_encoder(config, len(self.tokenizer), biased=False)
            # With this seed pictures point away from captions, and every CLIPScore would be 0.
            model.visual_projection.weight.data.neg_()
            return model

        return self.saved("clip", make, processor, self.tokenizer)

    @cached_property
    def vision(self) -> str:
        """The folder of a random DINOv2, a ViT-B/14."""
        from transformers import BitImageProcessorPil, Dinov2Config, Dinov2Model

        sizes: dict[str, Any] = {"image_size": 224}
        if self.small:
            sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
            sizes |= {"image_size": 56}
        square = {"height": sizes["image_size"], "width": sizes["image_size"]}
        processor = BitImageProcessorPil(size=square, crop_size=square)
        return self.saved("dinov2", lambda: Dinov2Model(Dinov2Config(**sizes)), processor)

    def saved(self, name: str, make: Callable[[], Any], *others: Any) -> str:
        folder = self.made(name)
        torch.manual_seed(SEED)
        with quiet_loading():
            for one in (make(), *others):
                one.save_pretrained(folder)
        return str(folder)

    def made(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder

    def beside(self, run: Callable[[torch.device], _T]) -> tuple[_T, _T]:
        """What a path gives on the device, and on the processor."""
        return run(self.device), run(torch.device("cpu"))


def _encoder_of_texts(bench: Bench) -> Found:
    models = bench.beside(lambda device: load_encoder(bench.encoder, str(device)))
    found, expected = (encode(model, bench.texts) for model in models)
    rate = bench.per_second(len(bench.texts), lambda: encode(models[0], bench.texts))
    return Found(difference(found, expected, 1), EMBEDDINGS, rate, "captions")


def dual_encoder(bench: Bench, side: str) -> Found:
    """Of `image_text`: captions or pictures."""
    from PIL import Image

    models = bench.beside(lambda device: load_dual_encoder(bench.dual_encoder, str(device)))
    given: tuple[Callable[..., np.ndarray], list[Any]] = (encode, bench.texts)
    if side == "pictures":
        copies = 1 if bench.small else 8
        given = (encode_pictures, copies * [Image.fromarray(one) for one in bench.drawn])
    run, items = given
    found, expected = (run(model, items) for model in models)
    rate = bench.per_second(len(items), lambda: run(models[0], items))
    return Found(difference(found, expected, 1), EMBEDDINGS, rate, side)


def judge(bench: Bench) -> Found:
    """A cross-encoder in this process."""
    pairs = list(zip(bench.texts, reversed(bench.texts), strict=True))
    judges = bench.beside(lambda device: CrossEncoderJudge(bench.cross_encoder, str(device)))
    found, expected = (one.model.predict(pairs, show_progress_bar=False) for one in judges)
    rate = bench.per_second(
        len(pairs), lambda: judges[0].model.predict(pairs, show_progress_bar=False)
    )
    return Found(difference(found, expected, 1), EMBEDDINGS, rate, "pairs")


def block(bench: Bench, name: str, options: dict[str, Any]) -> Found:
    """Rectangles of a measure, all captions with some images, from what its encoder makes on the
    device."""
    given: dict[str, Any] = {name: options}
    there = {"device": str(bench.device)}  # of the encoder
    if name == "sbert":
        given = {"sbert": {"model": bench.encoder, **there, **options}}
    if name == "image_text":
        where = {"model": bench.dual_encoder, "images": str(bench.pictures)}
        given = {"image_text": {**where, **there, **options}}
    if name == MIXED:
        given = {"mixtures": {name: MIXTURE}}
    return rectangles(bench, choose([name], MeasuresParams(**given))[name].fit(bench.labels.table))


def rectangles(bench: Bench, fitted: Fitted) -> Found:
    moved, last = fitted.on_device(bench.device), bench.labels.table.n_images
    if type(moved) is type(fitted) and not hasattr(fitted, "parts"):
        raise ValueError("this measure has no form for a device")
    images = np.arange(max(0, last - 256), last)
    found, pairs = moved.score(images), len(images) * bench.labels.n_captions
    rate = bench.per_second(pairs, lambda: moved.score(images))
    return Found(difference(found, fitted.score(images), 1), BLOCKS, rate, "pairs")


def _stage_of_relevance(bench: Bench) -> Found:
    """The stage itself, as `relevance.device` has it."""
    some = dict(list(bench.captions.items())[-50:])
    names = ("cider", "rouge_l")

    def run(device: torch.device) -> np.ndarray:
        labels = grade(some, measures=names, device=str(device))
        ids = labels.image_ids, labels.caption_ids
        return np.stack([labels.block(*ids, name).relevance for name in names])

    return Found(difference(*bench.beside(run), 1), BLOCKS)


def loss(bench: Bench, name: str) -> Found:
    """A loss and its gradients, of a batch whose relevance is known in part."""
    random = np.random.default_rng(SEED)
    n, shape = bench.many, (bench.many, bench.many)
    known = random.random(shape) < 0.8
    cells = {"relevance": random.random(shape, np.float32), "known": known}
    cells["weights"] = np.where(known, 1 + random.random(shape), 0).astype(np.float32)
    learned = {"scores": random.uniform(-1, 1, shape)}
    learned |= {side: random.standard_normal((n, 16)) for side in ("images", "captions")}
    learned |= {f"{side}_logits": random.standard_normal((n, n)) for side in ("image", "caption")}
    own_losses = ("captioning", "divergence")

    def run(device: torch.device) -> list[Tensor]:
        fixed: Any = {key: torch.from_numpy(value).to(device) for key, value in cells.items()}
        leaves: Any = {
            key: torch.from_numpy(value.astype(np.float32)).to(device).requires_grad_()
            for key, value in learned.items()
        }
        own = {key: torch.ones((), device=device, requires_grad=True) for key in own_losses}
        at = torch.arange(n, device=device)
        batch = ScoredBatch(
            own=at[:, None] == at, labels=at, own_losses=own, in_order=True, **fixed, **leaves
        )
        value = LossTerms([{"name": name}])(batch)
        value.backward()
        grads = [leaf.grad for leaf in (*leaves.values(), *own.values()) if leaf.grad is not None]
        return [value, *grads]

    pairs = list(zip(*bench.beside(run), strict=True))
    return Found(max(difference(*pair) for pair in pairs), LOSS)


def graded_clip(bench: Bench) -> Found:
    """`GradedClipLoss` and its gradients at a batch of 4,096; Sentence-BERT's targets are made on
    the device."""
    batch = 32 if bench.small else 4096
    sampled = grade(
        bench.captions, measures="sbert", sample=Sampling(top=2, uniform=2),
        parameters={"sbert": {"model": bench.encoder}},
    )  # fmt: skip
    random = torch.Generator().manual_seed(SEED)
    keys = torch.randperm(sampled.n_captions, generator=random)[:batch].numpy()
    vectors = torch.nn.functional.normalize(torch.randn(2, batch, 512, generator=random), dim=2)

    def step(device: torch.device) -> Callable[[], list[Tensor]]:
        labels = capgrade.exact(sampled, device=str(device), model=bench.encoder)
        graded, (images, texts) = GradedClipLoss(labels), vectors.to(device)
        scale = torch.tensor(20.0).to(device)

        def run() -> list[Tensor]:
            leaves = [x.clone().requires_grad_() for x in (images, texts)]
            value = graded(*leaves, scale, keys=keys)
            assert isinstance(value, Tensor)
            value.backward()
            return [value, *(leaf.grad for leaf in leaves if leaf.grad is not None)]

        return run

    there, here = bench.beside(step)
    pairs = list(zip(there(), here(), strict=True))
    # Gradients of a mean over a large batch are small beside 1.
    of = max(difference(ours, theirs, float(theirs.detach().abs().max())) for ours, theirs in pairs)
    return Found(of, LOSS, bench.per_second(1, there), "steps")


def host(bench: Bench, name: str, precision: Precision) -> Found:
    """Scores in evaluation, then the losses of two training steps of a model."""
    small, always, more = HOSTS[name]
    options = {**(small if bench.small else {}), **always}
    if name in ("tern", "teran"):
        options["text_model"] = bench.encoder
    # At a low rate, as Adam's first steps follow the signs of gradients, and those of noise differ.
    kind, params = model_of(name), TrainParams(lr=1e-4)
    relevance = LookedUp(bench.labels, "rouge_l")
    pixels = kind.reads == "pictures"
    side = options.get("image", 224)
    numbers = 3 * side**2 if pixels else 24 if bench.small else REGION_NUMBERS
    config = configure(name, options, numbers, bench.many)
    reads_pieces = "text_model" in options
    words = len(bench.tokenizer) if reads_pieces else FIRST_WORD + len(bench.words)
    reads_vectors = hasattr(config, "sentence_model")  # a caption is one, of so many numbers
    batches = {
        n: batch_of(bench, n, 1 if pixels else bench.regions, numbers, words, reads_vectors)
        for n in (bench.few, bench.many)
    }
    few, many = batches[bench.few], batches[bench.many]

    def made() -> RetrievalModel:
        torch.manual_seed(SEED)
        model = kind(config, numbers, words)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        if not (reads_pieces or reads_vectors):
            model.learn_words(bench.words, list(many.texts.tokens.numpy()), many.image_numbers)
        return model

    def on(device: torch.device, given: Precision) -> tuple[np.ndarray, Callable[[Batch], float]]:
        model, terms = made().to(device), LossTerms([{"name": "triplet"}, *more])
        with precision_of(given, device), autocast(given, device):
            read = replace(few.texts, images=None)
            sides = encode_batches(model.eval(), [few.images]), encode_batches(model, [read])
            found = compute_scores(model, *sides)
        optimiser = make_optimiser(model.train(), params)

        def step(batch: Batch) -> float:
            torch.manual_seed(SEED)  # what a model draws, it draws on the processor
            with precision_of(given, device):
                with autocast(given, device):
                    scored = scored_batch(model, batch, relevance, terms.needs)
                value = terms(scored)
                value.backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            return value.item()

        return found, step

    (ours, step), (theirs, here) = on(bench.device, precision), on(torch.device("cpu"), "float32")
    losses, expected = ([run(few), run(few)] for run in (step, here))
    largest = max(difference(ours, theirs), difference(losses, expected))
    rate = bench.per_second(1, lambda: step(many))
    return Found(largest, STEPS[precision], rate, "steps")


def batch_of(
    bench: Bench, n: int, regions: int, numbers: int, words: int, vectors: bool = False
) -> Batch:
    """Pairs of the labels' first images, with random regions and words; with `vectors` a caption is
    a vector of as many numbers as there are words."""
    random, longest = torch.Generator().manual_seed(SEED), bench.words_read
    features = torch.randn(n, regions, numbers, generator=random)
    mask = torch.arange(regions) < torch.randint(1, regions + 1, (n, 1), generator=random)
    images = Images(features * mask[..., None], torch.zeros(n, regions, 5), mask)
    tokens = torch.randint(FIRST_WORD, words, (n, longest), generator=random)
    read = torch.arange(longest) < torch.randint(3, longest + 1, (n, 1), generator=random)
    tokens = tokens * read
    if vectors:
        tokens, read = (
            torch.randn(n, 1, words, generator=random),
            torch.ones(n, 1, dtype=torch.bool),
        )
    owner = np.arange(n)
    texts = CaptionTokens(tokens, read, torch.from_numpy(owner))
    return Batch(images, texts, owner, bench.labels.table.refs[bench.labels.table.ref_ptr[:n]])


def detector(bench: Bench, precision: Precision) -> Found:
    """The full-size detector with random weights: features and classes of the same boxes, and
    pictures per second from their pixels to their regions."""
    config = BottomUpConfig()
    if bench.small:
        config = BottomUpConfig(
            n_classes=12, n_attributes=5, width=1 / 32, blocks=(1, 1, 2, 1), rpn_channels=16,
            embedding=8, attribute_hidden=16, pooled=7, proposals=ProposalRule(500, 40),
            short_side=64, long_side=128,
        )  # fmt: skip
    torch.manual_seed(SEED)
    model = BottomUp(config)

    def made(device: torch.device, given: Precision) -> BottomUpDetector:
        rule = SelectionRule(10, 20)
        return BottomUpDetector(copy.deepcopy(model), rule, device=device, precision=given)

    there, here = made(bench.device, precision), made(torch.device("cpu"), "float32")
    image, scale = here.prepare(bench.drawn[0])
    with torch.inference_mode():
        proposals = here.model.propose(
            here.model.backbone(image[None]), (image.shape[1], image.shape[2]), [scale]
        )

    def described(one: BottomUpDetector) -> Any:
        device = one.device
        boxes = [(boxes.to(device), scores.to(device)) for boxes, scores in proposals]
        with (
            torch.inference_mode(),
            precision_of(one.precision, device),
            autocast(one.precision, device),
        ):
            images = image[None].to(device).contiguous(memory_format=torch.channels_last)
            return one.model.describe(one.model.backbone(images), boxes)[0]

    ours, theirs = described(there), described(here)
    largest = max(
        difference(getattr(ours, name), expected, float(expected.abs().max()))
        for name in ("features", "classes")
        for expected in (getattr(theirs, name),)
    )
    return Found(largest, FEATURES[precision], *_pictures_per_second(bench, there))


def _pictures_per_second(bench: Bench, detector: Detector) -> tuple[float, str]:
    some = bench.drawn if bench.device.type == "cuda" else bench.drawn[:1]
    images, scales = zip(*map(detector.prepare, some), strict=True)
    sizes = [(one.shape[1], one.shape[0]) for one in some]
    ids = [str(k) for k in range(len(some))]
    stacked = torch.stack(images)
    run = partial(detector.detect, stacked, scales, sizes, ids)
    return bench.per_second(len(some), run), f"images, {len(some)} at a time"


def patches(bench: Bench, precision: Precision) -> Found:
    """Patches of a ViT-B/14 with random weights, pooled over a grid."""
    there = PatchDetector(bench.vision, 4, device=bench.device, precision=precision)
    here = PatchDetector(bench.vision, 4)
    image, scale = here.prepare(bench.drawn[0])
    size = bench.drawn[0].shape[1], bench.drawn[0].shape[0]
    (ours,), (theirs,) = (one.detect(image[None], [scale], [size], ["x"]) for one in (there, here))
    largest = difference(ours.features, theirs.features)
    return Found(largest, FEATURES[precision], *_pictures_per_second(bench, there))


def _stage_of_regions(bench: Bench) -> Found:
    """The stage itself with the small detector, which is trained: the share of regions on the
    processor, class and box, that the device does not find."""

    def run(device: torch.device) -> RegionStore:
        out = bench.folder / f"regions-{len(list(bench.folder.glob('regions-*')))}"
        given: dict[str, Any] = {"workers": 0} if bench.small else {}
        regions(bench.few_pictures, out, RegionsParams(
            detector="scenes", boxes="3-10", device=str(device), precision="float32", **given
        ))  # fmt: skip
        return RegionStore(out)

    there, here = bench.beside(run)
    missed = total = 0
    for ours, theirs in zip(there, here, strict=True):
        assert ours.boxes is not None and theirs.boxes is not None
        assert ours.classes is not None and theirs.classes is not None
        near = np.abs(theirs.boxes[:, None] - ours.boxes[None]).max(axis=2) < 0.5  # of a pixel
        same = theirs.classes[:, None] == ours.classes[None]
        missed += int((~(near & same).any(axis=1)).sum())
        total += len(theirs)
    return Found(missed / total, MISSED)


def checks(bench: Bench) -> Iterator[tuple[str, Callable[[], Found]]]:
    """Every row of the table, by its name."""
    for name, options in BLOCK_FORMS:
        said = "".join(f", {value.replace('_', ' ')}" for value in options.values())
        yield f"block of {name}{said}", partial(block, bench, name, options)
    yield "block of a mixture", partial(block, bench, MIXED, {})
    yield "stage relevance", partial(_stage_of_relevance, bench)
    yield "encoder of sbert", partial(_encoder_of_texts, bench)
    for side in ("pictures", "captions"):
        yield f"encoder of image_text, {side}", partial(dual_encoder, bench, side)
    yield "judge, a cross-encoder", partial(judge, bench)
    for name in LOSSES:
        yield f"loss {name}", partial(loss, bench, name)
    yield "graded CLIP loss", partial(graded_clip, bench)
    for precision in bench.precisions:
        yield f"detector, {precision}", partial(detector, bench, precision)
    for precision in bench.precisions:
        yield f"patches, {precision}", partial(patches, bench, precision)
    yield "stage regions, regions missed", partial(_stage_of_regions, bench)
    for name in MODELS:
        for precision in STEPS:
            yield f"two steps of {name}, {precision}", partial(host, bench, name, precision)


def run(device: str, seconds: float = SECONDS, small: bool = False, only: str = "") -> bool:
    """Print the table, of paths with `only` in their names; whether device and processor agree
    everywhere. InputError where there is no such device, and for a name that none has."""
    place, start = device_of(device), time.perf_counter()
    card = torch.cuda.get_device_name(place) if place.type == "cuda" else "the processor itself"
    print(f"{card}, torch {torch.__version__}, {os.cpu_count()} processors\n")
    print(
        "| path | largest difference | at most | per second | |",
        "|---|---:|---:|---:|---|",
        sep="\n",
    )
    good, left_out = True, list[str]()
    with _folder_alone() as folder:
        known = list(checks(Bench(place, small, folder)))
        chosen = [(name, check) for name, check in known if only in name]
        if not chosen:
            names = ", ".join(name for name, _ in known)
            raise InputError(f"no path is called '{only}'", remedy=f"choose from: {names}")
        for name, check in chosen:
            if time.perf_counter() - start > seconds:
                left_out.append(name)
                continue
            line, agrees = row(name, check)
            good &= agrees
            print(line, flush=True)
    print(f"\n{time.perf_counter() - start:.0f} seconds.", flush=True)
    if left_out:
        print(f"Left out after {seconds:.0f} seconds: {', '.join(left_out)}.")
    return good and not left_out


@contextmanager
def _folder_alone() -> Iterator[Path]:
    """A folder with a cache of its own: no vector comes from an earlier run. Warnings that captions
    are long or few say nothing here."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        patch.dict(os.environ, CAPGRADE_CACHE=str(Path(folder) / "cache")),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", CapgradeWarning)
        yield Path(folder)


def row(name: str, check: Callable[[], Found]) -> tuple[str, bool]:
    """A line of the table, and whether it is as it should be. A path that fails does not keep the
    others from being looked at."""
    try:
        found = check()
    except Exception as error:  # whatever a driver or a library raises is a row
        reason = next(iter(str(error).splitlines()), "")
        return f"| {name} | failed: {type(error).__name__}: {reason} | | | |", False
    speed = "" if found.rate is None else spoken_number(found.rate)
    verdict = "" if found.agrees else " DIFFERS"
    line = (
        f"| {name} | {found.difference:.1e}{verdict} | {found.bound:.0e} | {speed} | {found.unit} |"
    )
    return line, found.agrees


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try this script")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="no path is begun after these"
    )
    parser.add_argument("--small", action="store_true", help="small models and inputs")
    parser.add_argument("--only", default="", help="paths with this in their names, as 'block'")
    given = parser.parse_args()
    try:
        good = run(given.device, given.seconds, given.small, given.only)
    except InputError as error:
        sys.exit(str(error))
    sys.exit(not good)


if __name__ == "__main__":
    main()
