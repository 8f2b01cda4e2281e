"""What holds of every model: padding and tiles change nothing, sets of nothing are finite, bfloat16 is near."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from capgrade.schemas.errors import InputError
from capgrade.trainer.models import configure, encoders, scan, sgraf
from tests.trainer.models.made import FEATURES, VOCABULARY, close, encoded, gradients, made, outputs, texts

TERN = {"embed_dim": 8, "image_layers": 2, "joint_layers": 1, "heads": 2, "feedforward": 16, "dropout": 0.0}
GRAF = {"embed": 16, "word": 5, "similarity": 8, "dropout": 0.0}
VSRN = {"embed": 6, "word": 5, "layers": 2, "caption_hidden": 7, "caption_word": 3, "caption_dropout": 0.0}
CLIP = {"image": 2, "patch": 1, "image_width": 16, "image_layers": 1, "image_heads": 2, "positions": 16}
CLIP |= {"text_width": 16, "text_layers": 1, "text_heads": 2}  # pictures of 2 x 2 pixels: a region of 12 numbers
HOSTS: dict[str, tuple[str, dict[str, Any]]] = {
    "vse": ("vse", {"embed": 8, "word": 5}),
    "vse_infinity": ("vse_infinity", {"embed": 8, "word": 5, "drop": 0.0}),
    "vse_infinity, BERT": ("vse_infinity", {"embed": 8, "drop": 0.0, "text_model": "bert"}),
    "vsrn": ("vsrn", VSRN),
    "vsrn of Flickr30K": ("vsrn", {**VSRN, "first_norm": False, "last_norm": True}),
    "cvse": ("cvse", {"embed": 6, "word": 5, "concepts": 4, "dropout": 0.0}),
    **{
        f"scan {direction} {pooling}": ("scan", {"embed": 16, "word": 5, "direction": direction, "pooling": pooling})
        for direction in ("t2i", "i2t")
        for pooling in ("lse", "mean", "max", "sum")
    },
    "saf": ("saf", GRAF),
    "saf, BERT": ("saf", {**GRAF, "text_model": "bert"}),
    "sgr": ("sgr", GRAF),
    "single_stream": ("single_stream", {"embed": 8, "side": 4, "cell": 2, "width": 8}),
    **{name: (name, CLIP) for name in ("clip", "siglip")},
    "tern": ("tern", {**TERN, "text_model": "bert"}),
    "teran": ("teran", {**TERN, "text_model": "bert"}),
    "teran, scan": ("teran", {**TERN, "text_model": "bert", "pooling": "scan", "shared_joint": True}),
}  # fmt: skip
TILED = [name for name in HOSTS if name.startswith(("scan", "saf", "sgr"))]


@pytest.fixture
def host(request, bert: str):
    """The model of a name; dropout of its BERT is off."""
    name, options = HOSTS[request.param]
    given = {**options, "text_model": bert} if "text_model" in options else options
    model = made(name, **given)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def all_hosts(names=HOSTS):
    return pytest.mark.parametrize("host", names, indirect=True)


@all_hosts()
def test_padding_changes_nothing_in_training(host) -> None:
    """And every weight has a gradient."""
    state = {name: value.clone() for name, value in host.state_dict().items()}
    plain = outputs(host)
    expected, buffers = gradients(host, *plain), {name: x.clone() for name, x in host.named_buffers()}
    host.load_state_dict(state)
    padded = outputs(host, 9, 12, garbage=0.0 if hasattr(host, "text_joint") else 1e3)
    found = gradients(host, *padded)
    tolerance = 2e-5 if hasattr(host, "text_encoder") else 1e-6  # TERN's vectors are float32
    for ours, wanted in zip(padded, plain, strict=True):
        close(ours, wanted, tolerance)
    assert found.keys() == expected.keys() == {name for name, p in host.named_parameters() if p.requires_grad}
    for name, value in expected.items():
        close(found[name], value, tolerance * max(1.0, float(value.abs().max())))
    for name, buffer in host.named_buffers():
        torch.testing.assert_close(buffer, buffers[name], rtol=0, atol=1e-6)


@all_hosts([name for name in HOSTS if not name.startswith(("tern", "teran", "clip", "siglip")) and "BERT" not in name])
def test_sets_of_nothing_are_finite(host) -> None:
    found = outputs(host, sizes=((0, 3, 2), (0, 3, 4)))
    assert all(x.isfinite().all() for x in found)
    assert all(gradient.isfinite().all() for gradient in gradients(host, *found).values())


def test_an_empty_caption_has_no_words_and_a_finite_vector() -> None:
    states, last = encoders.WordGru(VOCABULARY, 5, 8, both_ways=True)(texts((0, 2)))
    assert not states[0].any() and last.isfinite().all()


@all_hosts()
def test_bfloat16_autocast(host) -> None:
    host = host.float()
    expected = outputs(host)
    with torch.autocast("cpu", torch.bfloat16):
        found = outputs(host)
    assert found[0].dtype == torch.float32
    assert not torch.equal(found[0], found[0].bfloat16().float()), "in bfloat16 the hardest negatives are tied"
    close(found[0], expected[0], 0.1)
    graded = gradients(host, *found)
    assert graded and all(gradient.isfinite().all() for gradient in graded.values())


@all_hosts(TILED)
def test_scores_of_a_gallery_do_not_depend_on_tiles(host, monkeypatch) -> None:
    whole = host.eval().scores(*encoded(host))
    for module in (scan, sgraf):
        monkeypatch.setattr(module, "EVAL_IMAGES", 2)
    monkeypatch.setitem(encoders.TILE_NODES, "cpu", 1)
    monkeypatch.setitem(sgraf.STEP_NUMBERS, "cpu", 1)
    close(host.scores(*encoded(host)), whole, 1e-9)
    assert whole.shape == (5, 6)


def test_captions_of_one_length_share_a_tile() -> None:
    lengths = [3, 1, 3, 2, 3, 3, 1]
    assert list(encoders.by_length(lengths, 1, "cpu")) == [[1, 6], [3], [0, 2, 4, 5]]
    tiles = list(encoders.by_length(lengths, encoders.TILE_NODES["cpu"] // 8, "cpu"))  # two of three words fit
    assert sorted(i for tile in tiles for i in tile) == list(range(7)) and max(map(len, tiles)) == 2


def test_options_are_checked() -> None:
    for name, options, problem in (
        ("scan", {"direction": "both"}, r"train\.model\.options\.direction is 'both'"),
        ("teran", {"pooling": "mean"}, r"train\.model\.options\.pooling is 'mean': Input should be 'MrSw'"),
        ("vse", {"embedd": 3}, "model 'vse' has no option 'embedd' -> known: embed, word"),
        ("vse", {"embed": -4}, r"train\.model\.options\.embed is -4: Input should be greater than 0"),
        ("sgr", {"steps": 0}, r"train\.model\.options\.steps is 0"),
        ("tern", {"heads": 0}, r"train\.model\.options\.heads is 0"),
        ("saf", {"dropout": 1.5}, r"train\.model\.options\.dropout is 1.5"),
        ("single_stream", {"width": 12}, r"train\.model\.options\.width is 12: Input should be a multiple of 8"),
        ("vsse", {}, "unknown model 'vsse' -> choose from: vse,"),
    ):
        with pytest.raises(InputError, match=problem):
            configure(name, options, FEATURES, 0)
