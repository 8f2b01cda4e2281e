"""Encoders as their authors write them, with the weights of our models: peers of `capgrade bench train`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, nll_loss, normalize, pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capgrade.trainer.models.base import Images, Texts
from capgrade.trainer.models.cvse import SHARPNESS, Consensus, Cvse
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
    state, found = last[0], []
    together = torch.cat([c.of_regions.weight, c.of_state.weight], 1)
    for word in c.embed(tokens).unbind(1)[:steps]:
        both = torch.cat([seen, state.unsqueeze(1).expand_as(seen)], 2)
        weights = c.weigh(torch.tanh(both @ together.T + c.of_regions.bias)).squeeze(2).softmax(1)
        state = c.write(torch.cat([word, (weights.unsqueeze(1) @ seen).squeeze(1)], 1), state)
        found.append(log_softmax(c.out(state), 1))
    losses = nll_loss(torch.stack(found, 1).flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
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
