"""CVSE (Wang et al. 2020, "Consensus-Aware Visual-Semantic Embedding"): what is said together helps
to match."""

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


class ConceptGraph(nn.Module):
    """Word vectors [K, word] as concept vectors [K, D] of unit length: two graph convolutions A
    leaky_relu(A X U) W."""

    edges: Tensor

    def __init__(self, concepts: int, word: int, embed: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Linear(n, m, bias=False) for n, m in ((word, embed // 2), (embed // 2, embed))
        )
        for layer in (
            self.first,
            self.second,
        ):  # by the numbers it gives, not by those it takes (C_GCN.py 32-34)
            nn.init.uniform_(layer.weight, -(layer.out_features**-0.5), layer.out_features**-0.5)
        self.register_buffer("edges", torch.eye(concepts))

    def forward(self, words: Tensor) -> Tensor:
        hidden = leaky_relu(self.edges @ self.first(words), 0.2)
        return normalize(upcast(self.edges @ self.second(hidden)), dim=-1)


def choose_concepts(words: Sequence[str], concepts: int) -> np.ndarray:
    """Token numbers int64 [concepts] of the most frequent words that are no stop words; `words` by
    falling frequency.

    The authors' list is a file of lemmas, objects, motions and properties in shares of 7, 2 and 1.
    Raises InputError where captions say too few words.
    """
    stop = set(STOP_WORDS.read_text(encoding="utf-8").split())
    numbers = [
        FIRST_WORD + k for k, word in enumerate(words) if word.isalpha() and word not in stop
    ]
    if len(numbers) < concepts:
        problem = (
            f"{concepts} concepts are asked for, and captions say {len(numbers)} words that can"
            " be one"
        )
        raise InputError(problem, remedy="lower train.model.options.concepts or train.min_count")
    return np.array(numbers[:concepts], np.int64)


def said(tokens: Sequence[np.ndarray], chosen: np.ndarray) -> np.ndarray:
    """bool [captions, K]: the caption says the concept."""
    flat, rows = (
        np.concatenate(tokens),
        np.repeat(np.arange(len(tokens)), [len(row) for row in tokens]),
    )
    place = np.full(max(chosen.max(), flat.max()) + 1, -1)
    place[chosen] = np.arange(len(chosen))
    holds = np.zeros((len(tokens), len(chosen)), np.bool_)
    holds[rows[place[flat] >= 0], place[flat][place[flat] >= 0]] = True
    return holds


def adjacency(said: np.ndarray) -> np.ndarray:
    """Normalised edges float32 [K, K] of captions that say concepts, bool [captions, K].

    P_ij = share of the captions with i that have j too; 5^(P - 0.02) - 5^-0.02 (eq. 2), 1 where
    that is 0.3 or more and else 0 (eq. 3); a column's edges share 0.25, and 1 to itself; then (A
    D^-1/2)' D^-1/2 with the row sums D. Source: Wang et al. 2020; util_C_GCN.py gen_A_concept
    "Complex", gen_adj.
    """
    counts = said.astype(np.float32)
    together = (counts.T @ counts).astype(np.float64)
    number = np.diag(together).copy()
    np.fill_diagonal(together, 0)
    likely = together / np.maximum(number, 1)[:, None]
    edges = (BASE ** (likely - CENTRE) - BASE**-CENTRE >= THRESHOLD).astype(np.float64)
    edges = edges * _SHARE / (edges.sum(0, keepdims=True) + 1e-6) + np.eye(len(edges))
    scale = edges.sum(1) ** -0.5
    return ((edges * scale).T * scale).astype(np.float32)


XAVIER = "xavier"
_SHARPNESS = 10.0  # of the softmax over concepts, of predictions and of labels


@dataclass(frozen=True)
class CvseConfig(GruConfig):
    concepts: Annotated[int, Field(ge=2)] = 300
    fusion: Fraction = 0.85  # share of the instance in the fused vector
    evaluated_fusion: Fraction | None = None  # the same in evaluation; None: as in training
    evaluated_consensus: Fraction = 0.0  # in evaluation: share of the consensus' cosine in a score
    # share of the concepts that are said in those that a caption is taken to speak of
    labels: Fraction = 0.35
    # initial word vectors: uniform Xavier, or a file of GloVe's vectors of `word` numbers
    words: str = "xavier"
    dropout: Fraction = 0.4
    region_norm: RegionNorm = "features"  # "authors": by place, exactly 36 regions


class Consensus(nn.Module):
    """Shares of concepts z_k that a vector x speaks of: softmax_k(10 w . (tanh BN(P z_k) * tanh
    BN(Q x)))."""

    def __init__(self, embed: int) -> None:
        super().__init__()
        self.of_concepts, self.of_vector, self.common = (
            nn.Linear(embed, n) for n in (embed, embed, 1)
        )
        self.concept_norm, self.vector_norm = nn.BatchNorm1d(embed), nn.BatchNorm1d(embed)

    def forward(self, x: Tensor, concepts: Tensor) -> Tensor:
        """float [B, K]"""
        known = self.concept_norm(self.of_concepts(concepts)).tanh() * self.common.weight
        asked = self.vector_norm(self.of_vector(x)).tanh()
        return (_SHARPNESS * upcast(asked @ known.T + self.common.bias)).softmax(1)


class Cvse(RetrievalModel):
    """Instance vectors (sets pooled by attention), consensus vectors (concepts mixed by predicted
    shares), and l2norm(fusion instance + (1 - fusion) consensus); score: cosine of the fused
    vectors, in evaluation with `evaluated_consensus` of the consensus vectors' cosine: (1 - e)
    fused . fused + e consensus . consensus.

    A caption's shares are mixed with softmax(10 label), 1 where a concept is said: in training in
    any caption of the image, else in the caption itself. The authors then complete labels by
    neighbours in the test set, so a score depends on the other queries; ours never does.
    `more_scores` has "instance" and "consensus", `own_losses` the divergence of the shares.
    Concepts and graph are of the captions learnt from (`learn_words`). Source: model_CVSE.py,
    C_GCN.py of BruceW91/CVSE.
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
        (nn.init.xavier_uniform_ if config.words == XAVIER else nn.init.normal_)(
            self.read.embed.weight
        )
        self.pool_regions = SelfPooling(
            config.embed, config.dropout, config.region_norm, start=nn.Linear
        )
        self.pool_words = SelfPooling(config.embed, config.dropout, unit_mean=True, start=nn.Linear)
        self.graph = ConceptGraph(config.concepts, config.word, config.embed)
        self.of_images, self.of_captions = Consensus(config.embed), Consensus(config.embed)
        self.register_buffer("concept_words", torch.full((config.concepts,), -1))
        self.register_buffer(
            "image_labels", torch.zeros(0, config.concepts, dtype=torch.bool), persistent=False
        )

    def learn_words(
        self, words: Sequence[str], tokens: Sequence[np.ndarray], owner: np.ndarray
    ) -> None:
        if self.config.words != XAVIER:
            vectors = self.read.embed.weight.data[FIRST_WORD:]
            for k, vector in word_vectors(Path(self.config.words), words, self.config.word).items():
                vectors[k] = torch.from_numpy(vector)
        chosen = choose_concepts(words, self.config.concepts)
        holds = said(tokens, chosen)
        self.concept_words.copy_(torch.from_numpy(chosen))
        self.graph.edges.copy_(torch.from_numpy(adjacency(holds)))
        labels = np.zeros((int(owner.max()) + 1, len(chosen)), np.bool_)
        np.logical_or.at(labels, owner, holds)
        self.image_labels = torch.from_numpy(labels).to(self.concept_words.device)

    def encode_images(self, images: Images) -> Encoded:
        regions = unit_regions(self.project, images)
        instance, concepts = self.pool_regions(regions, images.mask), self.concepts()
        return self.fused(instance, self.of_images(instance, concepts), concepts)

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        words = normalize(self.read(captions)[0], dim=-1)
        instance, concepts = self.pool_words(words, captions.mask), self.concepts()
        known = (_SHARPNESS * self.labels(captions).to(instance.dtype)).softmax(1)
        share = self.config.labels
        return self.fused(
            instance, share * known + (1 - share) * self.of_captions(instance, concepts), concepts
        )

    def concepts(self) -> Tensor:
        """float [K, D], unit length; their words have the vectors that the GRU reads."""
        return self.graph(self.read.embed(self.concept_words.clamp(min=0)))

    def labels(self, captions: CaptionTokens) -> Tensor:
        """bool [B, K]"""
        if self.training and captions.images is not None:
            return self.image_labels[captions.images]
        return (captions.tokens.unsqueeze(2) == self.concept_words).any(1)

    def fused(self, instance: Tensor, shares: Tensor, concepts: Tensor) -> Encoded:
        """In training with the instance, the consensus and the shares of concepts as parts, padded
        to one width."""
        consensus = normalize(shares @ concepts.to(shares.dtype), dim=-1)
        share, evaluated = self.config.fusion, self.config.evaluated_fusion
        share = share if self.training or evaluated is None else evaluated
        vector = normalize(share * instance + (1 - share) * consensus, dim=-1)
        if not self.training:
            # the product of two such vectors is the mixture of both cosines
            e = self.config.evaluated_consensus
            return Encoded(
                torch.cat([(1 - e) ** 0.5 * vector, e**0.5 * consensus], 1) if e else vector
            )
        width = max(instance.shape[1], shares.shape[1])
        parts = torch.stack(
            [pad(x, (0, width - x.shape[1])) for x in (instance, consensus, shares)], 1
        )
        return Encoded(vector, parts, torch.ones_like(parts[:, :, 0], dtype=torch.bool))

    def own_losses(
        self, images: Encoded, captions: Encoded, texts: CaptionTokens
    ) -> dict[str, Tensor]:
        """The mean over pairs of KL(shares of the caption from those of its image)."""
        p, q = (side.sets[0][:, 2, : self.config.concepts] for side in (captions, images))
        tiny = torch.finfo(p.dtype).tiny
        return {
            "divergence": (p * (p.clamp(min=tiny).log() - q.clamp(min=tiny).log())).sum() / len(p)
        }

    def more_scores(self, images: Encoded, captions: Encoded) -> dict[str, Tensor]:
        sides = images.sets[0], captions.sets[0]
        return {
            name: cosines(*(x[:, k] for x in sides))
            for k, name in enumerate(("instance", "consensus"))
        }


def word_vectors(path: Path, words: Sequence[str], size: int) -> dict[int, np.ndarray]:
    """float32 [size] by place in `words`, of those that the file has; a word that it lacks is
    looked up without - . and ', and up to its first / (model_CVSE.py 171-180 of BruceW91/CVSE).

    Raises InputError for no such file, for what is no vector of this length, and for a file with
    none of the words.
    """
    remedy = (
        f"give GloVe's vectors of {size} numbers (train.model.options.word), or words: {XAVIER}"
    )
    if not path.is_file():
        raise InputError("no such file of word vectors", file=path, remedy=remedy)
    forms = [(word, re.sub("[-.']", "", word).split("/")[0]) for word in words]
    known: dict[str, np.ndarray] = {}
    wanted = {form for both in forms for form in both}
    with path.open("rb") as file:
        for row, line in enumerate(file, 1):
            # a word may hold other spaces
            word, *numbers = line.decode("utf-8", "replace").rstrip("\r\n ").split(" ")
            if word in wanted:
                try:
                    known[word] = np.array(numbers, np.float32)
                except ValueError:
                    known[word] = np.full(size, np.nan, np.float32)
                if known[word].shape != (size,) or not np.isfinite(known[word]).all():
                    problem = f"what follows '{word}' is not {size} numbers"
                    raise InputError(problem, file=path, row=row, remedy=remedy)
    if not known:
        raise InputError(
            f"none of the {len(words)} words of the captions", file=path, remedy=remedy
        )
    by_place = {k: known.get(word, known.get(plain)) for k, (word, plain) in enumerate(forms)}
    return {k: vector for k, vector in by_place.items() if vector is not None}
