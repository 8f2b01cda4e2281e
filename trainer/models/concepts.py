"""Concepts of CVSE: the words that captions say most, and the graph of which are said together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, normalize

from capgrade.schemas.errors import InputError
from capgrade.trainer.data.text import FIRST
from capgrade.trainer.models.encoders import upcast
from capgrade.trainer.models.text_encoder import STOP_WORDS

BASE, CENTRE, THRESHOLD, SHARE = 5.0, 0.02, 0.3, 0.25  # util_C_GCN.py 163-174 and 108-113


class ConceptGraph(nn.Module):
    """Word vectors [K, word] as concept vectors [K, D] of unit length: two graph convolutions A leaky_relu(A X U) W."""

    edges: Tensor

    def __init__(self, concepts: int, word: int, embed: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(n, m, bias=False) for n, m in ((word, embed // 2), (embed // 2, embed)))
        for layer in (self.first, self.second):  # by the numbers it gives, not by those it takes (C_GCN.py 32-34)
            nn.init.uniform_(layer.weight, -(layer.out_features**-0.5), layer.out_features**-0.5)
        self.register_buffer("edges", torch.eye(concepts))

    def forward(self, words: Tensor) -> Tensor:
        hidden = leaky_relu(self.edges @ self.first(words), 0.2)
        return normalize(upcast(self.edges @ self.second(hidden)), dim=-1)


def choose_concepts(words: Sequence[str], concepts: int) -> np.ndarray:
    """Token numbers int64 [concepts] of the most frequent words that are no stop words; `words` by falling frequency.

    The authors' list is a file of lemmas, objects, motions and properties in shares of 7, 2 and 1. Raises InputError
    where captions say too few words.
    """
    stop = set(STOP_WORDS.read_text(encoding="utf-8").split())
    numbers = [FIRST + k for k, word in enumerate(words) if word.isalpha() and word not in stop]
    if len(numbers) < concepts:
        problem = f"{concepts} concepts are asked for, and captions say {len(numbers)} words that can be one"
        raise InputError(problem, remedy="lower train.model.options.concepts or train.min_count")
    return np.array(numbers[:concepts], np.int64)


def said(tokens: Sequence[np.ndarray], chosen: np.ndarray) -> np.ndarray:
    """bool [captions, K]: the caption says the concept."""
    place = np.full(max(int(chosen.max()), max(int(row.max()) for row in tokens)) + 1, -1)
    place[chosen] = np.arange(len(chosen))
    found = np.zeros((len(tokens), len(chosen)), np.bool_)
    for k, row in enumerate(tokens):
        numbers = place[row]
        found[k, numbers[numbers >= 0]] = True
    return found


def adjacency(said: np.ndarray) -> np.ndarray:
    """Normalised edges float32 [K, K] of captions that say concepts, bool [captions, K].

    P_ij = share of the captions with i that have j too; 5^(P - 0.02) - 5^-0.02 (eq. 2), 1 where that is 0.3 or more
    and else 0 (eq. 3); a column's edges share 0.25, and 1 to itself; then (A D^-1/2)' D^-1/2 with the row sums D.
    Source: Wang et al. 2020; util_C_GCN.py gen_A_concept "Complex", gen_adj.
    """
    counts = said.astype(np.float32)
    together = (counts.T @ counts).astype(np.float64)
    number = np.diag(together).copy()
    np.fill_diagonal(together, 0)
    likely = together / np.maximum(number, 1)[:, None]
    edges = (BASE ** (likely - CENTRE) - BASE**-CENTRE >= THRESHOLD).astype(np.float64)
    edges = edges * SHARE / (edges.sum(0, keepdims=True) + 1e-6) + np.eye(len(edges))
    scale = edges.sum(1) ** -0.5
    return ((edges * scale).T * scale).astype(np.float32)
