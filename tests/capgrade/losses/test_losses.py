"""Every loss against the loops of equations.py, on random batches, with and without unknown relevance."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.losses import LOSSES, Terms
from capgrade.losses.base import ScoredBatch
from capgrade.losses.daa import soft_ranks
from capgrade.losses.terms import check_scale, needs
from capgrade.metrics import asp
from capgrade.schemas.errors import InputError

from . import equations

OWN_LOSSES = {"captioning": torch.tensor(2.0), "divergence": torch.tensor(0.5)}
GRADED = ["sam", "triplet_sn", "kendall", "kendall_windows", "daa", "ladder"]


def batch_of(seed, B=6, masked=False, dtype=torch.float64, cider=False):
    """B pairs; relevance as Sentence-BERT gives it, 1 to the own pair, or as CIDEr-D, any number to 10."""
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.uniform(-1, 1, (B, B)), dtype=dtype)
    relevance = rng.uniform(-0.5, 0.95, (B, B))
    np.fill_diagonal(relevance, 1)
    if cider:
        relevance = rng.uniform(0, 5, (B, B))
    known = rng.random((B, B)) < 0.6
    np.fill_diagonal(known, True)
    owner = rng.integers(0, max(1, B - 1), B)
    own = torch.tensor(owner[:, None] == owner[None, :])
    vectors = [torch.tensor(rng.normal(size=(B, 4)), dtype=dtype) for _ in range(4)]
    return ScoredBatch(
        scores, own, torch.tensor(relevance, dtype=dtype), torch.tensor(known) if masked else None,
        images=vectors[0], captions=vectors[1], image_logits=vectors[2], caption_logits=vectors[3],
        labels=torch.tensor(owner % 4), own_losses=OWN_LOSSES,
    )  # fmt: skip


CASES = [
    ("triplet", {}, equations.triplet),
    ("triplet", {"negatives": "soft", "margin": 0.4}, equations.triplet),
    ("triplet", {"negatives": "sum", "spare_own": True}, equations.triplet),
    ("sam", {}, equations.sam),
    ("sam", {"negatives": "soft", "tau": 2.0}, equations.sam),
    ("triplet_sn", {}, equations.triplet_sn),
    ("kendall", {}, equations.kendall),
    ("kendall_windows", {}, equations.kendall_windows),
    ("kendall_windows", {"alpha": 0.4, "beta": 0.2}, equations.kendall_windows),
    ("daa", {"temperature": 0.05}, equations.daa),
    ("smooth_ap", {"temperature": 0.1}, equations.smooth_ap),
    ("ladder", {}, equations.ladder),
    ("ladder", {"thresholds": [0.7, 0.3], "margins": [0.2, 0.1, 0.05], "weights": [1.0, 0.5, 0.25]}, equations.ladder),
    ("info_nce", {}, equations.info_nce),
    ("info_nce", {"targets": "relevance"}, equations.info_nce),
    ("soft_info_nce", {}, lambda batch: equations.info_nce(batch, targets="relevance")),
    ("sigmoid", {"temperature": 0.5, "bias": -1.0}, equations.sigmoid_loss),
    ("sigmoid", {"targets": "own"}, equations.sigmoid_loss),
    ("sigmoid", {"low": -0.5, "high": 5.0}, equations.sigmoid_loss),
]


@pytest.mark.parametrize(("name", "options", "loop"), CASES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 7), masked=st.booleans(), cider=st.booleans())
def test_a_loss_is_its_equation(name, options, loop, seed, size, masked, cider):
    batch = batch_of(seed, size, masked, cider=cider)
    found = Terms([{"name": name, **options}])(batch)
    assert float(found) == pytest.approx(loop(batch, **options), rel=2e-4, abs=2e-4)


AUTHORS = [
    ("sam", {"tau": 3.0, "negatives": "soft"}, equations.sam_authors),
    ("sam", {"tau": 6.0, "negatives": "hard"}, equations.sam_authors),
    ("daa", {"temperature": 0.05}, lambda batch, temperature: equations.daa(batch, temperature, "authors")),
]


@pytest.mark.parametrize(("name", "options", "loop"), AUTHORS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 7), cider=st.booleans())
def test_authors_forms_are_what_their_code_says(name, options, loop, seed, size, cider):
    batch = batch_of(seed, size, cider=cider)
    found = Terms([{"name": name, "form": "authors", **options}])(batch)
    assert float(found) == pytest.approx(loop(batch, **options), rel=2e-4, abs=1e-5)
    with pytest.raises(
        InputError, match=f"loss '{name}', form authors, needs .* train.relevance=exact or train.unknown=estimate, or"
    ):
        Terms([{"name": name, "form": "authors", **options}])(batch_of(seed, size, masked=True))


def matrices(scores, relevance, known=None):
    own = torch.eye(len(scores), dtype=torch.bool)
    return ScoredBatch(
        torch.tensor(scores), own, torch.tensor(relevance), None if known is None else torch.tensor(known)
    )


def test_both_margins_of_sam_are_of_the_positive_image():
    """Worked out by hand: towards images the pair 0 has (phi_00 - phi_01) / 1 + S_10 - S_00 = .2 + .1 - .9 < 0, the
    pair 1 has (phi_11 - phi_10) + S_01 - S_11 = .8 + .5 - .9 = .4; towards captions -.2 and 0."""
    batch = matrices([[0.9, 0.5], [0.1, 0.9]], [[1.0, 0.8], [0.2, 1.0]])
    assert float(Terms([{"name": "sam", "tau": 1.0}])(batch)) == pytest.approx(0.4)


def test_sam_asks_for_relevance_to_the_positive_image_alone():
    """phi(G_1, c_0) is unknown: the pair 1 has no negative in either direction, though phi(G_0, c_1) is known."""
    batch = matrices([[0.9, 0.5], [0.1, 0.9]], [[1.0, 0.8], [0.2, 1.0]], [[True, True], [False, True]])
    assert float(Terms([{"name": "sam", "tau": 1.0}])(batch)) == 0


OWN_AND_OTHER = [(1.0, 0.9, True), (1.0, 1.0, False), (2.6, 1.4, True), (1.4, 2.6, False), (-0.1, -0.2, True)]


@pytest.mark.parametrize(("own", "other", "negative"), OWN_AND_OTHER)
def test_a_negative_of_triplet_sn_is_less_relevant_than_the_own_pair(own, other, negative):
    batch = matrices([[0.5, 0.5], [0.5, 0.5]], [[own, other], [other, own]])
    loss = float(Terms([{"name": "triplet_sn", "margin": 0.3}])(batch))
    assert loss == pytest.approx(1.2 if negative else 0)  # a margin of each of four queries


def test_centre_and_classes_by_hand():
    batch = batch_of(3)
    features = torch.cat([batch.images, batch.captions]).numpy()
    labels = np.tile(batch.labels.numpy(), 2)
    total = sum(0.5 * ((features[labels == c] - features[labels == c].mean(0)) ** 2).sum() for c in set(labels))
    assert float(Terms([{"name": "centre"}])(batch)) == pytest.approx(total, rel=1e-4)
    logits = torch.cat([batch.image_logits, batch.caption_logits])
    wanted = -logits.log_softmax(1)[torch.arange(12), torch.tensor(labels)].mean()
    assert float(Terms([{"name": "classify"}])(batch)) == pytest.approx(float(wanted), rel=1e-4)


@pytest.mark.parametrize("name", sorted(set(LOSSES) - OWN_LOSSES.keys()))
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_finite_differences(name, masked):
    """In float32 as the losses compute, so with steps of 1e-2 where they are smooth enough."""
    options = {"temperature": 0.5} if name in ("daa", "smooth_ap", "info_nce") else {}
    options |= {"gamma": 5.0} if name == "triplet_sn" else {}
    batch = batch_of(11, 5, masked)
    wrt = {"centre": "images", "classify": "image_logits"}.get(name, "scores")
    loss = Terms([{"name": name, **options}])

    def value(x):
        return loss(replace(batch, **{wrt: x}))

    x = getattr(batch, wrt).clone().requires_grad_()
    value(x).backward()
    step = 1e-3
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            moved = torch.zeros_like(x)
            moved[i, j] = step
            numeric = float(value(x.detach() + moved) - value(x.detach() - moved)) / (2 * step)
            assert float(x.grad[i, j]) == pytest.approx(numeric, abs=6e-3 * max(1.0, abs(numeric)))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_nothing_to_learn_from_is_zero_with_zero_gradient(name):
    rng = torch.Generator().manual_seed(0)
    scores = torch.rand(4, 4, generator=rng).requires_grad_()
    nothing = ScoredBatch(
        scores, torch.eye(4, dtype=torch.bool), torch.rand(4, 4, generator=rng), torch.zeros(4, 4, dtype=torch.bool),
        images=torch.zeros(4, 3), captions=torch.zeros(4, 3), image_logits=torch.zeros(4, 2),
        caption_logits=torch.zeros(4, 2), labels=torch.tensor([0, 1, 0, 1]), own_losses=OWN_LOSSES,
    )  # fmt: skip
    loss = Terms([{"name": name}])(nothing)
    assert torch.isfinite(loss)
    if name in GRADED and name != "daa":
        assert float(loss) == 0
    if loss.requires_grad:
        loss.backward()
        assert scores.grad is None or torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"sam", "triplet"}))
def test_the_order_of_a_batch_does_not_matter(name):
    batch, p = batch_of(7), torch.tensor([3, 0, 5, 1, 4, 2])
    moved = ScoredBatch(
        *(x[p][:, p] for x in (batch.scores, batch.own, batch.relevance)), None,
        images=batch.images[p], captions=batch.captions[p], image_logits=batch.image_logits[p],
        caption_logits=batch.caption_logits[p], labels=batch.labels[p], own_losses=OWN_LOSSES,
    )  # fmt: skip
    loss = Terms([{"name": name}])
    assert float(loss(moved)) == pytest.approx(float(loss(batch)), rel=1e-4)


def test_random_negatives_are_others_and_follow_the_generator():
    batch = batch_of(5, 20)
    loss = Terms([{"name": "triplet", "negatives": "random", "margin": 3.0}])
    values = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        values.append(float(loss(batch)))
    assert values[0] == values[1] != values[2]
    least, most = (equations.triplet(batch, 3.0, kind) for kind in ("soft", "hard"))
    assert least < values[0] < most


def test_scores_in_the_order_of_relevance_cost_nothing():
    batch = batch_of(2)
    perfect = ScoredBatch(batch.relevance, batch.own, batch.relevance)
    for name in ("kendall", "kendall_windows"):
        assert float(Terms([{"name": name}])(perfect)) == 0


def test_soft_asp_becomes_asp():
    batch = batch_of(4, 8)
    sharp = 1 - float(Terms([{"name": "daa", "temperature": 1e-4}])(batch)) / 2
    scores, relevance = batch.scores.float().numpy(), batch.relevance.float().numpy()
    exact = (asp(scores, relevance).mean() + asp(scores.T, relevance.T).mean()) / 2
    assert sharp == pytest.approx(exact, abs=2e-3)


def test_soft_ranks_of_far_values_are_ranks():
    x = torch.tensor([[0.9, 0.1, 0.5]])
    assert soft_ranks(x, torch.ones(1, 3, dtype=torch.bool), 0.01)[0].tolist() == pytest.approx([1, 3, 2], abs=1e-6)


def test_bfloat16_scores_are_compared_in_float32():
    batch = batch_of(1, dtype=torch.float32)
    half = ScoredBatch(batch.scores.bfloat16(), batch.own, batch.relevance, labels=batch.labels)
    for name in ("triplet", *GRADED, "info_nce"):
        found = Terms([{"name": name}])(half)
        rounded = ScoredBatch(half.scores.float(), batch.own, batch.relevance)
        assert float(found) == pytest.approx(float(Terms([{"name": name}])(rounded)), rel=1e-4)


def test_terms_are_weighed_and_checked():
    batch = batch_of(0)
    one, two = Terms([{"name": "triplet"}])(batch), Terms([{"name": "kendall"}])(batch)
    both = Terms([{"name": "triplet"}, {"name": "kendall", "weight": 0.5}])(batch)
    assert float(both) == pytest.approx(float(one) + 0.5 * float(two), rel=1e-5)
    assert needs([{"name": "triplet"}]) == frozenset()
    assert needs([{"name": "sam"}, {"name": "centre"}]) == {"relevance", "vectors"}
    assert needs([{"name": "info_nce"}]) == frozenset()
    assert needs([{"name": "info_nce", "targets": "relevance"}]) == {"relevance"}
    for term, message in (
        ({"name": "sma"}, "unknown loss 'sma'"),
        ({"name": "sam", "tua": 1}, "loss 'sam' has no option 'tua'"),
        ({"name": "sam", "negatives": "easy"}, "option 'negatives' of loss 'sam' is 'easy'"),
        ({"name": "sam", "negatives": "sum"}, "option 'negatives' of loss 'sam' is 'sum'"),
        ({"name": "sam", "tau": 0}, "option 'tau' of loss 'sam' is 0: Input should be greater than 0"),
        ({"name": "triplet", "margin": "wide"}, "option 'margin' of loss 'triplet' is 'wide'"),
        ({"name": "triplet", "weight": "much"}, "option 'weight' of loss 'triplet' is 'much'"),
        ({"name": "ladder", "margins": [0.2]}, "loss 'ladder' has 1 thresholds, 1 margins, 2 weights"),
        ({"name": "kendall_windows", "alpha": 2.5}, "no window of alpha 2.5 and beta 0.1 fits"),
    ):
        with pytest.raises(InputError, match=message):
            Terms([term])


def test_numbers_that_yaml_reads_as_text_are_numbers():
    terms = yaml.safe_load("[{name: info_nce, temperature: 5e-2, weight: 1e0}, {name: ladder, margins: [2e-1, 1e-2]}]")
    assert isinstance(terms[0]["temperature"], str)
    found = Terms(terms)(batch_of(0))
    assert float(found) == pytest.approx(float(Terms([{"name": "info_nce"}, {"name": "ladder"}])(batch_of(0))))


@pytest.mark.parametrize("name", ["scores", "own", "relevance", "known", "images", "captions", "labels"])
def test_a_batch_of_other_shapes_is_refused(name):
    """B images and 5 B captions give plausible numbers in some losses."""
    batch = batch_of(0, masked=True)
    value = getattr(batch, name)
    wide = torch.cat([value] * 5, dim=-1 if value.ndim == 2 and name not in ("images", "captions") else 0)
    with pytest.raises(InputError, match=r"of a batch is \[.*\], and \[.*\] fits (6 pairs|the \[6, 30\] scores)"):
        replace(batch, **{name: wide})


def test_what_a_batch_lacks_is_named():
    bare = ScoredBatch(torch.rand(3, 3), torch.eye(3, dtype=torch.bool))
    for name, lacks in (("sam", "relevance"), ("daa", "relevance"), ("centre", "images"), ("classify", "image_logits")):
        with pytest.raises(InputError, match=f"a loss asks for `{lacks}`, which this batch lacks"):
            Terms([{"name": name}])(bare)


def test_windows_are_of_relevance_from_minus_one_to_one():
    terms = [{"name": "triplet_sn"}, {"name": "kendall_windows"}]
    check_scale(terms, "sbert", -1.0, 1.0)
    check_scale(terms[:1], "cider", 0.0, 10.0)
    with pytest.raises(InputError, match="'kendall_windows' is written for relevance in -1..1, and cider is in 0..10"):
        check_scale(terms, "cider", 0.0, 10.0)


def test_a_term_looks_at_the_scores_of_a_part():
    batch = batch_of(5)
    part = replace(batch, scores=-batch.scores, more={"instance": batch.scores})
    terms = [{"name": "triplet", "of": "instance", "weight": 5}]
    assert float(Terms(terms)(part)) == pytest.approx(5 * float(Terms([{"name": "triplet"}])(batch)))
    with pytest.raises(InputError, match="scores of 'instance'"):
        Terms(terms)(batch)


def test_logits_take_no_second_temperature():
    for term in ({"name": "info_nce"}, {"name": "info_nce", "temperature": 0.05}, {"name": "sigmoid", "bias": 0.0}):
        with pytest.raises(InputError, match="divides them by a temperature, .*give this term temperature: 1.0"):
            Terms([{**term, "of": "logits"}])
        Terms([{**term, "of": "logits", "temperature": 1.0}])
        Terms([{**term, "of": "instance"}])
    for name in ("triplet", "daa", "smooth_ap"):  # theirs is of ranks, DAA's of the relevance's too
        Terms([{"name": name, "of": "logits"}])


def test_losses_of_a_model_are_taken_as_it_made_them():
    batch = batch_of(5, 6)
    assert float(Terms([{"name": "captioning", "weight": 3}])(batch)) == 6
    assert float(Terms([{"name": "divergence"}])(batch)) == 3, "the sum over six pairs"
    with pytest.raises(InputError, match="loss 'captioning' is of a model that has it"):
        Terms([{"name": "captioning"}])(replace(batch, own_losses={}))
