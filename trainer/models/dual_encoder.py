"""CLIP (Radford et al. 2021) and SigLIP (Zhai et al. 2023): a vector of each of two transformers,
and a learned temperature."""

from dataclasses import dataclass, fields
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from capgrade.pretrained import from_pretrained, load_weights
from capgrade.schemas.block import Positive
from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import (
    END_TOKEN,
    START_TOKEN,
    CaptionTokens,
    Encoded,
    Images,
    RetrievalModel,
    Transform,
    upcast,
)
from capgrade.trainer.models.text_encoder import load_tokenizer

_LARGEST = log(100)  # of log(1 / temperature) in training: Radford et al. 2021, section 2.5


@dataclass(frozen=True)
class DualEncoderConfig:
    """Sizes of a random model, those of OpenAI's ViT-B/32; a checkpoint has its own. Perceptrons
    are four times as wide as their layers."""

    pretrained: str | None = None  # folder or hub id of a dual encoder; None for random weights
    embed: Positive | None = None  # None: 512 for CLIP; SigLIP's is the width of its image layers
    image: Positive = 224  # pixels of a side
    patch: Positive = 32
    image_width: Positive = 768
    image_layers: Positive = 12
    image_heads: Positive = 12
    text_width: Positive = 512
    text_layers: Positive = 12
    text_heads: Positive = 8
    positions: Positive = 77  # tokens of the longest caption

    def __post_init__(self) -> None:
        changed = [
            f.name
            for f in fields(self)
            if getattr(self, f.name) != f.default and f.name != "pretrained"
        ]
        if self.pretrained is not None and changed:
            problem = f"{', '.join(changed)} beside checkpoint '{self.pretrained}'"
            problem += ", which has its own sizes"
            remedy = "leave them out of train.model.options, or set pretrained=null"
            raise InputError(problem, remedy=remedy)
        for part, total in (
            ("patch", "image"),
            ("image_heads", "image_width"),
            ("text_heads", "text_width"),
        ):
            if getattr(self, total) % getattr(self, part):
                sizes = getattr(self, part), getattr(self, total)
                problem = f"{part} {sizes[0]} does not divide {total} {sizes[1]}"
                raise InputError(problem, remedy="change one of them in train.model.options")


