"""TERN and TERAN on a BERT of two tiny layers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from capgrade.schemas.errors import InputError
from capgrade.trainer.data.pairs import pad_texts
from capgrade.trainer.data.text import ModelTokens
from capgrade.trainer.models.base import CaptionTokens, Images
from capgrade.trainer.models.tern import TERN
from capgrade.trainer.models.text_encoder import load_tokenizer, word_pieces

from . import made

TEXTS = ["a red dog runs .", "a dog and a cat", "the", "the playing cat plays on a red onion"]


def images(counts=(3, 5, 2, 4)) -> Images:
    """Those of other models' tests, with boxes."""
    given = made.images(counts, 5)
    boxes = torch.rand(4, 5, 5, generator=torch.Generator().manual_seed(0))
    return replace(given, boxes=boxes * given.mask[..., None])


def texts(model: str) -> CaptionTokens:
    return pad_texts(ModelTokens(model).encode_texts(TEXTS))


def tern(bert: str, name: str = "tern", **options) -> TERN:
    return made.made(name, **{**made.TERN, "text_model": bert, **options}).float().eval()


def teran(bert: str, **options) -> TERN:
    return tern(bert, "teran", **options)


def test_boxes_count_and_the_order_of_regions_does_not(bert):
    model, given = tern(bert), images(counts=(5, 5, 5, 5))
    vector = model.encode_images(given).vector
    turned = Images(given.features.flip(1), given.boxes.flip(1), given.mask)
    assert torch.allclose(vector, model.encode_images(turned).vector, atol=1e-5)
    assert not torch.allclose(vector, model.encode_images(replace(given, boxes=given.boxes * 0)).vector, atol=1e-3)


def test_tern_gives_unit_vectors_and_teran_parts(bert):
    one, other = tern(bert), teran(bert)
    vectors = one.encode_images(images()).vector, one.encode_captions(texts(bert)).vector
    assert all(torch.allclose(v.norm(dim=1), torch.ones(4)) for v in vectors)
    regions, words = other.encode_images(images()), other.encode_captions(texts(bert))
    assert regions.vector is None and torch.equal(regions.mask, images().mask)
    assert torch.allclose(words.parts.norm(dim=2), torch.ones(words.mask.shape))


def test_words_that_take_part(bert):
    """[CLS] and [SEP] never; the authors' slice takes the last piece too; stop words as whole words only."""
    given = texts(bert)
    lengths = given.mask.sum(1)
    assert teran(bert).encode_captions(given).mask.sum(1).tolist() == (lengths - 2).tolist()
    assert teran(bert, padding="authors").encode_captions(given).mask.sum(1).tolist() == (lengths - 3).tolist()
    mask = teran(bert, stop_words="english").encode_captions(given).mask
    pieced = [load_tokenizer(bert)[0].convert_ids_to_tokens(row.ids) for row in word_pieces(TEXTS, bert)]
    pieces = [[p for p, m in zip(row, keep, strict=False) if m] for row, keep in zip(pieced, mask, strict=True)]
    assert pieces == [
        ["red", "dog", "run", "##s", "."],
        ["dog", "cat"],
        ["the"],  # nothing but stop words: they stay
        ["play", "##ing", "cat", "play", "##s", "red", "on", "##ion"],
    ]


def test_frozen_text_encoder(bert):
    model = teran(bert, freeze_text=True).train()
    assert not model.text_encoder.encoder.training
    model.scores(model.encode_images(images()), model.encode_captions(texts(bert))).sum().backward()
    assert all(p.grad is None for p in model.text_encoder.parameters())
    assert model.text_projection.weight.grad is not None
    assert len(model.parameter_groups(1e-3, 1e-5)) == 1


def test_teran_loads_tern(bert):
    teran(bert, stop_words="english").load_state_dict(tern(bert).state_dict())
    assert not any(name.startswith("text_joint") for name in tern(bert, shared_joint=True).state_dict())


def test_bad_settings(bert):
    with pytest.raises(InputError, match="5 heads do not divide"):
        tern(bert, heads=5)
    with pytest.raises(InputError, match="stop words"):
        teran(bert, stop_words="nowhere.txt")
