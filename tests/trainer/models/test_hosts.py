"""What holds of every model: it is its equations, padding and tiles change nothing, sets of nothing
are finite, bfloat16 is near. Gradients of SGR go through few pairs; VSE-infinity leaves out regions
and words."""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from capgrade.schemas.errors import InputError
from capgrade.trainer.models import configure, encoders, scan, sgraf, vse_infinity
from capgrade.trainer.models.base import CaptionTokens
from capgrade.trainer.models.sgraf import FEW, Sgr, Sgraf
from capgrade.trainer.models.single_stream import draw_cells
from capgrade.trainer.models.text_encoder import load_tokenizer
from capgrade.trainer.models.vse_infinity import GeneralPooling, VseInfinity
from tests.trainer.models import equations
from tests.trainer.models.made import (
    FEATURES,
    GRAF,
    HOSTS,
    PAIRS,
    SCAN,
    VOCABULARY,
    VSRN,
    close,
    encoded,
    gradients,
    host,
    images,
    made,
    outputs,
    texts,
)

TILED = [name for name in HOSTS if name.startswith(("scan", "saf", "sgr"))]
WRITTEN_OUT = [name for name in HOSTS if hasattr(equations, HOSTS[name][0]) and "BERT" not in name]
NORMS = ("l2norm", "clipped_l1norm", "l1norm", "clipped", "no_norm", "softmax")


@pytest.fixture(name="host")
def _host(request, bert: str):
    return host(request.param, bert)


def all_hosts(names: Iterable[str] = HOSTS):
    return pytest.mark.parametrize("host", names, indirect=True)


@pytest.mark.parametrize(("name", "options", "training"), [
    *((*HOSTS[name], True) for name in WRITTEN_OUT),
    *(("scan", {**SCAN, "direction": way, "first_norm": norm}, True) for way in ("t2i", "i2t") for norm in NORMS),
    *((*HOSTS[name], False) for name in ("vse_infinity", "saf", "sgr")),
])  # fmt: skip
def test_a_host_is_its_equations(name, options, training, monkeypatch) -> None:
    monkeypatch.setitem(sgraf.STEP_NUMBERS, "cpu", 150)  # several steps and tiles a batch
    monkeypatch.setitem(encoders.TILE_NODES, "cpu", 60)
    model = made(name, 0.5, **options).train(training)
    peer = deepcopy(model)
    ours, expected = outputs(model), getattr(equations, name)(peer)
    for mine, wanted in zip(ours, expected, strict=True):
        close(mine, wanted, 1e-7)
    found, graded = gradients(model, *ours), gradients(peer, *expected)
    assert (
        found.keys()
        == graded.keys()
        == {key for key, p in model.named_parameters() if p.requires_grad}
    )
    for key, wanted in graded.items():
        close(found[key], wanted, 1e-6)
    for key, running in (
        peer.norm.named_buffers() if name == "saf" else ()
    ):  # they move once a caption
        close(model.norm.get_buffer(key), running, 1e-9)


@all_hosts()
def test_padding_changes_nothing_in_training(host) -> None:
    """And every weight has a gradient."""
    state = {name: value.clone() for name, value in host.state_dict().items()}
    plain = outputs(host)
    expected = gradients(host, *plain)
    buffers = {name: x.clone() for name, x in host.named_buffers()}
    host.load_state_dict(state)
    padded = outputs(host, 9, 12, garbage=0.0 if hasattr(host, "text_joint") else 1e3)
    found = gradients(host, *padded)
    tolerance = 2e-5 if hasattr(host, "text_encoder") else 1e-6  # TERN's vectors are float32
    for ours, wanted in zip(padded, plain, strict=True):
        close(ours, wanted, tolerance)
    assert (
        found.keys()
        == expected.keys()
        == {name for name, p in host.named_parameters() if p.requires_grad}
    )
    for name, value in expected.items():
        close(found[name], value, tolerance * max(1.0, float(value.abs().max())))
    for name, buffer in host.named_buffers():
        torch.testing.assert_close(buffer, buffers[name], rtol=0, atol=1e-6)


@all_hosts(
    [
        name
        for name in HOSTS
        if not name.startswith(("tern", "teran", "clip", "siglip")) and "BERT" not in name
    ]
)
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
    assert not torch.equal(found[0], found[0].bfloat16().float()), (
        "in bfloat16 the hardest negatives are tied"
    )
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


