"""TERN and TERAN on a BERT of two tiny layers; TERAN's poolings against loops over pairs, forward
and backward."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from capgrade.schemas.errors import InputError
from capgrade.trainer.data.pairs import pad_texts
from capgrade.trainer.data.text import ModelTokens
from capgrade.trainer.models import alignment, encoders
from capgrade.trainer.models.alignment import Pooling, align, alignment_matrix
from capgrade.trainer.models.base import CaptionTokens, Encoded, Images
from capgrade.trainer.models.tern import TERN
from capgrade.trainer.models.text_encoder import load_tokenizer, pieces_of

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
    assert not torch.allclose(
        vector, model.encode_images(replace(given, boxes=given.boxes * 0)).vector, atol=1e-3
    )


def test_tern_gives_unit_vectors_and_teran_parts(bert):
    one, other = tern(bert), teran(bert)
    vectors = one.encode_images(images()).vector, one.encode_captions(texts(bert)).vector
    assert all(torch.allclose(v.norm(dim=1), torch.ones(4)) for v in vectors)
    regions, words = other.encode_images(images()), other.encode_captions(texts(bert))
    assert regions.vector is None and torch.equal(regions.mask, images().mask)
    assert torch.allclose(words.parts.norm(dim=2), torch.ones(words.mask.shape))


def test_words_that_take_part(bert):
    """[CLS] and [SEP] never; the authors' slice takes the last piece too; stop words as whole words
    only."""
    given = texts(bert)
    lengths = given.mask.sum(1)
    assert teran(bert).encode_captions(given).mask.sum(1).tolist() == (lengths - 2).tolist()
    assert (
        teran(bert, padding="authors").encode_captions(given).mask.sum(1).tolist()
        == (lengths - 3).tolist()
    )
    mask = teran(bert, stop_words="english").encode_captions(given).mask
    pieced = [
        load_tokenizer(bert)[0].convert_ids_to_tokens(row.ids) for row in pieces_of(TEXTS, bert)
    ]
    pieces = [
        [p for p, m in zip(row, keep, strict=False) if m]
        for row, keep in zip(pieced, mask, strict=True)
    ]
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


def test_teran_loads_tern(bert):
    teran(bert, stop_words="english").load_state_dict(tern(bert).state_dict())
    assert not any(
        name.startswith("text_joint") for name in tern(bert, shared_joint=True).state_dict()
    )


def test_bad_settings(bert):
    with pytest.raises(InputError, match="5 heads do not divide"):
        tern(bert, heads=5)
    with pytest.raises(InputError, match="stop words"):
        teran(bert, stop_words="nowhere.txt")


def parts_of(counts: list[int], length: int, seed: int, holes: bool = False) -> Encoded:
    """Random unit parts, `counts` of `length` taking part, at random places if `holes`."""
    generator = torch.Generator().manual_seed(seed)
    parts = normalize(torch.randn(len(counts), length, 6, generator=generator), dim=-1)
    mask = torch.arange(length) < torch.tensor(counts)[:, None]
    if holes:
        mask = torch.stack([row[torch.randperm(length, generator=generator)] for row in mask])
    return Encoded(None, parts, mask)


def slow(
    images: Encoded, captions: Encoded, pooling: str, padding: str, evaluation: bool
) -> Tensor:
    """One pair after the other; the authors' padding as cells of 0."""
    rows = [part[mask] for part, mask in zip(images.parts, images.mask, strict=True)]
    columns = [part[mask] for part, mask in zip(captions.parts, captions.mask, strict=True)]
    R, W = (36, 85) if evaluation else (max(map(len, rows)), max(map(len, columns)))
    scores = torch.zeros(len(rows), len(columns))
    for i, regions in enumerate(rows):
        for c, words in enumerate(columns):
            if len(regions) and len(words):
                scores[i, c] = one(
                    regions, words, pooling, (R, W) if padding == "authors" else None
                )
    return scores


def one(regions: Tensor, words: Tensor, pooling: str, padded: tuple[int, int] | None) -> Tensor:
    A = regions @ words.T
    if pooling == "scan":
        seen = normalize(A.relu(), dim=0).softmax(1) @ words
        return torch.cosine_similarity(regions, seen, dim=1).sum()
    if padded:
        A = torch.nn.functional.pad(A, (0, padded[1] - A.shape[1], 0, padded[0] - A.shape[0]))
    by_word, by_region = A.amax(0).sum(), A.amax(1).sum()
    values = {
        "MrSw": by_word,
        "MwSr": by_region,
        "symm": by_word + by_region,
        "MrAVGw": by_word / len(words),
    }
    return values[pooling]


@pytest.mark.parametrize("pooling", get_args(Pooling))
@pytest.mark.parametrize("padding", ["ignored", "authors"])
@pytest.mark.parametrize("evaluation", [False, True])
def test_equals_loop_over_pairs(monkeypatch, pooling, padding, evaluation):
    """In values and in gradients."""
    monkeypatch.setattr(alignment, "EVAL_IMAGES", 3)
    monkeypatch.setitem(encoders.TILE_NODES, "cpu", 20)  # several blocks and tiles
    images = parts_of([4, 0, 7, 1, 36 if evaluation else 7], 40 if evaluation else 9, 0)
    captions = parts_of([3, 5, 1, 0, 8, 2, 5], 9, 1, holes=True)
    weights, found = torch.randn(5, 7, generator=torch.Generator().manual_seed(4)), []
    weights[:, 3] = 0  # in the authors' code a caption of no words divides by 0
    for score in (align, slow):
        leaves = [side.parts.clone().requires_grad_() for side in (images, captions)]
        sides = (
            Encoded(None, normalize(x, dim=-1), side.mask)
            for x, side in zip(leaves, (images, captions), strict=True)
        )
        scores = score(*sides, pooling, padding, evaluation)
        (scores * weights).sum().backward()
        found.append([scores.detach() * (weights != 0), *(leaf.grad for leaf in leaves)])
    assert found[0][0].dtype == torch.float32
    tolerances = (1e-5, *(2 * [1e-5 if evaluation else 1e-6]))
    for mine, theirs, tolerance in zip(*found, tolerances, strict=True):
        assert (mine - theirs).abs().max() < tolerance, (mine - theirs).abs().max()


def test_matrix_of_one_pair():
    images, captions = parts_of([2], 3, 15), parts_of([2], 4, 16, holes=True)
    A = alignment_matrix(images, captions)
    assert A.shape == (3, 4) and A.isnan().sum() == 12 - 4
    assert torch.allclose(
        A[:2].nan_to_num(-9).amax(0).clamp(min=-1)[captions.mask[0]].sum(), align(images, captions)
    )
