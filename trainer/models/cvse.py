"""CVSE (Wang et al. 2020, "Consensus-Aware Visual-Semantic Embedding"): what is said together helps to match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from capgrade.trainer.data.text import FIRST
from capgrade.trainer.models.base import Encoded, Images, RetrievalModel, Texts
from capgrade.trainer.models.concepts import ConceptGraph, adjacency, choose_concepts, said
from capgrade.trainer.models.encoders import RegionNorm, SelfPooling, WordGru, cosines, linear, upcast
from capgrade.trainer.models.word_vectors import word_vectors

XAVIER = "xavier"
SHARPNESS = 10.0  # of the softmax over concepts, of predictions and of labels
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class CvseConfig:
    embed: int = 1024
    word: int = 300
    concepts: Annotated[int, Field(ge=2)] = 300
    fusion: Share = 0.85  # share of the instance in the fused vector
    evaluated_fusion: Share | None = None  # the same in evaluation; None: as in training
    evaluated_consensus: Share = 0.0  # in evaluation: share of the consensus' cosine in a score
    labels: Share = 0.35  # share of the concepts that are said in those that a caption is taken to speak of
    words: str = "xavier"  # initial word vectors: uniform Xavier, or a file of GloVe's vectors of `word` numbers
    dropout: float = 0.4
    region_norm: RegionNorm = "features"  # "authors": by place, exactly 36 regions


class Consensus(nn.Module):
    """Shares of concepts z_k that a vector x speaks of: softmax_k(10 w . (tanh BN(P z_k) * tanh BN(Q x)))."""

    def __init__(self, embed: int) -> None:
        super().__init__()
        self.of_concepts, self.of_vector, self.common = (nn.Linear(embed, n) for n in (embed, embed, 1))
        self.concept_norm, self.vector_norm = nn.BatchNorm1d(embed), nn.BatchNorm1d(embed)

    def forward(self, x: Tensor, concepts: Tensor) -> Tensor:
        """float [B, K]"""
        known = self.concept_norm(self.of_concepts(concepts)).tanh() * self.common.weight
        asked = self.vector_norm(self.of_vector(x)).tanh()
        return (SHARPNESS * upcast(asked @ known.T + self.common.bias)).softmax(1)


class Cvse(RetrievalModel):
    """Instance vectors (sets pooled by attention), consensus vectors (concepts mixed by predicted shares), and
    l2norm(fusion instance + (1 - fusion) consensus); score: cosine of the fused vectors, in evaluation with
    `evaluated_consensus` of the consensus vectors' cosine: (1 - e) fused . fused + e consensus . consensus.

    A caption's shares are mixed with softmax(10 label), 1 where a concept is said: in training in any caption of the
    image, else in the caption itself. The authors then complete labels by neighbours in the test set, so a score
    depends on the other queries; ours never does. `more_scores` has "instance" and "consensus", `own_losses` the
    divergence of the shares. Concepts and graph are of the captions learnt from (`learn_words`).
    Source: model_CVSE.py, C_GCN.py of BruceW91/CVSE.
    """

    concept_words: Tensor
    image_labels: Tensor

    def __init__(self, config: CvseConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.project = linear(feature_dim, config.embed)
        self.read = WordGru(vocabulary_size, config.word, config.embed, both_ways=True, dropout=config.dropout)
        (nn.init.xavier_uniform_ if config.words == XAVIER else nn.init.normal_)(self.read.embed.weight)
        self.pool_regions = SelfPooling(config.embed, config.dropout, config.region_norm, start=nn.Linear)
        self.pool_words = SelfPooling(config.embed, config.dropout, unit_mean=True, start=nn.Linear)
        self.graph = ConceptGraph(config.concepts, config.word, config.embed)
        self.of_images, self.of_captions = Consensus(config.embed), Consensus(config.embed)
        self.register_buffer("concept_words", torch.full((config.concepts,), -1))
        self.register_buffer("image_labels", torch.zeros(0, config.concepts, dtype=torch.bool), persistent=False)

    def learn_words(self, words: Sequence[str], tokens: Sequence[np.ndarray], owner: np.ndarray) -> None:
        if self.config.words != XAVIER:
            vectors = self.read.embed.weight.data[FIRST:]
            for k, vector in word_vectors(Path(self.config.words), words, self.config.word).items():
                vectors[k] = torch.from_numpy(vector)
        chosen = choose_concepts(words, self.config.concepts)
        found = said(tokens, chosen)
        self.concept_words.copy_(torch.from_numpy(chosen))
        self.graph.edges.copy_(torch.from_numpy(adjacency(found)))
        labels = np.zeros((int(owner.max()) + 1, len(chosen)), np.bool_)
        np.logical_or.at(labels, owner, found)
        self.image_labels = torch.from_numpy(labels).to(self.concept_words.device)

    def encode_images(self, images: Images) -> Encoded:
        regions = normalize(upcast(self.project(images.features)), dim=-1)
        regions = regions.masked_fill(~images.mask.unsqueeze(2), 0)
        instance, concepts = self.pool_regions(regions, images.mask), self.concepts()
        return self.fused(instance, self.of_images(instance, concepts), concepts)

    def encode_captions(self, captions: Texts) -> Encoded:
        words = normalize(self.read(captions)[0], dim=-1)
        instance, concepts = self.pool_words(words, captions.mask), self.concepts()
        known = (SHARPNESS * self.labels(captions).to(instance.dtype)).softmax(1)
        share = self.config.labels
        return self.fused(instance, share * known + (1 - share) * self.of_captions(instance, concepts), concepts)

    def concepts(self) -> Tensor:
        """float [K, D], unit length; their words have the vectors that the GRU reads."""
        return self.graph(self.read.embed(self.concept_words.clamp(min=0)))

    def labels(self, captions: Texts) -> Tensor:
        """bool [B, K]"""
        if self.training and captions.images is not None:
            return self.image_labels[captions.images]
        return (captions.tokens.unsqueeze(2) == self.concept_words).any(1)

    def fused(self, instance: Tensor, shares: Tensor, concepts: Tensor) -> Encoded:
        """In training with the instance, the consensus and the shares of concepts as parts, padded to one width."""
        consensus = normalize(shares @ concepts.to(shares.dtype), dim=-1)
        share, evaluated = self.config.fusion, self.config.evaluated_fusion
        share = share if self.training or evaluated is None else evaluated
        vector = normalize(share * instance + (1 - share) * consensus, dim=-1)
        if not self.training:
            e = self.config.evaluated_consensus  # the product of two such vectors is the mixture of both cosines
            return Encoded(torch.cat([(1 - e) ** 0.5 * vector, e**0.5 * consensus], 1) if e else vector)
        width = max(instance.shape[1], shares.shape[1])
        return Encoded(vector, torch.stack([pad(x, (0, width - x.shape[1])) for x in (instance, consensus, shares)], 1))

    def own_losses(self, images: Encoded, captions: Encoded, texts: Texts) -> dict[str, Tensor]:
        """The mean over pairs of KL(shares of the caption from those of its image)."""
        assert images.parts is not None and captions.parts is not None
        p, q = (parts[:, 2, : self.config.concepts] for parts in (captions.parts, images.parts))
        tiny = torch.finfo(p.dtype).tiny
        return {"divergence": (p * (p.clamp(min=tiny).log() - q.clamp(min=tiny).log())).sum() / len(p)}

    def more_scores(self, images: Encoded, captions: Encoded) -> dict[str, Tensor]:
        assert images.parts is not None and captions.parts is not None
        sides = images.parts, captions.parts
        return {name: cosines(*(x[:, k] for x in sides)) for k, name in enumerate(("instance", "consensus"))}

    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        assert images.vector is not None and captions.vector is not None
        return cosines(images.vector, captions.vector)
