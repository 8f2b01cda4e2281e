"""VSRN (Li et al. 2019, "Visual Semantic Reasoning"): a graph of regions, a GRU that reads them,
and a captioner."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, pad

from capgrade.schemas.block import Positive
from capgrade.trainer.models.base import (
    CaptionTokens,
    Encoded,
    Fraction,
    Images,
    RetrievalModel,
    upcast,
)
from capgrade.trainer.models.encoders import GruConfig, PartNorm, WordGru, linear, run_gru


@dataclass(frozen=True)
class VsrnConfig(GruConfig):
    embed: Positive = 2048
    layers: int = 4  # steps of the graph
    first_norm: bool = True  # a norm of the projected regions; the authors have it for COCO
    last_norm: bool = False  # BatchNorm of the image's vector; the authors have it for Flickr30K
    caption_hidden: Positive = 512
    caption_word: Positive = 300
    caption_dropout: Fraction = 0.2


class _RegionGraph(nn.Module):
    """One step of reasoning: v + BN(W (R / N) G v), R = (theta v) (phi v)', N the number of
    regions.

    The norm counts only regions inside the mask. Its weight starts at 0, so that a new step changes
    nothing.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.theta, self.phi, self.g, self.out = (nn.Linear(size, size) for _ in range(4))
        self.norm = PartNorm(size)
        nn.init.zeros_(self.norm.weight)

    def forward(self, v: Tensor, mask: Tensor) -> Tensor:
        edges = upcast(self.theta(v) @ self.phi(v).mT) / mask.sum(1).clamp(min=1)[:, None, None]
        messages = edges.masked_fill(~mask.unsqueeze(1), 0).to(v.dtype) @ self.g(v)
        return v + self.norm(self.out(messages), mask).masked_fill(~mask.unsqueeze(2), 0)


class Vsrn(RetrievalModel):
    """Image: l2norm(last state of a GRU over its regions, in their order, after the graph);
    caption: l2norm(last state of a GRU); score: cosine. `own_losses` has the captioner's loss, on
    the regions after the graph.

    Both norms of regions divide a feature by its length over the regions of an image, as the
    authors' l2norm over dimension 1 does. Source: model.py, GCN_lib/Rs_GCN.py of
    KunpengLi1994/VSRN.
    """

    def __init__(self, config: VsrnConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.project = linear(feature_dim, config.embed)
        self.graph = nn.ModuleList(_RegionGraph(config.embed) for _ in range(config.layers))
        self.reason = nn.GRU(config.embed, config.embed, batch_first=True)
        self.last_norm = nn.BatchNorm1d(config.embed) if config.last_norm else nn.Identity()
        self.read = WordGru(vocabulary_size, config.word, config.embed, both_ways=False)
        sizes = (config.embed, config.caption_hidden, config.caption_word, config.caption_dropout)
        self.captioner = _Captioner(vocabulary_size, *sizes)

    def encode_images(self, images: Images) -> Encoded:
        """The image's vector; in training also the regions after the graph, for the captioner."""
        mask, absent = images.mask, ~images.mask.unsqueeze(2)
        v = upcast(self.project(images.features.masked_fill(absent, 0))).masked_fill(absent, 0)
        v = normalize(v, dim=1) if self.config.first_norm else v
        for step in self.graph:
            v = upcast(step(v, mask))
        v = normalize(v, dim=1)
        last = run_gru(self.reason, v, mask.sum(1))[1][0]
        vector = normalize(upcast(self.last_norm(upcast(last))), dim=-1)
        return Encoded(vector, v, mask) if self.training else Encoded(vector)

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        return Encoded(normalize(self.read(captions)[1], dim=-1))

    def own_losses(
        self, images: Encoded, captions: Encoded, texts: CaptionTokens
    ) -> dict[str, Tensor]:
        return {"captioning": self.captioner(*images.sets, texts)}


class _Captioner(nn.Module):
    """-sum_t log p(w_t | w_1..t-1, regions) with the true words before, the mean over captions (eq.
    9).

    The padding after the last word is predicted too, as in the authors' code. The steps end with
    the longest caption, where the authors always take 59. Source: models/*.py, misc/utils.py,
    data.py 245-265 of VSRN.
    """

    # The first layer of attention is linear in regions and state, so that its part of the regions
    # is computed once. The words of all steps are predicted at once.

    def __init__(
        self, vocabulary: int, regions: int, hidden: int, word: int, dropout: float
    ) -> None:
        super().__init__()
        self.narrow = nn.Linear(regions, hidden)
        self.read = nn.GRU(hidden, hidden, batch_first=True)
        self.embed = nn.Embedding(vocabulary, word)
        self.write = nn.GRUCell(hidden + word, hidden)
        self.of_regions = nn.Linear(hidden, hidden)
        self.of_state = nn.Linear(hidden, hidden, bias=False)
        self.weigh = nn.Linear(hidden, 1, bias=False)
        self.out = nn.Linear(hidden, vocabulary)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.narrow, self.out):
            nn.init.xavier_normal_(layer.weight)

    def forward(self, regions: Tensor, mask: Tensor, captions: CaptionTokens) -> Tensor:
        """The loss, a scalar, of captions and the regions [B, R, D] of their images."""
        encoded, last = run_gru(self.read, self.dropout(self.narrow(regions)), mask.sum(1))
        states = self.decode(encoded, mask, last[0], self.embed(captions.tokens))
        targets = pad(captions.tokens, (0, 1))[:, 1:]
        logits = upcast(self.out(states[captions.mask]))
        return cross_entropy(logits, targets[captions.mask], reduction="sum") / len(regions)

    def decode(self, encoded: Tensor, mask: Tensor, state: Tensor, words: Tensor) -> Tensor:
        """States float [B, W, hidden] after each word, which attend to the encoded regions."""
        of_regions, states = self.of_regions(encoded), []
        for word in words.unbind(1):
            hidden = (of_regions + self.of_state(state).unsqueeze(1)).tanh()
            logits = upcast(self.weigh(hidden).squeeze(2))
            weights = logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(1)
            context = (weights.unsqueeze(1).to(encoded.dtype) @ encoded).squeeze(1)
            joined = torch.cat([word.to(encoded.dtype), context], 1)
            state = self.write(self.dropout(joined), state)
            states.append(state)
        return torch.stack(states, 1)
