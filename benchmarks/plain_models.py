"""Models as their authors write them, with the weights of ours: peers of `capgrade bench train`.

SCAN, SAF and SGR are a loop over the captions of a batch, in plain autograd, the products in the order of the papers'
equations. Encoders pool and step as the authors' code does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import BatchNorm1d
from torch.nn.functional import cosine_similarity, leaky_relu, log_softmax, nll_loss, normalize, pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capgrade.trainer.models.base import Encoded, Images, Texts
from capgrade.trainer.models.cvse import SHARPNESS, Consensus, Cvse
from capgrade.trainer.models.scan import Scan
from capgrade.trainer.models.sgraf import Reasoning, Saf, Sgr, Sgraf
from capgrade.trainer.models.vse_infinity import GeneralPooling, VseInfinity, places
from capgrade.trainer.models.vsrn import Vsrn

AUTHORS_STEPS = 59  # of VSRN's captioner, however long the captions are


def vse_infinity_plain(model: VseInfinity, images: Images, words: Texts) -> tuple[Tensor, float]:
    """Scores [images, captions]; the weights of the pooling are made for every set, values sorted as they lie."""
    regions = pooled(model.pool_regions, model.regions(images.features, images.mask), images.mask)
    captions = pooled(model.pool_words, model.states(words), words.mask)
    return normalize(regions, dim=1) @ normalize(captions, dim=1).T, 0.0


def pooled(layer: GeneralPooling, parts: Tensor, mask: Tensor) -> Tensor:
    lengths = mask.sum(1)
    read = places(mask.shape[1], layer.position).to(parts).repeat(len(parts), 1, 1)
    packed = pack_padded_sequence(read, lengths.cpu(), batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(layer.gru(packed)[0], batch_first=True, total_length=mask.shape[1])
    half = layer.gru.hidden_size
    logits = layer.linear((states[:, :, :half] + states[:, :, half:]) / 2).masked_fill(~mask.unsqueeze(2), -10000)
    ordered = parts.masked_fill(~mask.unsqueeze(2), -10000).sort(dim=1, descending=True)[0]
    return (ordered.masked_fill(~mask.unsqueeze(2), 0) * torch.softmax(logits / 0.1, 1)).sum(1)


def vsrn_plain(model: Vsrn, images: Images, words: Texts) -> tuple[Tensor, Tensor]:
    """Scores [images, captions] and the captioner's loss: 59 steps, attention and words of each step by themselves."""
    encoded, captions = model(images, words)
    regions, c = encoded.parts, model.captioner
    assert regions is not None and encoded.mask is not None
    steps = max(AUTHORS_STEPS, words.tokens.shape[1])
    tokens = pad(words.tokens, (0, steps + 1 - words.tokens.shape[1]))
    seen, last = c.read(c.narrow(regions))
    state, logits = last[0], []
    together = torch.cat([c.of_regions.weight, c.of_state.weight], 1)
    for word in c.embed(tokens).unbind(1)[:steps]:
        both = torch.cat([seen, state.unsqueeze(1).expand_as(seen)], 2)
        weights = c.weigh(torch.tanh(both @ together.T + c.of_regions.bias)).squeeze(2).softmax(1)
        state = c.write(torch.cat([word, (weights.unsqueeze(1) @ seen).squeeze(1)], 1), state)
        logits.append(log_softmax(c.out(state), 1))
    losses = nll_loss(torch.stack(logits, 1).flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    counted = pad(words.mask, (0, steps - words.mask.shape[1])).flatten()
    return model.scores(encoded, captions), (losses * counted).sum() / len(regions)


def cvse_plain(model: Cvse, images: Images, words: Texts) -> tuple[Tensor, Tensor]:
    """Scores [images, captions] and the divergence: the graph once a side, every vector times every concept."""
    regions = normalize(model.project(images.features), dim=-1)
    image, caption = model.pool_regions(regions, images.mask), normalize(model.read(words)[0], dim=-1)
    caption = model.pool_words(caption, words.mask)
    of_image, concepts = model.concepts(), model.concepts()
    seen, told = shares(model.of_images, image, of_image), shares(model.of_captions, caption, concepts)
    known = (SHARPNESS * model.labels(words).float()).softmax(1)
    told = model.config.labels * known + (1 - model.config.labels) * told
    sides = []
    for instance, weights, basis in ((image, seen, of_image), (caption, told, concepts)):
        consensus = normalize((weights.unsqueeze(2) * basis).sum(1), dim=1)
        sides.append(normalize(model.config.fusion * instance + (1 - model.config.fusion) * consensus, dim=1))
    divergence = (told * (told.log() - seen.log())).sum() / len(told)
    return sides[0] @ sides[1].T, divergence


def shares(layer: Consensus, x: Tensor, concepts: Tensor) -> Tensor:
    known = layer.concept_norm(layer.of_concepts(concepts)).tanh()
    asked = layer.vector_norm(layer.of_vector(x)).tanh().unsqueeze(1).repeat(1, len(concepts), 1)
    return (SHARPNESS * layer.common(known * asked).squeeze(2)).softmax(1)


def saf_loop(model: Saf, images: Encoded, captions: Encoded) -> Tensor:
    """Scores [images, captions]; in training the running statistics move once a caption, as they do in `model`."""

    def filtered(nodes: Tensor) -> Tensor:
        logits = BatchNorm1d.forward(model.norm, model.gate(nodes).transpose(1, 2))  # (n, 1, N)
        weights = logits.sigmoid()
        weights = weights / (weights.sum(2, keepdim=True) + 1e-8)
        return normalize((weights @ nodes).squeeze(1), dim=-1)

    return looped(model, images, captions, filtered)


def sgr_loop(model: Sgr, images: Encoded, captions: Encoded) -> Tensor:
    """Scores [images, captions]."""

    def reasoned(nodes: Tensor) -> Tensor:
        for step in model.graph:
            assert isinstance(step, Reasoning)
            edges = (step.query(nodes) @ step.key(nodes).transpose(1, 2)).softmax(-1)
            nodes = step.value(edges @ nodes).relu()
        return nodes[:, 0]

    return looped(model, images, captions, reasoned)


def looped(model: Sgraf, images: Encoded, captions: Encoded, one_vector: Callable[[Tensor], Tensor]) -> Tensor:
    regions, mask, columns = images.parts, images.mask, []
    assert regions is not None and mask is not None and images.vector is not None
    assert captions.parts is not None and captions.mask is not None and captions.vector is not None
    for words, length, whole in zip(captions.parts, captions.mask.sum(1).tolist(), captions.vector, strict=True):
        words = words[:length]
        logits = leaky_relu(regions @ words.T, 0.1)  # (n, R, L)
        logits = logits / (logits.norm(dim=2, keepdim=True) + 1e-8)
        logits = (model.config.temperature * logits).masked_fill(~mask.unsqueeze(2), -torch.inf)
        context = normalize(logits.softmax(1).transpose(1, 2) @ regions, dim=-1)  # (n, L, D)
        local = normalize(model.local((context - words) ** 2), dim=-1)
        pooled = normalize(model.whole((images.vector - whole) ** 2), dim=-1)
        nodes = torch.cat([pooled.unsqueeze(1), local], 1)  # (n, 1 + L, K)
        columns.append(model.out(one_vector(nodes)).sigmoid())
    return torch.cat(columns, 1)


def scan_loop(model: Scan, images: Encoded, captions: Encoded) -> Tensor:
    """Scores [images, captions] of SCAN's own first norm, clipped_l2norm, and of all regions of an image."""
    regions, columns, config = images.parts, [], model.config
    assert regions is not None and captions.parts is not None and captions.mask is not None
    for words, length in zip(captions.parts, captions.mask.sum(1).tolist(), strict=True):
        ours = words[:length].expand(len(regions), -1, -1)
        queries, keys = (ours, regions) if config.direction == "t2i" else (regions, ours)
        logits = leaky_relu(keys @ queries.transpose(1, 2), 0.1)  # (n, keys, queries)
        logits = logits / (logits.norm(dim=2, keepdim=True) + 1e-8)
        context = (config.temperature * logits).softmax(1).transpose(1, 2) @ keys
        cosines = cosine_similarity(queries, context, dim=2)
        pooled: dict[str, Any] = {"mean": cosines.mean, "sum": cosines.sum, "max": cosines.amax}
        if config.pooling == "lse":
            columns.append((config.sharpness * cosines).logsumexp(1) / config.sharpness)
        else:
            columns.append(pooled[config.pooling](1))
    return torch.stack(columns, 1)
