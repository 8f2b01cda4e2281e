"""CVSE (Wang et al. 2020, "Consensus-Aware Visual-Semantic Embedding"): a graph of concepts that
captions mention together."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, normalize, pad

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import (
    FIRST_WORD,
    CaptionTokens,
    Encoded,
    Fraction,
    Images,
    RetrievalModel,
    cosines,
    upcast,
)
from capgrade.trainer.models.encoders import (
    GruConfig,
    RegionNorm,
    SelfPooling,
    WordGru,
    linear,
    unit_regions,
)
from capgrade.trainer.models.text_encoder import STOP_WORDS

BASE, CENTRE, THRESHOLD, _SHARE = 5.0, 0.02, 0.3, 0.25  # util_C_GCN.py 163-174 and 108-113


class _ConceptGraph(nn.Module):
    """Word vectors [K, word] as concept vectors [K, D] of unit length: two graph convolutions A
    leaky_relu(A X U) W."""

    edges: Tensor

    def __init__(self, concepts: int, word: int, embed: int) -> None:
        super().__init__()
        self.first = nn.Linear(word, embed // 2, bias=False)
        self.second = nn.Linear(embed // 2, embed, bias=False)
        for layer in (self.first, self.second):
            # The authors' bound is that of the outputs, not of the inputs (C_GCN.py 32-34).
            bound = layer.out_features**-0.5
            nn.init.uniform_(layer.weight, -bound, bound)
        self.register_buffer("edges", torch.eye(concepts))

    def forward(self, words: Tensor) -> Tensor:
        hidden = leaky_relu(self.edges @ self.first(words), 0.2)
        return normalize(upcast(self.edges @ self.second(hidden)), dim=-1)


def choose_concepts(words: Sequence[str], concepts: int) -> np.ndarray:
    """Token numbers int64 [concepts] of the most frequent words that are not stop words; `words`
    come by falling frequency. The authors have a list of objects, motions and properties instead.

    Raises InputError where captions have too few words.
    """
    stop = set(STOP_WORDS.read_text(encoding="utf-8").split())
    numbers = [
        FIRST_WORD + k for k, word in enumerate(words) if word.isalpha() and word not in stop
    ]
    if len(numbers) < concepts:
        problem = f"{concepts} concepts are asked for, and captions say {len(numbers)} words"
        problem += " that can be one"
        raise InputError(problem, remedy="lower train.model.options.concepts or train.min_count")
    return np.array(numbers[:concepts], np.int64)


def mark_mentions(tokens: Sequence[np.ndarray], chosen: np.ndarray) -> np.ndarray:
    """Which captions mention which of the `chosen` concepts: bool [captions, K]."""
    flat = np.concatenate(tokens)
    rows = np.repeat(np.arange(len(tokens)), [len(row) for row in tokens])
    place = np.full(max(chosen.max(), flat.max()) + 1, -1)
    place[chosen] = np.arange(len(chosen))
    holds = np.zeros((len(tokens), len(chosen)), np.bool_)
    holds[rows[place[flat] >= 0], place[flat][place[flat] >= 0]] = True
    return holds


def adjacency(mentions: np.ndarray) -> np.ndarray:
    """Normalised edges float32 [K, K] from the captions' mentions of concepts, bool [captions, K].

    P_ij is the share of captions with i that also have j. An edge is 1 where 5^(P - 0.02) - 5^-0.02
    (eq. 2) >= 0.3, else 0 (eq. 3). A column's edges are scaled to a sum of 0.25, and the diagonal
    is 1; then A becomes (A D^-1/2)' D^-1/2 with its row sums D. Source: Wang et al. 2020;
    util_C_GCN.py, gen_A_concept "Complex" and gen_adj.
    """
    counts = mentions.astype(np.float32)
    together = (counts.T @ counts).astype(np.float64)
    number = np.diag(together).copy()
    np.fill_diagonal(together, 0)
    likely = together / np.maximum(number, 1)[:, None]
    edges = (BASE ** (likely - CENTRE) - BASE**-CENTRE >= THRESHOLD).astype(np.float64)
    edges = edges * _SHARE / (edges.sum(0, keepdims=True) + 1e-6) + np.eye(len(edges))
    scale = edges.sum(1) ** -0.5
    return ((edges * scale).T * scale).astype(np.float32)


XAVIER = "xavier"
_SHARPNESS = 10.0  # factor of logits before the softmax over concepts


@dataclass(frozen=True)
class CvseConfig(GruConfig):
    concepts: Annotated[int, Field(ge=2)] = 300
    fusion: Fraction = 0.85  # share of the instance in the fused vector
    evaluated_fusion: Fraction | None = None  # the same in evaluation; None: as in training
    evaluated_consensus: Fraction = 0.0  # share of the consensus' cosine in evaluation's scores
    labels: Fraction = 0.35  # weight of the mentioned concepts beside the predicted ones
    words: str = "xavier"  # initial word vectors: "xavier" (uniform), or a file of GloVe's
    dropout: Fraction = 0.4
    region_norm: RegionNorm = "features"  # "authors": a norm by place, for exactly 36 regions


class _Consensus(nn.Module):
    """Weights of the concepts z_k for a vector x: softmax_k(10 w . (tanh BN(P z_k) * tanh
    BN(Q x)))."""

    def __init__(self, embed: int) -> None:
        super().__init__()
        self.of_concepts = nn.Linear(embed, embed)
        self.of_vector = nn.Linear(embed, embed)
        self.common = nn.Linear(embed, 1)
        self.concept_norm, self.vector_norm = nn.BatchNorm1d(embed), nn.BatchNorm1d(embed)

    def forward(self, x: Tensor, concepts: Tensor) -> Tensor:
        """float [B, K]"""
        keys = self.concept_norm(self.of_concepts(concepts)).tanh() * self.common.weight
        query = self.vector_norm(self.of_vector(x)).tanh()
        return (_SHARPNESS * upcast(query @ keys.T + self.common.bias)).softmax(1)


class Cvse(RetrievalModel):
    """Instance vectors (sets pooled by attention), consensus vectors (concepts weighted by
    `_Consensus`), and l2norm(fusion instance + (1 - fusion) consensus). The score is the fused
    vectors' cosine, in evaluation (1 - e) fused . fused + e consensus . consensus.

    A caption's weights are mixed with softmax(10 label), where mentioned concepts have label 1: in
    training those of all the image's captions. The authors complete labels by neighbours in the
    test set; ours depend on the pair alone. Source: model_CVSE.py, C_GCN.py of BruceW91/CVSE.
    """

    concept_words: Tensor
    image_labels: Tensor

    def __init__(self, config: CvseConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.project = linear(feature_dim, config.embed)
        self.read = WordGru(
            vocabulary_size, config.word, config.embed, both_ways=True, dropout=config.dropout
        )
        initialise = nn.init.xavier_uniform_ if config.words == XAVIER else nn.init.normal_
        initialise(self.read.embed.weight)
        norm = config.region_norm
        self.pool_regions = SelfPooling(config.embed, config.dropout, norm, start=nn.Linear)
        self.pool_words = SelfPooling(config.embed, config.dropout, unit_mean=True, start=nn.Linear)
        self.graph = _ConceptGraph(config.concepts, config.word, config.embed)
        self.of_images, self.of_captions = _Consensus(config.embed), _Consensus(config.embed)
        self.register_buffer("concept_words", torch.full((config.concepts,), -1))
        no_labels = torch.zeros(0, config.concepts, dtype=torch.bool)
        self.register_buffer("image_labels", no_labels, persistent=False)

    def learn_words(
        self, words: Sequence[str], tokens: Sequence[np.ndarray], owner: np.ndarray
    ) -> None:
        if self.config.words != XAVIER:
            vectors = self.read.embed.weight.data[FIRST_WORD:]
            for k, vector in read_word_vectors(
                Path(self.config.words), words, self.config.word
            ).items():
                vectors[k] = torch.from_numpy(vector)
        chosen = choose_concepts(words, self.config.concepts)
        mentions = mark_mentions(tokens, chosen)
        self.concept_words.copy_(torch.from_numpy(chosen))
        self.graph.edges.copy_(torch.from_numpy(adjacency(mentions)))
        labels = np.zeros((int(owner.max()) + 1, len(chosen)), np.bool_)
        np.logical_or.at(labels, owner, mentions)
        self.image_labels = torch.from_numpy(labels).to(self.concept_words.device)

    def encode_images(self, images: Images) -> Encoded:
        regions = unit_regions(self.project, images)
        instance, concepts = self.pool_regions(regions, images.mask), self.concepts()
        return self.fuse(instance, self.of_images(instance, concepts), concepts)

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        words = normalize(self.read(captions)[0], dim=-1)
        instance, concepts = self.pool_words(words, captions.mask), self.concepts()
        mentioned = (_SHARPNESS * self.labels(captions).to(instance.dtype)).softmax(1)
        predicted = self.of_captions(instance, concepts)
        share = self.config.labels
        return self.fuse(instance, share * mentioned + (1 - share) * predicted, concepts)

    def concepts(self) -> Tensor:
        """Concept vectors float [K, D] of unit length, from the word vectors that the GRU reads."""
        return self.graph(self.read.embed(self.concept_words.clamp(min=0)))

    def labels(self, captions: CaptionTokens) -> Tensor:
        """Mentioned concepts bool [B, K]: in training by any caption of the image."""
        if self.training and captions.images is not None:
            return self.image_labels[captions.images]
        return (captions.tokens.unsqueeze(2) == self.concept_words).any(1)

    def fuse(self, instance: Tensor, shares: Tensor, concepts: Tensor) -> Encoded:
        """The fused vector; in training also the instance, the consensus and the concepts' weights
        as parts, padded to one width."""
        consensus = normalize(shares @ concepts.to(shares.dtype), dim=-1)
        share, evaluated = self.config.fusion, self.config.evaluated_fusion
        share = share if self.training or evaluated is None else evaluated
        vector = normalize(share * instance + (1 - share) * consensus, dim=-1)
        if not self.training:
            if e := self.config.evaluated_consensus:
                # The product of two such vectors is the weighted sum of both cosines.
                vector = torch.cat([(1 - e) ** 0.5 * vector, e**0.5 * consensus], 1)
            return Encoded(vector)
        width = max(instance.shape[1], shares.shape[1])
        padded = [pad(x, (0, width - x.shape[1])) for x in (instance, consensus, shares)]
        parts = torch.stack(padded, 1)
        return Encoded(vector, parts, torch.ones_like(parts[:, :, 0], dtype=torch.bool))

    def own_losses(
        self, images: Encoded, captions: Encoded, texts: CaptionTokens
    ) -> dict[str, Tensor]:
        """The mean over pairs of KL(p || q), p the caption's weights of concepts, q the image's."""
        p, q = (side.sets[0][:, 2, : self.config.concepts] for side in (captions, images))
        tiny = torch.finfo(p.dtype).tiny
        logs = p.clamp(min=tiny).log() - q.clamp(min=tiny).log()
        return {"divergence": (p * logs).sum() / len(p)}

    def more_scores(self, images: Encoded, captions: Encoded) -> dict[str, Tensor]:
        """The cosines of the instance vectors and of the consensus vectors."""
        sides = images.sets[0], captions.sets[0]
        return {
            name: cosines(*(x[:, k] for x in sides))
            for k, name in enumerate(("instance", "consensus"))
        }


def read_word_vectors(path: Path, words: Sequence[str], size: int) -> dict[int, np.ndarray]:
    """The vectors float32 [size] that a file has, by the word's index in `words`. A missing word is
    looked up without - . and ', and up to its first / (model_CVSE.py 171-180 of BruceW91/CVSE).

    Raises InputError for a missing file, a vector of another length, and a file with none of the
    words.
    """
    remedy = (
        f"give GloVe's vectors of {size} numbers (train.model.options.word), or words: {XAVIER}"
    )
    if not path.is_file():
        raise InputError("no such file of word vectors", file=path, remedy=remedy)
    forms = [(word, re.sub("[-.']", "", word).split("/")[0]) for word in words]
    vectors: dict[str, np.ndarray] = {}
    wanted = {form for both in forms for form in both}
    with path.open("rb") as file:
        for row, line in enumerate(file, 1):
            # Only a blank separates, because a word may contain other white space.
            word, *numbers = line.decode("utf-8", "replace").rstrip("\r\n ").split(" ")
            if word in wanted:
                try:
                    vector = np.array(numbers, np.float32)
                except ValueError:
                    vector = np.full(size, np.nan, np.float32)
                vectors[word] = vector
                if vector.shape != (size,) or not np.isfinite(vector).all():
                    problem = f"what follows '{word}' is not {size} numbers"
                    raise InputError(problem, file=path, row=row, remedy=remedy)
    if not vectors:
        problem = f"none of the {len(words)} words of the captions"
        raise InputError(problem, file=path, remedy=remedy)
    by_index = {k: vectors.get(word, vectors.get(plain)) for k, (word, plain) in enumerate(forms)}
    return {k: vector for k, vector in by_index.items() if vector is not None}
