"""Hosts as their papers write them: a set, a word and a pair at a time, on the small batches of
made.py. Each function gives what `made.outputs` gives of a model: scores, those of its parts, its
own losses."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import BatchNorm1d

from .made import OWNER, PAIRS, REGIONS, images, normed, texts


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def sets() -> list[Tensor]:
    """The regions of each image, [n, FEATURES]."""
    return [x[:n].double() for x, n in zip(images().features, REGIONS, strict=True)]


def read(model: Any) -> list[tuple[Tensor, Tensor]]:
    """Of each caption a state a word, [n, D], and the last one, [D]; directions are averaged."""
    found = []
    for tokens, n in zip(texts(PAIRS).tokens, PAIRS, strict=True):
        states, last = model.read.gru(model.read.embed(tokens[None, :n]))
        found.append((states[0].unflatten(1, (len(last), -1)).mean(1), last[:, 0].mean(0)))
    return found


def table(score: Callable[[Any, Any], Tensor], rows: Any, columns: Any) -> Tensor:
    return torch.stack([torch.stack([score(row, column) for column in columns]) for row in rows])


def cosines(rows: list[Tensor], columns: list[Tensor]) -> Tensor:
    return table(lambda a, b: torch.cosine_similarity(a, b, 0), rows, columns)


def vse(model: Any) -> list[Tensor]:
    return [
        cosines([model.project(unit(v.mean(0))) for v in sets()], [last for _, last in read(model)])
    ]


def general_pooling(layer: Any, parts: Tensor) -> Tensor:
    """Eq. 3-6 for one set [L, D]: places as sines, a GRU both ways, a softmax of sharpness 10,
    sorted values."""
    p = torch.zeros(len(parts), 32).double()
    for k in range(len(parts)):
        for i in range(16):
            p[k, 2 * i] = math.sin(k / 10000 ** (2 * i / 32))
            p[k, 2 * i + 1] = math.cos(k / 10000 ** (2 * i / 32))
    states = layer.gru(p[None])[0][0]
    logits = torch.stack([layer.linear((h[:32] + h[32:]) / 2)[0] for h in states]) / 0.1
    theta = logits.exp() / logits.exp().sum()
    return torch.stack(
        [sum(t * v for t, v in zip(theta, sorted(x, reverse=True), strict=True)) for x in parts.T]
    )


def vse_infinity(model: Any) -> list[Tensor]:
    hidden = normed(model.inner(torch.cat(sets())), model.norm).relu().split(REGIONS)
    regions = [model.project(v) + model.outer(h) for v, h in zip(sets(), hidden, strict=True)]
    rows = [general_pooling(model.pool_regions, v) for v in regions]
    return [cosines(rows, [general_pooling(model.pool_words, states) for states, _ in read(model)])]


def vsrn(model: Any) -> list[Tensor]:
    """Eq. 1-9 of Li et al. 2019, with the norms of the authors' code."""
    vs = [model.project(v) for v in sets()]
    if model.config.first_norm:
        vs = [v / v.pow(2).sum(0).sqrt() for v in vs]
    for step in model.graph:
        seen = []
        for v in vs:
            edges = [[step.theta(a) @ step.phi(b) / len(v) for b in v] for a in v]
            seen += [
                step.out(sum(e * step.g(b) for e, b in zip(row, v, strict=True))) for row in edges
            ]
        added = normed(torch.stack(seen), step.norm).split(REGIONS)
        vs = [v + more for v, more in zip(vs, added, strict=True)]
    vs = [v / v.pow(2).sum(0).sqrt() for v in vs]
    vectors = torch.stack([model.reason(v[None])[1][0, 0] for v in vs])
    vectors = normed(vectors, model.last_norm) if model.config.last_norm else vectors
    said = [
        written(model.captioner, v, t[:n])
        for v, t, n in zip(vs, texts(PAIRS).tokens, PAIRS, strict=True)
    ]
    return [cosines(list(vectors), [last for _, last in read(model)]), sum(said) / len(said)]


def written(c: Any, regions: Tensor, words: Tensor) -> Tensor:
    """-log p of one caption, the padding after it included."""
    total: Any = 0
    seen, state = c.read(c.narrow(regions)[None])
    for t, word in enumerate(words):
        logits = torch.stack(
            [c.weigh((c.of_regions(s) + c.of_state(state[0, 0])).tanh())[0] for s in seen[0]]
        )
        context = (logits.exp() / logits.exp().sum()) @ seen[0]
        state = c.write(torch.cat([c.embed(word), context])[None], state[0])[None]
        expected = words[t + 1] if t + 1 < len(words) else 0
        total = total - c.out(state[0, 0]).log_softmax(0)[expected]
    return total


def self_pooling(
    layer: Any, parts: list[Tensor], norms: bool, unit_mean: bool = False
) -> list[Tensor]:
    """SGRAF, eq. 1-2, of all sets of a batch: norms, which regions alone have, are over all of
    them."""
    maybe = lambda x, norm: normed(x, norm) if norms else x  # noqa: E731
    local = (
        maybe(layer.parts(torch.cat(parts)), layer.part_norm).tanh().split([len(v) for v in parts])
    )
    means = torch.stack([unit(v.mean(0)) if unit_mean else v.mean(0) for v in parts])
    whole = maybe(layer.mean(means), layer.mean_norm).tanh()
    return [
        unit(layer.common(a * m).softmax(0).T @ v)[0]
        for v, a, m in zip(parts, local, whole, strict=True)
    ]