def test_a_new_graph_changes_nothing_and_evaluation_keeps_the_vector_alone() -> None:
    """Of VSRN: the norm of its graph starts at 0."""
    model, v = made("vsrn", **VSRN), torch.randn(2, 6, 6).double()
    close(model.graph[0](v, torch.ones(2, 6, dtype=torch.bool)), v)
    assert encoded(model.eval())[0].parts is None


def test_words_of_the_single_stream_are_drawn_in_reading_order() -> None:
    vectors = torch.arange(2 * 12.0).view(1, 2, 12)
    picture = draw_cells(vectors, torch.ones(1, 2, dtype=torch.bool), side=3, cell=2)
    assert picture.shape == (1, 3, 6, 6)
    assert picture[0, 0, :2, :4].tolist() == [
        [0, 1, 12, 13],
        [2, 3, 14, 15],
    ]  # channel 0 of both words, side by side
    assert picture[0, 2, 0, :4].tolist() == [8, 9, 20, 21]
    assert not picture[0, :, 2:].any() and not picture[0, :, :, 4:].any()
    with pytest.raises(InputError, match="larger `side`"):
        draw_cells(torch.zeros(1, 10, 12), torch.ones(1, 10, dtype=torch.bool), side=3, cell=2)
    a, b = encoded(made("single_stream", embed=8, side=3, cell=2, width=8))
    close(
        a.vector @ b.vector.T, torch.cosine_similarity(a.parts, b.parts[:, 0].unsqueeze(0), dim=2)
    )


def test_captions_of_one_length_share_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles: list[list[int]] = []

    def score(at: torch.Tensor, length: int) -> torch.Tensor:
        tiles.append(at.tolist())
        return at[None] * 10 + length

    for pairs, shared in ((2**14, [[1, 6], [3], [0, 2, 4, 5]]), (8, [[1, 6], [3], [0, 2], [4, 5]])):
        # of 8, two captions of three words fit
        monkeypatch.setitem(encoders.TILE_NODES, "cpu", pairs)
        tiles.clear()
        found = encoders.score_by_length(score, [3, 1, 3, 2, 3, 3, 1], torch.zeros(1))
        assert tiles == shared and found.tolist() == [[3, 11, 23, 32, 43, 53, 61]]


def test_options_are_checked() -> None:
    for name, options, problem in (
        ("scan", {"direction": "both"}, r"train\.model\.options\.direction is 'both'"),
        (
            "teran",
            {"pooling": "mean"},
            r"train\.model\.options\.pooling is 'mean': Input should be 'MrSw'",
        ),
        ("vse", {"embedd": 3}, "model 'vse' has no option 'embedd' -> near it: embed"),
        (
            "vse",
            {"embed": -4},
            r"train\.model\.options\.embed is -4: Input should be greater than 0",
        ),
        ("sgr", {"steps": 0}, r"train\.model\.options\.steps is 0"),
        ("tern", {"heads": 0}, r"train\.model\.options\.heads is 0"),
        ("saf", {"dropout": 1.5}, r"train\.model\.options\.dropout is 1.5"),
        (
            "single_stream",
            {"width": 12},
            r"train\.model\.options\.width is 12: Input should be a multiple of 8",
        ),
    ):
        with pytest.raises(InputError, match=problem):
            configure(name, options, FEATURES, 0)


SIDE = len(PAIRS)
CELLS = SIDE**2


def graf(name: str, **options) -> Sgraf:
    return made(name, 0.5, **GRAF, **options)


def test_the_authors_region_norm_takes_36_regions() -> None:
    model = graf("saf", region_norm="authors")
    with pytest.raises(RuntimeError):
        encoded(model)
    features = torch.randn(2, 36, FEATURES, dtype=torch.float64)
    batch = replace(images((36, 36), padded=36), features=features)
    assert model.encode_images(batch).vector is not None


