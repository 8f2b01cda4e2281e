"""SAF and SGR (Diao et al. 2021, "Similarity Reasoning and Filtration"): a vector of similarity
between an image and each word."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

from capgrade.schemas.block import Positive
from capgrade.trainer.models.base import (
    CaptionTokens,
    Encoded,
    Fraction,
    Images,
    RetrievalModel,
    upcast,
)
from capgrade.trainer.models.encoders import (
    EVAL_IMAGES,
    GruConfig,
    RegionNorm,
    SelfPooling,
    WordGru,
    linear,
    score_by_length,
    unit_regions,
)
from capgrade.trainer.models.scan import attention
from capgrade.trainer.models.text_encoder import TextWords

# Numbers of a block [images, words, D]. On a CPU it has 8 MiB, a quarter of a server's cache.
STEP_NUMBERS = {"cpu": 2**21, "cuda": 2**28}


@dataclass(frozen=True)
class SgrafConfig(GruConfig):
    similarity: Positive = 256
    temperature: float = 9.0  # lambda of the attention over regions
    steps: Positive = 3  # of SGR
    dropout: Fraction = 0.4
    region_norm: RegionNorm = "features"  # "authors": a norm by place, for exactly 36 regions
    text_model: str | None = None  # None: a GRU of both directions; else a pretrained BERT
    text_layers: int | None = None
    freeze_text: bool = False


def _unit_attention(products: Tensor, mask: Tensor, gram: Tensor, temperature: float) -> Tensor:
    """SCAN's weights A [n, R, c L], scaled so that A' V is a unit vector. The length comes from the
    Gram matrix, so that no array [n, words, D] is needed for it."""
    a, square = attention(products, mask, gram, temperature)
    return a * square.unsqueeze(1).clamp(min=1e-16).rsqrt()


def _squared_difference(a: Tensor, v: Tensor, words: Tensor, layer: nn.Linear) -> Tensor:
    """l2norm(layer((A' V - w)^2)), float32 [n, M, K], of A [n, R, M], V [n, R, D], w [M, D].

    The intermediate block [n, M, D] is computed for a few images at a time and again in the
    backward pass. Autograd would keep it several times: 0.8 GB each for 128 x 128 pairs, 12 words
    and D = 1024.
    """

    def unit(a: Tensor, v: Tensor) -> Tensor:
        return normalize(upcast(layer((a.mT @ v - words).square())), dim=-1)

    size = max(1, STEP_NUMBERS.get(a.device.type, STEP_NUMBERS["cpu"]) // max(1, words.numel()))
    steps = zip(a.split(size), v.split(size), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([unit(*step) for step in steps])
    return torch.cat(
        [checkpoint(unit, *step, use_reentrant=False, preserve_rng_state=False) for step in steps]
    )


class Reasoning(nn.Module):
    """One step of similarity graph reasoning (eq. 6-7): x <- relu(W softmax(Q x (K x)') x), nodes
    [n, c, N, K].

    K has no bias, unlike in SGRAF's code, because it would add the same to a row of the softmax and
    change nothing.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = linear(size, size)
        self.key = linear(size, size, bias=False)
        self.value = linear(size, size)

    def forward(self, nodes: Tensor, count: int | None = None) -> Tensor:
        """The first `count` nodes after the step; None: all."""
        # (Q x + q)' (K y) = (x' Q' K + q' K) y, so that one product with all nodes gives the edges.
        key = self.key.weight
        weight, bias = key.T @ self.query.weight, self.query.bias @ key
        queries = functional.linear(nodes[:, :, :count], weight, bias)
        edges = upcast(queries @ nodes.mT).softmax(-1).to(queries.dtype)
        return self.value(edges @ nodes).relu()


class _CaptionNorm(nn.BatchNorm1d):
    """BatchNorm of one channel whose batch is one caption's values for all images, as in a loop
    over captions."""

    def forward(self, input: Tensor, share: Tensor | None = None) -> Tensor:
        """Normalised values [n, c, N] of c captions; `share` [c] are the weights of their
        statistics in the running ones."""
        mean, variance = self.running_mean, self.running_var
        assert mean is not None and variance is not None  # BatchNorm1d has them by default.
        if self.training:
            assert share is not None
            running_mean, running_variance = mean, variance
            variance, mean = torch.var_mean(input, (0, 2), correction=0)
            count = input.shape[0] * input.shape[2]
            running_mean += (share * mean.detach()).sum()
            running_variance += (share * variance.detach()).sum() * (count / max(1, count - 1))
            mean, variance = mean.unsqueeze(1), variance.unsqueeze(1)
        return (input - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias

    def shares(self, captions: int, device: torch.device) -> Tensor:
        """The weight m (1 - m)^(captions after it) of each caption's statistics in the running
        ones, which decay."""
        assert (
            self.running_mean is not None
            and self.running_var is not None
            and self.num_batches_tracked is not None
        )
        momentum = self.momentum or 0.1
        self.running_mean *= (1 - momentum) ** captions
        self.running_var *= (1 - momentum) ** captions
        self.num_batches_tracked += captions
        after = torch.arange(captions - 1, -1, -1, device=device, dtype=self.running_mean.dtype)
        return momentum * (1 - momentum) ** after


class Sgraf(RetrievalModel):
    """The base of SAF and SGR: a score of the nodes s_0 (global) and s_l (of word l).

    s_l = l2norm(W (c_l - w_l)^2), c_l the unit vector of the regions that word l attends to; s_0 is
    the same of the two pooled vectors; score = sigmoid(u . pool_nodes(s)), in (0, 1). Source: eq.
    3-5 and SGRAF's model.py.
    """

    def __init__(self, config: SgrafConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.project = linear(feature_dim, config.embed)
        if config.text_model is None:
            sizes = vocabulary_size, config.word, config.embed
            self.read: nn.Module = WordGru(*sizes, both_ways=True, dropout=config.dropout)
        else:
            options = config.embed, config.text_layers, config.freeze_text
            self.read = TextWords(config.text_model, *options)
        self.pool_regions = SelfPooling(config.embed, config.dropout, config.region_norm)
        self.pool_words = SelfPooling(config.embed, config.dropout)
        self.local = linear(config.embed, config.similarity)
        self.whole = linear(config.embed, config.similarity)
        self.out = linear(config.similarity, 1)

    def encode_images(self, images: Images) -> Encoded:
        regions = unit_regions(self.project, images)
        return Encoded(self.pool_regions(regions, images.mask), regions, images.mask)

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        words = normalize(self.read(captions)[0], dim=-1)
        return Encoded(self.pool_words(words, captions.mask), words, captions.mask)

    def pool_nodes(self, nodes: Tensor, share: Tensor | None) -> Tensor:
        """One vector [n, c, K] of the nodes [n, c, N, K] of c captions with n images; `share` is
        that of `shares`."""
        raise NotImplementedError

    def shares(self, captions: Encoded) -> Tensor | None:
        """Weights [captions] in running statistics, for a head that has some and is in training."""
        return None

    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        """As the base class; in training all images are scored at once, because SAF's statistics
        are over them."""
        shares = self.shares(captions)
        size = len(images) if self.training else EVAL_IMAGES
        return torch.cat([self.score_rows(block, captions, shares) for block in images.split(size)])

    def score_rows(self, images: Encoded, captions: Encoded, shares: Tensor | None) -> Tensor:
        """Scores [n, captions] of n images."""
        (regions, _), (words, word_mask), vectors = images.sets, captions.sets, captions.vector
        assert vectors is not None
        with torch.autocast(regions.device.type, enabled=False):
            gram = regions @ regions.mT

        def score(at: Tensor, length: int) -> Tensor:
            share = None if shares is None else shares[at]
            return self.score_tile(images, gram, words[at, :length], vectors[at], share)

        return score_by_length(score, word_mask.sum(1).tolist(), regions)

    def score_tile(
        self, images: Encoded, gram: Tensor, words: Tensor, vectors: Tensor, share: Tensor | None
    ) -> Tensor:
        """Scores [n, c] of c captions of one length: words [c, L, D], pooled vectors [c, D]."""
        (regions, mask), vector = images.sets, images.vector
        assert vector is not None
        products = upcast(regions.flatten(0, 1) @ words.flatten(0, 1).T)  # (n R, c L)
        products = products.unflatten(0, mask.shape).unflatten(2, words.shape[:2])
        a = _unit_attention(products, mask, gram, self.config.temperature)
        local = _squared_difference(a, regions, words.flatten(0, 1), self.local)
        local = local.unflatten(1, words.shape[:2])
        # The image's pooled vector is one "region" that every caption attends to.
        ones = torch.ones_like(vector[:, :1, None]).expand(-1, 1, len(vectors))
        s0 = _squared_difference(ones, vector.unsqueeze(1), vectors, self.whole)
        return self.score_nodes(torch.cat([s0.unsqueeze(2), local], 2), share)

    def score_nodes(self, nodes: Tensor, share: Tensor | None) -> Tensor:
        """Scores [n, c] of nodes [n, c, N, K]."""
        pooled = upcast(self.pool_nodes(nodes, share))
        # In bfloat16 scores that are to be ranked would be equal.
        with torch.autocast(nodes.device.type, enabled=False):
            return self.out(pooled).squeeze(2).sigmoid()


class Saf(Sgraf):
    """Similarity attention filtration (eq. 8-9): l2norm(sum_l b_l s_l), where b is sigmoid(BN(v .
    s_l)), divided by its sum."""

    def __init__(self, config: SgrafConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_dim, vocabulary_size)
        self.gate, self.norm = linear(config.similarity, 1), _CaptionNorm(1)

    def shares(self, captions: Encoded) -> Tensor | None:
        return self.norm.shares(len(captions), captions.sets[0].device) if self.training else None

    def pool_nodes(self, nodes: Tensor, share: Tensor | None) -> Tensor:
        weights = self.norm(upcast(self.gate(nodes).squeeze(3)), share).sigmoid()
        weights = weights / (weights.sum(2, keepdim=True) + 1e-8)
        return normalize(upcast((weights.unsqueeze(2) @ nodes).squeeze(2)), dim=-1)


class Sgr(Sgraf):
    """Similarity graph reasoning (eq. 6-7): steps in which every node attends to all, after which
    the global node is the vector."""

    def __init__(self, config: SgrafConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_dim, vocabulary_size)
        self.graph = nn.ModuleList(Reasoning(config.similarity) for _ in range(config.steps))

    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        """As the base class; the gradient goes back through the pairs that have one (`_FewPairs`),
        because a pair's score depends on that pair alone."""
        if not torch.is_grad_enabled():
            return super().scores(images, captions)
        sides = *vars(images).values(), *vars(captions).values()
        layers = (self.local, self.whole, self.graph, self.out)
        learned = [p for layer in layers for p in layer.parameters()]
        score_matrix = super().scores

        def score_all(*x: Tensor) -> Tensor:
            return score_matrix(Encoded(*x[:3]), Encoded(*x[3:]))

        def score_pairs(rows: Tensor, columns: Tensor, *x: Tensor) -> Tensor:
            return self.score_pairs(rows, columns, Encoded(*x[:3]), Encoded(*x[3:]))

        return _FewPairs.apply(score_all, score_pairs, len(learned), *learned, *sides)

    def score_pairs(
        self, rows: Tensor, columns: Tensor, images: Encoded, captions: Encoded
    ) -> Tensor:
        """Scores [pairs] of image rows[p] with caption columns[p]."""
        lengths = captions.sets[1].sum(1)[columns].tolist()

        def score(at: Tensor, length: int) -> Tensor:
            return self.score_pairs_of_length(images[rows[at]], captions[columns[at]], length)

        return score_by_length(score, lengths, rows[:1])

    def score_pairs_of_length(self, images: Encoded, captions: Encoded, length: int) -> Tensor:
        """Scores [pairs] of each image with its caption, where all captions have one length."""
        (v, mask), words = images.sets, captions.sets[0][:, :length]
        assert images.vector is not None and captions.vector is not None
        with torch.autocast(v.device.type, enabled=False):
            products, gram = v @ words.mT, v @ v.mT
        a = _unit_attention(products.unsqueeze(2), mask, gram, self.config.temperature)
        local = self.local((a.mT @ v - words).square())
        whole = self.whole((images.vector - captions.vector).square())
        nodes = normalize(upcast(torch.cat([whole.unsqueeze(1), local], 1)), dim=-1)
        return self.score_nodes(nodes.unsqueeze(1), None).squeeze(1)

    def pool_nodes(self, nodes: Tensor, share: Tensor | None) -> Tensor:
        for step in self.graph[:-1]:
            nodes = step(nodes)
        return self.graph[-1](nodes, 1).squeeze(2)


# The largest share of all pairs whose scores are computed again: with more, the gradient through
# the whole matrix is as cheap.
FEW = 0.25


class _FewPairs(torch.autograd.Function):
    """score_all(*sides) = scores [images, captions], each of which depends on its pair alone, with
    a backward pass through only those pairs that have a gradient.

    Triplets of the hardest negative have at most three such pairs a caption. They are scored again
    by score_pairs(rows, columns, *sides), [pairs]. Where they are more than `FEW` of all pairs, the
    graph of `score_all` is used. `inputs` are the parameters of both functions, `learned` of them,
    and then the sides.
    """

    @staticmethod
    def forward(
        ctx: Any,
        score_all: Callable[..., Tensor],
        score_pairs: Callable[..., Tensor],
        learned: int,
        *inputs: Tensor,
    ) -> Tensor:
        sides = [x.detach().requires_grad_(x.requires_grad) for x in inputs[learned:]]
        ctx.sides, ctx.leaves = sides, [*inputs[:learned], *sides]
        ctx.score_pairs = score_pairs
        device = sides[0].device.type
        ctx.autocast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        with torch.enable_grad():
            ctx.scores = score_all(*sides)
        return ctx.scores.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        pairs = grad.nonzero(as_tuple=True)
        if not len(pairs[0]):  # Every triplet keeps its margin.
            zeros = (torch.zeros_like(x) if x.requires_grad else None for x in ctx.leaves)
            return None, None, None, *zeros
        scores = ctx.scores
        if len(pairs[0]) <= FEW * grad.numel():
            device, dtype, enabled = ctx.autocast
            with torch.enable_grad(), torch.autocast(device, dtype, enabled):
                scores, grad = ctx.score_pairs(*pairs, *ctx.sides), grad[pairs]
        leaves = [x for x in ctx.leaves if x.requires_grad]
        gradients = iter(
            torch.autograd.grad(scores, leaves, grad, retain_graph=True, allow_unused=True)
        )
        return None, None, None, *(next(gradients) if x.requires_grad else None for x in ctx.leaves)