class DualEncoder(RetrievalModel):
    """Image and caption: the pooled, projected output of their transformer at unit length; score:
    their cosine.

    A picture is one region, whose feature is its prepared pixels (`trainer.data.images`). Losses
    may take `logits` = exp(logit_scale) cosine + logit_bias, where scale and bias are learned, with
    a temperature of 1 (and a bias of 0). CLIP has no bias, and its scale stays below 100.
    """

    reads = "pictures"
    biased = False

    def __init__(self, config: DualEncoderConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        if config.pretrained is None:
            self.encoder = random_dual_encoder(config, vocabulary_size, self.biased)
            self.padding = 0
        else:
            self.encoder = load_dual_encoder(config.pretrained, self.biased)
            self.padding = load_tokenizer(config.pretrained)[0].pad_token_id or 0
        self.side: int = self.encoder.config.vision_config.image_size
        self.positions: int = self.encoder.config.text_config.max_position_embeddings

    def encode_images(self, images: Images) -> Encoded:
        pixels = images.features[:, 0].unflatten(1, (3, self.side, self.side))
        return self._encoded(self.encoder.get_image_features(pixel_values=pixels))

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        length = captions.tokens.shape[1]
        if length > self.positions:
            problem = f"a caption of {length} tokens, the model takes {self.positions}"
            raise InputError(problem, remedy="drop it, or raise train.model.options.positions")
        tokens = captions.tokens.masked_fill(~captions.mask, self.padding)
        if not self.biased:
            mask = captions.mask.long()
            text = self.encoder.get_text_features(input_ids=tokens, attention_mask=mask)
        else:
            # SigLIP reads every position, and a caption's vector is the output of the last.
            tokens = pad(tokens, (0, self.positions - length), value=self.padding)
            text = self.encoder.get_text_features(input_ids=tokens)
        return self._encoded(text)

    def _encoded(self, output: Any) -> Encoded:
        return Encoded(normalize(upcast(output.pooler_output), dim=-1))

    def more_scores(self, images: Encoded, captions: Encoded) -> dict[str, Tensor]:
        scale: Tensor = self.encoder.logit_scale
        if self.training and not self.biased:
            with torch.no_grad():
                scale.clamp_(max=_LARGEST)
        logits = self.scores(images, captions) * scale.exp()
        return {"logits": logits + self.encoder.logit_bias if self.biased else logits}

    def parameter_groups(self, lr: float, text_lr: float) -> list[dict[str, Any]]:
        """Both transformers learn at `text_lr`, scale and bias at `lr`. Gains, biases and the scale
        have no weight decay (Radford et al. 2021, section 2.5)."""
        learned: dict[str, nn.Parameter] = dict(self.encoder.named_parameters())
        own = [learned.pop(name) for name in ("logit_scale", "logit_bias") if name in learned]
        weights = [p for p in learned.values() if p.ndim > 1]
        gains = [p for p in learned.values() if p.ndim <= 1]
        return [
            {"params": own, "lr": lr, "weight_decay": 0.0},
            {"params": weights, "lr": text_lr, "pretrained": True},
            {"params": gains, "lr": text_lr, "weight_decay": 0.0, "pretrained": True},
        ]

    @classmethod
    def transform(cls, config: DualEncoderConfig) -> Transform:
        """The function that makes a picture the model's pixels: the checkpoint's image processor,
        or its family's at the random model's size. It resizes by Pillow, so that pixels do not
        depend on whether torchvision is installed.

        Raises InputError for a processor that cannot be loaded, or whose pictures are not square.
        """
        from transformers import CLIPImageProcessorPil, SiglipImageProcessorPil

        square = {"height": config.image, "width": config.image}
        if config.pretrained is not None:
            processor = from_pretrained(
                "AutoImageProcessor", "image processor of", config.pretrained, backend="pil"
            )
        elif cls.biased:
            processor = SiglipImageProcessorPil(size=square)
        else:
            processor = CLIPImageProcessorPil(
                size={"shortest_edge": config.image}, crop_size=square
            )

        def transform(picture: np.ndarray) -> np.ndarray:
            batch = processor(picture, input_data_format="channels_last", return_tensors="np")
            return batch["pixel_values"][0]

        shape = transform(np.zeros((60, 80, 3), np.uint8)).shape
        if len(shape) != 3 or shape[0] != 3 or shape[1] != shape[2]:
            model = config.pretrained
            problem = f"the image processor of '{model}' gives {list(shape)} of a picture"
            remedy = "give a checkpoint whose pictures are square, [3, side, side]"
            raise InputError(problem, remedy=remedy)
        return transform


class Siglip(DualEncoder):
    """SigLIP, which has a learned bias and reads every position of a caption."""

    biased = True


def load_dual_encoder(checkpoint: str, biased: bool) -> Any:
    """A checkpoint's model in float32. Raises InputError where it cannot be loaded, lacks weights,
    is no dual encoder with a learned `logit_scale`, or is of the other family: only SigLIP has a
    `logit_bias`."""
    model = load_weights("dual encoder", checkpoint)
    kind = model.config.model_type
    needed = ("get_image_features", "get_text_features", "logit_scale")
    if lacking := [name for name in needed if not hasattr(model, name)]:
        problem = f"checkpoint '{checkpoint}' is a '{kind}', which has no {lacking[0]}"
        raise InputError(problem, remedy="give a dual encoder such as CLIP or SigLIP")
    if hasattr(model, "logit_bias") != biased:
        name = "clip" if biased else "siglip"
        having = "without" if biased else "with"
        problem = f"checkpoint '{checkpoint}' is a '{kind}', {having} a logit_bias"
        raise InputError(problem, remedy=f"set train.model.name={name}")
    return model


def random_dual_encoder(config: DualEncoderConfig, vocabulary: int, biased: bool) -> Any:
    """Random weights by torch's generator: a `CLIPModel`, or with a bias a `SiglipModel` whose
    scale is 10 and bias -10 at the start (Zhai et al. 2023, section 3.2)."""
    from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel

    if biased and config.embed not in (None, config.image_width):
        problem = (
            f"embed {config.embed}: SigLIP's vectors are as wide as its image layers,"
            f" {config.image_width}"
        )
        raise InputError(problem, remedy="leave out train.model.options.embed")
    embed = config.image_width if biased else config.embed or 512
    vision = _layers(config.image_width, config.image_layers, config.image_heads)
    vision |= {"image_size": config.image, "patch_size": config.patch}
    text = _layers(config.text_width, config.text_layers, config.text_heads)
    text |= {
        "vocab_size": vocabulary,
        "max_position_embeddings": config.positions,
        "projection_size": embed,
    }
    text |= {"pad_token_id": 0, "bos_token_id": START_TOKEN, "eos_token_id": END_TOKEN}
    if not biased:
        return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=embed))
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision))
    with torch.no_grad():
        model.logit_scale.fill_(log(10))
        model.logit_bias.fill_(-10)
    return model


def _layers(width: int, layers: int, heads: int) -> dict[str, int]:
    sizes = {"hidden_size": width, "intermediate_size": 4 * width}
    return {**sizes, "num_hidden_layers": layers, "num_attention_heads": heads}