def cvse(model: Any) -> list[Tensor]:
    g, chosen = model.graph, model.concept_words
    image = torch.stack(
        self_pooling(model.pool_regions, [unit(model.project(v)) for v in sets()], True)
    )
    words = [unit(states) for states, _ in read(model)]
    caption = torch.stack(self_pooling(model.pool_words, words, False, unit_mean=True))
    x = g.edges @ (model.read.embed.weight[chosen] @ g.first.weight.T)
    concepts = unit(g.edges @ (torch.where(x > 0, x, 0.2 * x) @ g.second.weight.T))
    owner, tokens = OWNER.tolist(), texts(PAIRS).tokens.tolist()
    spoken = [{t for k, row in enumerate(tokens) if owner[k] == o for t in row} for o in owner]
    labels = (
        torch.tensor([[10.0 * (c in some) for c in chosen.tolist()] for some in spoken])
        .double()
        .softmax(1)
    )
    seen = shares(model.of_images, image, concepts)
    told = 0.35 * labels + 0.65 * shares(model.of_captions, caption, concepts)
    consensus = unit(seen @ concepts), unit(told @ concepts)
    fused = [unit(0.85 * a + 0.15 * b) for a, b in zip((image, caption), consensus, strict=True)]
    divergence = sum(
        t * (t / s).log() for t, s in zip(told.flatten(), seen.flatten(), strict=True)
    ) / len(told)
    return [fused[0] @ fused[1].T, image @ caption.T, consensus[0] @ consensus[1].T, divergence]


def shares(layer: Any, vectors: Tensor, concepts: Tensor) -> Tensor:
    known = normed(layer.of_concepts(concepts), layer.concept_norm).tanh()
    asked = normed(layer.of_vector(vectors), layer.vector_norm).tanh()
    return table(lambda a, k: 10 * layer.common(a * k)[0], asked, known).softmax(1)


def scan(model: Any) -> list[Tensor]:
    regions = [unit(model.project(v)) for v in sets()]
    words = [unit(states) for states, _ in read(model)]
    return [table(lambda v, w: stacked_attention(model.config, v, w), regions, words)]


def stacked_attention(config: Any, regions: Tensor, words: Tensor) -> Tensor:
    """The score of one pair: regions [k, D], words [n, D]; eq. 1-6 (i2t) and 7-10 (t2i) of Lee et
    al. 2018."""
    asking, asked = (words, regions) if config.direction == "t2i" else (regions, words)
    seen = attended(asking, asked, config.temperature, config.first_norm)
    r = torch.cosine_similarity(seen, asking, dim=1)
    lse = (config.sharpness * r).exp().sum().log() / config.sharpness
    return {"lse": lse, "mean": r.sum() / len(r), "max": r.max(), "sum": r.sum()}[config.pooling]


def attended(
    asking: Tensor, asked: Tensor, temperature: float, norm: str = "clipped_l2norm"
) -> Tensor:
    """What each who asks attends to, [asking, D]; `norm` is over those who ask."""
    s = table(lambda v, e: v @ e, asked, asking)
    if norm.startswith("clipped"):
        s = torch.where(s > 0, s, 0.1 * s)
    lengths = {
        "l2norm": s.pow(2).sum(1, True).sqrt(),
        "l1norm": s.abs().sum(1, True),
        "softmax": s.exp().sum(1, True),
    }
    if (kind := norm.removeprefix("clipped_")) in lengths:
        s = (s.exp() if kind == "softmax" else s) / (lengths[kind] + 1e-8 * (kind != "softmax"))
    return (temperature * s).softmax(0).T @ asked


def saf(model: Any) -> list[Tensor]:
    """Eq. 8-9; in training the running statistics move once a caption."""

    def filtered(nodes: Tensor) -> Tensor:
        weights = BatchNorm1d.forward(model.norm, model.gate(nodes).mT).sigmoid()  # (n, 1, N)
        return unit((weights / (weights.sum(2, keepdim=True) + 1e-8) @ nodes).squeeze(1))

    return graf(model, filtered)


def sgr(model: Any) -> list[Tensor]:
    """Eq. 6-7."""

    def reasoned(nodes: Tensor) -> Tensor:
        for step in model.graph:
            edges = (step.query(nodes) @ step.key(nodes).mT).softmax(-1)
            nodes = step.value(edges @ nodes).relu()
        return nodes[:, 0]

    return graf(model, reasoned)


def graf(model: Any, one_vector: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Eq. 3-5, a caption after the other: nodes [n, 1 + L, K] of it and each image are made one
    vector."""
    regions = [unit(model.project(v)) for v in sets()]
    words = [unit(states) for states, _ in read(model)]
    pictures, columns = torch.stack(self_pooling(model.pool_regions, regions, True)), []
    for some, whole in zip(words, self_pooling(model.pool_words, words, False), strict=True):
        nodes = []
        for v, picture in zip(regions, pictures, strict=True):
            context = unit(attended(some, v, model.config.temperature))
            local = unit(model.local((context - some) ** 2))
            nodes.append(torch.cat([unit(model.whole((picture - whole) ** 2))[None], local]))
        columns.append(model.out(one_vector(torch.stack(nodes))).sigmoid())
    return [torch.cat(columns, 1)]
