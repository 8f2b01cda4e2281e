"""SAF and SGR (Diao et al. 2021, "Similarity Reasoning and Filtration"): a vector of similarity for
every word."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

from capgrade.schemas.params import Positive
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
    scored_by_length,
    unit_regions,
)
from capgrade.trainer.models.scan import attention
from capgrade.trainer.models.text_encoder import TextWords

# of a block [images, words, D]: 8 MiB, a quarter of a server's cache
STEP_NUMBERS = {
    "cpu": 2**21,
    "cuda": 2**28,
}


@dataclass(frozen=True)
class SgrafConfig(GruConfig):
    similarity: Positive = 256
    temperature: float = 9.0  # lambda of the attention over regions
    steps: Positive = 3  # of SGR
    dropout: Fraction = 0.4
    region_norm: RegionNorm = "features"  # "authors": by place, exactly 36 regions
    # None: a GRU of both directions; else a pretrained BERT, whose word pieces are words
    text_model: str | None = None
    text_layers: int | None = None
    freeze_text: bool = False


def unit_attention(products: Tensor, mask: Tensor, gram: Tensor, temperature: float) -> Tensor:
    """SCAN's weights A [n, R, c L], such that A' V is a unit vector: no [n, words, D] is read for a
    norm."""
    a, square = attention(products, mask, gram, temperature)
    return a * square.unsqueeze(1).clamp(min=1e-16).rsqrt()


def squared_difference(a: Tensor, v: Tensor, words: Tensor, layer: nn.Linear) -> Tensor:
    """l2norm(layer((A' V - w)^2)), float32 [n, M, K], of A [n, R, M], V [n, R, D], w [M, D].

    The block [n, M, D] between lives a few images at a time and is made again in the backward pass:
    at 128 x 128 pairs, 12 words and D = 1024 it is 0.8 GB, and plain autograd keeps it several
    times.
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

    Q x (K x)' = (Q x) K x', so one product with K' Q gives the edges. A bias of K adds the same to
    a whole row of the softmax: SGRAF's code has it, it changes nothing and is left out.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (
            linear(size, size),
            linear(size, size, bias=False),
            linear(size, size),
        )

    def forward(self, nodes: Tensor, asking: int | None = None) -> Tensor:
        """The first `asking` nodes after the step; None: all."""
        key = self.key.weight  # (Q x + q)' (K y) = (x' Q' K + q' K) y
        asked = functional.linear(
            nodes[:, :, :asking], key.T @ self.query.weight, self.query.bias @ key
        )
        edges = upcast(asked @ nodes.mT).softmax(-1).to(asked.dtype)
        return self.value(edges @ nodes).relu()


class CaptionNorm(nn.BatchNorm1d):
    """BatchNorm of one channel whose batch is one caption's values against all images, as a loop
    over captions has it.

    `share` is how much each caption's statistics weigh in the running ones: m (1 - m)^(captions
    after it).
    """

    def forward(self, input: Tensor, share: Tensor | None = None) -> Tensor:
        """Values [n, c, N] of c captions."""
        mean, variance = self.running_mean, self.running_var
        assert mean is not None and variance is not None  # BatchNorm1d tracks them by default
        if self.training:
            assert share is not None
            now, spread = mean, variance
            variance, mean = torch.var_mean(input, (0, 2), correction=0)
            count = input.shape[0] * input.shape[2]
            now += (share * mean.detach()).sum()
            spread += (share * variance.detach()).sum() * (count / max(1, count - 1))
            mean, variance = mean.unsqueeze(1), variance.unsqueeze(1)
        return (input - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias

    def shares(self, captions: int, device: torch.device) -> Tensor:
        """Each caption's share; what was known before these captions decays."""
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
    """What SAF and SGR share: nodes s_0 (global) and s_l (word l), then a score of the nodes.

    s_l = l2norm(W (c_l - w_l)^2), c_l the unit vector of the regions word l attends to; s_0 the
    same of the two pooled vectors; score = sigmoid(u . (nodes made one vector)), in (0, 1). Source:
    eq. 3-5 and SGRAF's model.py.
    """

    def __init__(self, config: SgrafConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.project = linear(feature_dim, config.embed)
        if config.text_model is None:
            self.read: nn.Module = WordGru(
                vocabulary_size, config.word, config.embed, both_ways=True, dropout=config.dropout
            )
        else:
            self.read = TextWords(
                config.text_model, config.embed, config.text_layers, config.freeze_text
            )
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

    def one_vector(self, nodes: Tensor, share: Tensor | None) -> Tensor:
        """Nodes [n, c, N, K] of c captions with n images as [n, c, K]."""
        raise NotImplementedError

    def shares(self, captions: Encoded) -> Tensor | None:
        """What a caption counts in running statistics, [captions], where a head keeps some and is
        trained."""
        return None

    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        """In training every caption meets all images at once, since SAF's statistics are over
        them."""
        shares = self.shares(captions)
        size = len(images) if self.training else EVAL_IMAGES
        return torch.cat([self.rows(some, captions, shares) for some in images.split(size)])

    def rows(self, images: Encoded, captions: Encoded, shares: Tensor | None) -> Tensor:
        (regions, _), (words, there), whole = images.sets, captions.sets, captions.vector
        assert whole is not None
        with torch.autocast(regions.device.type, enabled=False):
            gram = regions @ regions.mT

        def score(at: Tensor, length: int) -> Tensor:
            return self.tile(
                images, gram, words[at, :length], whole[at], None if shares is None else shares[at]
            )

        return scored_by_length(score, there.sum(1).tolist(), regions)

    def tile(
        self, images: Encoded, gram: Tensor, words: Tensor, whole: Tensor, share: Tensor | None
    ) -> Tensor:
        """Scores [n, c] of c captions of one length, words [c, L, D], whole [c, D]."""
        (regions, mask), vector = images.sets, images.vector
        assert vector is not None
        products = upcast(regions.flatten(0, 1) @ words.flatten(0, 1).T)  # (n R, c L)
        products = products.unflatten(0, mask.shape).unflatten(2, words.shape[:2])
        a = unit_attention(products, mask, gram, self.config.temperature)
        local = squared_difference(a, regions, words.flatten(0, 1), self.local).unflatten(
            1, words.shape[:2]
        )
        one = torch.ones_like(vector[:, :1, None])
        s0 = squared_difference(
            one.expand(-1, 1, len(whole)), vector.unsqueeze(1), whole, self.whole
        )
        return self.score(torch.cat([s0.unsqueeze(2), local], 2), share)

    def score(self, nodes: Tensor, share: Tensor | None) -> Tensor:
        """Scores [n, c] of nodes [n, c, N, K]."""
        one_vector = upcast(self.one_vector(nodes, share))
        with torch.autocast(
            nodes.device.type, enabled=False
        ):  # bfloat16 would tie what it is to rank
            return self.out(one_vector).squeeze(2).sigmoid()


class Saf(Sgraf):
    """Similarity attention filtration (eq. 8-9): l2norm(sum_l b_l s_l), b = sigmoid(BN(v . s_l)),
    summing to 1."""

    def __init__(self, config: SgrafConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_dim, vocabulary_size)
        self.gate, self.norm = linear(config.similarity, 1), CaptionNorm(1)

    def shares(self, captions: Encoded) -> Tensor | None:
        return self.norm.shares(len(captions), captions.sets[0].device) if self.training else None

    def one_vector(self, nodes: Tensor, share: Tensor | None) -> Tensor:
        weights = self.norm(upcast(self.gate(nodes).squeeze(3)), share).sigmoid()
        weights = weights / (weights.sum(2, keepdim=True) + 1e-8)
        return normalize(upcast((weights.unsqueeze(2) @ nodes).squeeze(2)), dim=-1)


class Sgr(Sgraf):
    """Similarity graph reasoning (eq. 6-7): every node sees all others, three steps, then the
    global node alone."""

    def __init__(self, config: SgrafConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_dim, vocabulary_size)
        self.graph = nn.ModuleList(Reasoning(config.similarity) for _ in range(config.steps))

    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        """A pair's score depends on that pair alone, so its gradient goes through the pairs that
        have one."""
        if not torch.is_grad_enabled():
            return super().scores(images, captions)
        sides = *vars(images).values(), *vars(captions).values()
        every, some = super().scores, self.some_pairs
        learned = [
            p for part in (self.local, self.whole, self.graph, self.out) for p in part.parameters()
        ]
        of_all = lambda *x: every(Encoded(*x[:3]), Encoded(*x[3:]))  # noqa: E731
        of_some = lambda rows, columns, *x: some(rows, columns, Encoded(*x[:3]), Encoded(*x[3:]))  # noqa: E731
        return FewPairs.apply(of_all, of_some, len(learned), *learned, *sides)

    def some_pairs(
        self, rows: Tensor, columns: Tensor, images: Encoded, captions: Encoded
    ) -> Tensor:
        """Scores [pairs] of the pairs of image rows[p] and caption columns[p], in tiles of one
        length."""
        lengths = captions.sets[1].sum(1)[columns].tolist()
        score = lambda at, length: self.pair_tile(images[rows[at]], captions[columns[at]], length)  # noqa: E731
        return scored_by_length(score, lengths, rows[:1])

    def pair_tile(self, images: Encoded, captions: Encoded, length: int) -> Tensor:
        """The same of captions of one length, plainly written."""
        (v, mask), words = images.sets, captions.sets[0][:, :length]
        assert images.vector is not None and captions.vector is not None
        with torch.autocast(v.device.type, enabled=False):
            products, gram = v @ words.mT, v @ v.mT
        a = unit_attention(products.unsqueeze(2), mask, gram, self.config.temperature)
        local = self.local((a.mT @ v - words).square())
        whole = self.whole((images.vector - captions.vector).square())
        nodes = normalize(upcast(torch.cat([whole.unsqueeze(1), local], 1)), dim=-1)
        return self.score(nodes.unsqueeze(1), None).squeeze(1)

    def one_vector(self, nodes: Tensor, share: Tensor | None) -> Tensor:
        for step in self.graph[:-1]:
            nodes = step(nodes)
        return self.graph[-1](nodes, 1).squeeze(2)


FEW = 0.25  # of all pairs: with more, the graph of the whole matrix is as cheap


class FewPairs(torch.autograd.Function):
    """Scores [images, captions] = every(*inputs), where one pair's score depends on that pair
    alone.

    Triplets of the hardest negative give a gradient to three pairs per caption at most. Those are
    scored again by some(images, captions, *inputs), [pairs] of pairs as two lists of numbers, and
    only they are walked back through. Where more than `FEW` have a gradient the graph that `every`
    left is taken. `inputs` are all that learns: what `learned` holds is used by both functions as
    it is.
    """

    @staticmethod
    def forward(
        ctx: Any,
        every: Callable[..., Tensor],
        some: Callable[..., Tensor],
        learned: int,
        *inputs: Tensor,
    ) -> Tensor:
        ours = [x.detach().requires_grad_(x.requires_grad) for x in inputs[learned:]]
        ctx.inputs, ctx.leaves, ctx.some = ours, [*inputs[:learned], *ours], some
        device = ours[0].device.type
        ctx.autocast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        with torch.enable_grad():
            ctx.scores = every(*ours)
        return ctx.scores.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        pairs = grad.nonzero(as_tuple=True)
        if not len(pairs[0]):  # no triplet is too near
            return (
                None,
                None,
                None,
                *(torch.zeros_like(x) if x.requires_grad else None for x in ctx.leaves),
            )
        scores = ctx.scores
        if len(pairs[0]) <= FEW * grad.numel():
            device, dtype, enabled = ctx.autocast
            with torch.enable_grad(), torch.autocast(device, dtype, enabled):
                scores, grad = ctx.some(*pairs, *ctx.inputs), grad[pairs]
        asked = [x for x in ctx.leaves if x.requires_grad]
        gradients = iter(
            torch.autograd.grad(scores, asked, grad, retain_graph=True, allow_unused=True)
        )
        return None, None, None, *(next(gradients) if x.requires_grad else None for x in ctx.leaves)
