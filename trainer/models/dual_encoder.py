"""CLIP (Radford et al. 2021) and SigLIP (Zhai et al. 2023): two transformers, a vector each, learned temperature."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import log
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import Encoded, Images, RetrievalModel, Texts
from capgrade.trainer.models.dual_checkpoint import load_dual_encoder, load_dual_tokenizer, random_dual_encoder
from capgrade.trainer.models.encoders import cosines, upcast

Positive = Annotated[int, Field(gt=0)]
LARGEST = log(100)  # of the logarithm of 1 / temperature in training: Radford et al. 2021, section 2.5


@dataclass(frozen=True)
class DualEncoderConfig:
    """Sizes of a random model, those of OpenAI's ViT-B/32; a checkpoint has its own. Perceptrons are four times as
    wide as their layers."""

    pretrained: str | None = None  # a transformers dual encoder: folder or hub id; None: random weights
    embed: Positive | None = None  # None: 512 of CLIP; SigLIP's vectors are as wide as its image layers
    image: Positive = 224  # pixels of a side
    patch: Positive = 32
    image_width: Positive = 768
    image_layers: Positive = 12
    image_heads: Positive = 12
    text_width: Positive = 512
    text_layers: Positive = 12
    text_heads: Positive = 8
    positions: Positive = 77  # tokens of a caption, the longest that is read

    def __post_init__(self) -> None:
        given = [f.name for f in fields(self) if getattr(self, f.name) != f.default and f.name != "pretrained"]
        if self.pretrained is not None and given:
            problem = f"{', '.join(given)} beside checkpoint '{self.pretrained}', which has its own sizes"
            raise InputError(problem, remedy="leave them out of train.model.options, or set pretrained=null")
        for parts, whole in (("patch", "image"), ("image_heads", "image_width"), ("text_heads", "text_width")):
            if getattr(self, whole) % getattr(self, parts):
                problem = f"{parts} {getattr(self, parts)} does not divide {whole} {getattr(self, whole)}"
                raise InputError(problem, remedy="change one of them in train.model.options")


class DualEncoder(RetrievalModel):
    """Image and caption: the pooled, projected output of their transformer at unit length; score: their cosine.

    A picture comes as one region, whose feature is its prepared pixels (`trainer.data.images`). `logits` among the
    parts that losses may look at are exp(logit_scale) cosine + logit_bias, scale and bias learned; CLIP has no bias and
    its scale stays below 100. Losses take them with a temperature of 1 (and a bias of 0), as they have both.
    """

    def __init__(self, config: DualEncoderConfig, vocabulary_size: int, biased: bool) -> None:
        super().__init__()
        self.config, self.biased = config, biased
        if config.pretrained is None:
            self.encoder, self.padding = random_dual_encoder(config, vocabulary_size, biased), 0
        else:
            self.encoder = load_dual_encoder(config.pretrained, biased)
            self.padding = load_dual_tokenizer(config.pretrained)[0].pad_token_id or 0
        self.side: int = self.encoder.config.vision_config.image_size
        self.positions: int = self.encoder.config.text_config.max_position_embeddings

    def encode_images(self, images: Images) -> Encoded:
        pixels = images.features[:, 0].unflatten(1, (3, self.side, self.side))
        return self._encoded(self.encoder.get_image_features(pixel_values=pixels))

    def encode_captions(self, captions: Texts) -> Encoded:
        length = captions.tokens.shape[1]
        if length > self.positions:
            problem = f"a caption of {length} tokens, the model takes {self.positions}"
            raise InputError(problem, remedy="drop it, or raise train.model.options.positions")
        tokens = captions.tokens.masked_fill(~captions.mask, self.padding)
        if not self.biased:
            found = self.encoder.get_text_features(input_ids=tokens, attention_mask=captions.mask.long())
        else:  # SigLIP reads every position, and its caption is the last one's output
            tokens = pad(tokens, (0, self.positions - length), value=self.padding)
            found = self.encoder.get_text_features(input_ids=tokens)
        return self._encoded(found)

    def _encoded(self, found: Any) -> Encoded:
        return Encoded(normalize(upcast(found.pooler_output), dim=-1))

    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        assert images.vector is not None and captions.vector is not None
        return cosines(images.vector, captions.vector)

    def more_scores(self, images: Encoded, captions: Encoded) -> dict[str, Tensor]:
        scale: Tensor = self.encoder.logit_scale
        if self.training and not self.biased:
            with torch.no_grad():
                scale.clamp_(max=LARGEST)
        logits = self.scores(images, captions) * scale.exp()
        return {"logits": logits + self.encoder.logit_bias if self.biased else logits}

    def parameter_groups(self, lr: float, text_lr: float) -> list[dict[str, Any]]:
        """Both transformers learn at `text_lr`, scale and bias at `lr`. Gains, biases, scale do not decay (Radford et
        al. 2021, section 2.5)."""
        learned: dict[str, nn.Parameter] = dict(self.encoder.named_parameters())
        own = [learned.pop(name) for name in ("logit_scale", "logit_bias") if name in learned]
        weights = [p for p in learned.values() if p.ndim > 1]
        gains = [p for p in learned.values() if p.ndim <= 1]
        return [
            {"params": own, "lr": lr, "weight_decay": 0.0},
            {"params": weights, "lr": text_lr, "pretrained": True},
            {"params": gains, "lr": text_lr, "weight_decay": 0.0, "pretrained": True},
        ]