def through(model: Sgr, scores: Tensor, weights: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(
        scores, list(model.parameters()), weights, allow_unused=True, retain_graph=True
    )
    return [torch.zeros(1) if gradient is None else gradient for gradient in found]


@settings(max_examples=15, deadline=None)
@given(st.sets(st.integers(0, CELLS - 1)), st.integers(0, 9))
def test_any_pairs_give_the_gradient_of_the_equations(pairs: set[int], seed: int) -> None:
    model, weights = graf("sgr"), torch.zeros(CELLS, dtype=torch.float64)
    weights[sorted(pairs)] = torch.randn(
        len(pairs), generator=torch.Generator().manual_seed(seed)
    ).double()
    found = (
        through(model, scores, weights.view(SIDE, SIDE))
        for (scores,) in (outputs(model), equations.sgr(model))
    )
    for mine, wanted in zip(*found, strict=True):
        close(mine, wanted, 1e-7)


def test_only_pairs_with_a_gradient_are_scored_again(monkeypatch) -> None:
    asked: list[int] = []
    true = Sgr.score_pairs
    monkeypatch.setattr(Sgr, "score_pairs", lambda *a: asked.append(len(a[1])) or true(*a))
    model = graf("sgr")
    (scores,), few = outputs(model), int(FEW * CELLS)
    for count in (0, 3, few, few + 1, CELLS):
        through(model, scores, (torch.arange(CELLS) < count).double().view_as(scores))
    assert asked == [3, few]  # the graph of the whole matrix for more


def test_few_pairs_under_autocast() -> None:
    model = graf("sgr")
    few = (torch.arange(CELLS) % 9 == 0).double().view(SIDE, SIDE)
    expected = through(model, equations.sgr(model)[0], few)
    model.float()
    with torch.autocast("cpu", torch.bfloat16):
        (scores,) = outputs(model)
    for mine, wanted in zip(through(model, scores, few.float()), expected, strict=True):
        close(mine, wanted, 0.05 * max(1e-3, float(wanted.abs().max())))


def infinity(**options) -> VseInfinity:
    return made("vse_infinity", **{"embed": 8, "word": 5, **options})


def test_the_authors_norm_counts_padding() -> None:
    model, ours = infinity(drop=0.0, padding="authors"), infinity(drop=0.0)
    features = images().features.double()
    model.project_regions(features, images().mask)
    hidden = model.inner(features.masked_fill(~images().mask.unsqueeze(2), 0)).flatten(0, 1)
    close(model.norm.running_mean, 0.1 * hidden.mean(0))
    assert (outputs(model)[0] - outputs(ours)[0]).abs().max() > 1e-3


def test_a_fifth_of_the_words_is_drawn() -> None:
    model, words = infinity(), 4000
    tokens = torch.arange(words).remainder(VOCABULARY - 1)[None] + 1
    found = model.augment(CaptionTokens(tokens, torch.ones(1, words, dtype=torch.bool)))
    masked = (found.tokens == model.masking).sum().item() / words
    gone = 1 - found.mask.sum().item() / words
    assert masked == pytest.approx(0.1, abs=0.02) and gone == pytest.approx(0.08, abs=0.02)
    assert (found.tokens[~found.mask] == 0).all() and found.mask[0, : int(found.mask.sum())].all()
    untouched = model.augment(CaptionTokens(tokens[:, :1], torch.ones(1, 1, dtype=torch.bool)))
    assert untouched.mask.all(), "a caption keeps its last word"


def test_pieces_of_a_word_share_its_fate(bert, monkeypatch) -> None:
    model = infinity(text_model=bert, text_layers=1)
    pieces = ["[CLS]", "run", "##s", "red", "play", "##ing", "##s", "dog", "[SEP]"]
    # of words: runs goes, dog is changed
    draws = torch.tensor([[0.0, 0.15, 0.05, 0.9, 0.11, 0.0, 0.0, 0.0, 0.0]])
    monkeypatch.setattr(vse_infinity, "draw_uniform", lambda mask: draws)
    numbers = load_tokenizer(bert)[0].convert_tokens_to_ids
    tokens = torch.tensor([numbers(pieces)])
    found = model.augment(CaptionTokens(tokens, torch.ones_like(tokens, dtype=torch.bool)))
    ids = found.tokens[0].tolist()
    assert found.mask[0].tolist() == [True] * 7 + [False] * 2
    assert ids[:5] + ids[6:] == numbers(
        ["[CLS]", "[MASK]", "play", "##ing", "##s", "[SEP]", "[PAD]", "[PAD]"]
    )


def test_the_weights_of_a_set_sum_to_one() -> None:
    """Scores are cosines, which do not tell."""
    weights = GeneralPooling().weights(torch.tensor([2, 5]), 6)
    close(weights.sum(1), torch.ones(2))
    assert (weights[0, 2:] == 0).all()
