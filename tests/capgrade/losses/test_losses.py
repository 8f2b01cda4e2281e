"""Every loss against the loops of equations.py, as a function of tensors and as a term of a preset;
dtypes, gradients, hinges, modules, refusals."""

import inspect
import math
import pydoc
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade import losses
from capgrade.losses import LOSSES, LossTerms
from capgrade.losses.base import ScoredBatch
from capgrade.schemas.errors import InputError
from tests.conftest import ROOT

from . import equations

COUNTED = ("daa", "sigmoid")  # means and sums over all candidates, of which some were sampled
FUNCTIONS = {name: getattr(losses, name) for name in losses.__all__ if name in LOSSES}
GRADED = [
    name
    for name, call in FUNCTIONS.items()
    if list(inspect.signature(call).parameters)[1] == "relevance"
]
SMOOTH = {"daa": {"temperature": 0.05}, "smooth_ap": {"temperature": 0.1}}
OWN_LOSSES = {"captioning": torch.tensor(2.0), "divergence": torch.tensor(0.5)}
HINGES = ("triplet", "sam", "triplet_sn", "kendall", "kendall_windows", "ladder")


def batch_of(seed, images=6, captions=None, *, masked=False, cider=False, dtype=torch.float64):
    """Relevance as Sentence-BERT gives it, 1 to an own pair, or as CIDEr-D, any number to 5.
    Without `captions` pairs in order, among which an image may come twice; with it some captions
    are nobody's and some images have none."""
    rng = np.random.default_rng(seed)
    if captions is None:
        owner = rng.integers(0, max(1, images - 1), images)
        own, pair = owner[:, None] == owner[None, :], np.eye(images, dtype=bool)
    else:
        owner = rng.integers(-1, images, captions)
        owner[rng.integers(captions)] = rng.integers(images)
        own = pair = owner[None, :] == np.arange(images)[:, None]
    relevance = (
        rng.uniform(0, 5, own.shape)
        if cider
        else np.where(pair, 1, rng.uniform(-0.5, 1.1, own.shape))
    )
    relevance = relevance.round(1)  # some are equal, or stand at a threshold
    known = pair | (rng.random(own.shape) < 0.6)
    scores, relevance = (
        torch.tensor(x, dtype=dtype) for x in (rng.uniform(-1, 1, own.shape), relevance)
    )
    weights = torch.tensor(
        np.where(known, np.where(own, 1, rng.integers(1, 5, own.shape)), 0), dtype=dtype
    )
    vectors = [torch.tensor(rng.normal(size=(int(pair.sum()), 4)), dtype=dtype) for _ in range(4)]
    return ScoredBatch(
        scores,
        torch.tensor(own),
        relevance,
        torch.tensor(known) if masked else None,
        weights if masked else None,
        *vectors,
        labels=torch.tensor(np.nonzero(pair)[0] % 4 if captions else owner % 4),
        own_losses=OWN_LOSSES,
    )


def call(name, batch, scores=None, **options):
    """The function of the tensors of a batch."""
    scores = batch.scores if scores is None else scores
    graded = (batch.relevance, batch.own, batch.known) if name in GRADED else (batch.own,)
    if name == "info_nce" and {"targets", "mask_above"} & options.keys():
        graded += (batch.relevance, batch.known)
    graded += (batch.weights,) if name in COUNTED and batch.known is not None else ()
    return FUNCTIONS[name](scores, *graded, **{**SMOOTH.get(name, {}), **options})


def term(name, **options):
    return LossTerms([{"name": name, **SMOOTH.get(name, {}), **options}])


CASES = [
    ("triplet", {}),
    ("triplet", {"negatives": "soft", "margin": 0.4}),
    ("triplet", {"negatives": "sum", "spare_own": True}),
    ("sam", {}),
    ("sam", {"negatives": "soft", "tau": 2.0}),
    ("triplet_sn", {}),
    ("kendall", {}),
    ("kendall_windows", {}),
    ("kendall_windows", {"alpha": 0.4, "beta": 0.2}),
    ("daa", {"temperature": 0.05}),
    ("smooth_ap", {"temperature": 0.1}),
    ("ladder", {}),
    (
        "ladder",
        {"thresholds": [0.7, 0.3], "margins": [0.2, 0.1, 0.05], "weights": [1.0, 0.5, 0.25]},
    ),
    ("info_nce", {}),
    ("info_nce", {"targets": "relevance", "softness": 0.5}),
    ("info_nce", {"mask_above": 0.6}),
    ("soft_info_nce", {}),
    ("soft_info_nce", {"temperature": 0.2, "softness": 0.5}),
    ("sigmoid", {}),
    ("sigmoid", {"temperature": 0.5, "bias": -1.0}),
    ("sigmoid", {"targets": "own"}),
    ("sigmoid", {"low": -0.5, "high": 5.0}),
    ("sam", {"form": "authors", "tau": 3.0, "negatives": "soft"}),
    ("sam", {"form": "authors", "tau": 6.0, "negatives": "hard"}),
    ("daa", {"form": "authors", "temperature": 0.05}),
]


def equation(name, batch, options):
    """What the loops of equations.py say: a number, or of HINGES each with its weight."""
    given_ = {"targets": "relevance", **options} if name == "soft_info_nce" else options
    loop = name.removeprefix("soft_") + "_authors" * (options.get("form") == "authors")
    return getattr(equations, loop)(
        batch, **{key: value for key, value in given_.items() if key != "form"}
    )


def value_of(name, batch, options):
    found = equation(name, batch, options)
    return equations.total(found) if name in HINGES else found


@pytest.mark.parametrize(("name", "options"), CASES)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6), images=st.integers(1, 6), captions=st.none() | st.integers(1, 9), masked=st.booleans(),
    cider=st.booleans(),
)  # fmt: skip
def test_a_loss_is_its_equation(name, options, seed, images, captions, masked, cider):
    """Or what the authors' code says, which takes square batches of known relevance, of two pairs
    and more."""
    if "form" in options:
        images, captions, masked = images + 1, None, False
    batch = batch_of(seed, images, captions, masked=masked, cider=cider)
    expected = pytest.approx(value_of(name, batch, options), rel=2e-4, abs=1e-5)
    assert float(term(name, **options)(batch)) == expected
    assert float(call(name, batch, **options)) == expected


def test_every_loss_of_scores_is_public_and_has_an_equation():
    assert {name for name, _ in CASES} == set(FUNCTIONS)
    assert {name for name, loss in LOSSES.items() if loss.needs in (None, "relevance")} == set(
        FUNCTIONS
    )


@pytest.mark.parametrize(("name", "options"), [case for case in CASES if case[0] in HINGES])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_share_of_active_hinges_is_that_of_the_equation(name, options, seed):
    masked, loss = "form" not in options, term(name, **options)
    batches = [batch_of(seed, masked=masked), batch_of(seed + 1, masked=masked)]
    for batch in batches:
        loss(batch)
    costs = [cost > 0 for batch in batches for _, cost in equation(name, batch, options)]
    assert loss.active_hinges() == {f"active_{name}": pytest.approx(np.mean(costs) if costs else 0)}
    assert loss.active_hinges() == {}, "counted afresh"


def test_terms_of_one_loss_count_their_hinges_together_and_other_losses_have_none():
    batch = batch_of(1)
    others = [{"name": name} for name in set(FUNCTIONS) - set(HINGES)]
    both = LossTerms([{"name": "triplet"}, {"name": "triplet", "negatives": "sum"}, *others])
    both(batch)
    costs = [
        cost > 0 for kind in ("hard", "sum") for _, cost in equations.triplet(batch, negatives=kind)
    ]
    assert both.active_hinges() == {"active_triplet": pytest.approx(np.mean(costs))}


def test_centre_and_classes_by_hand():
    batch = batch_of(3)
    features = torch.cat([batch.images, batch.captions]).numpy()
    labels = np.tile(batch.labels.numpy(), 2)
    total = sum(
        0.5 * ((features[labels == c] - features[labels == c].mean(0)) ** 2).sum()
        for c in set(labels)
    )
    assert float(term("centre")(batch)) == pytest.approx(total, rel=1e-4)
    logits = torch.cat([batch.image_logits, batch.caption_logits])
    wanted = -logits.log_softmax(1)[torch.arange(12), torch.tensor(labels)].sum()
    assert float(term("classify")(batch)) == pytest.approx(float(wanted), rel=1e-4)


def test_losses_of_a_model_are_taken_as_it_made_them():
    batch = batch_of(5, 6)
    assert float(term("captioning", weight=3)(batch)) == 6
    assert float(term("divergence")(batch)) == 3, "the sum over six pairs"


@pytest.mark.parametrize("name", sorted(set(LOSSES) - OWN_LOSSES.keys()))
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_finite_differences(name, masked):
    """In float32 as the losses compute, where they are smooth enough for it."""
    options = {"temperature": 0.5} if name in ("daa", "smooth_ap", "info_nce") else {}
    options |= {"gamma": 5.0} if name == "triplet_sn" else {}
    batch, loss, step = batch_of(11, 5, masked=masked), term(name, **options), 1e-3
    of = {"centre": "images", "classify": "image_logits"}.get(name, "scores")

    def value(x):
        return loss(replace(batch, **{of: x}))

    x = getattr(batch, of).clone().requires_grad_()
    value(x).backward()
    for place in np.ndindex(tuple(x.shape)):
        moved = torch.zeros_like(x)
        moved[place] = step
        numeric = float(value(x.detach() + moved) - value(x.detach() - moved)) / (2 * step)
        assert float(x.grad[place]) == pytest.approx(numeric, abs=6e-3 * max(1.0, abs(numeric)))


@pytest.mark.parametrize("name", ["triplet", "triplet_sn", "ladder", "info_nce"])
def test_a_score_of_minus_infinity_is_no_negative(name):
    """As far below as can be, also where a row has no other."""
    batch = batch_of(7, dtype=torch.float32)
    batch = replace(batch, own=torch.eye(6) > 0, relevance=torch.eye(6))
    hidden = (torch.arange(6)[:, None] == 0) & ~batch.own | (torch.rand(6, 6) < 0.3) & ~batch.own
    found = [
        call(name, batch, batch.scores.masked_fill(hidden, below)) for below in (-1e4, -math.inf)
    ]
    assert float(found[0]) > 0 and float(found[1]) == pytest.approx(float(found[0]))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_nothing_to_learn_from_is_zero_with_zero_gradient(name):
    batch = batch_of(0, 4, dtype=torch.float32)
    scores = batch.scores.requires_grad_()
    nothing = replace(
        batch, own=torch.eye(4) > 0, known=torch.zeros(4, 4) > 0, weights=torch.zeros(4, 4)
    )
    loss = term(name)
    found = loss(nothing)
    assert found == 0 if name in GRADED and name in HINGES else torch.isfinite(found)
    assert loss.active_hinges() in ({}, {f"active_{name}": 0.0}) or name == "triplet"
    if found.requires_grad:
        found.backward()
        assert scores.grad is None or torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_go_into_scores_alone_and_no_dtype_or_autocast_changes_a_loss(name):
    batch = batch_of(2, masked=True, dtype=torch.float32)
    batch = replace(
        batch, scores=batch.scores.requires_grad_(), relevance=batch.relevance.requires_grad_()
    )
    loss = call(name, batch)
    loss.backward()
    assert (
        batch.scores.grad is not None
        and torch.isfinite(batch.scores.grad).all()
        and batch.relevance.grad is None
    )
    with torch.autocast("cpu", torch.bfloat16):
        under = call(name, batch)
    assert under.dtype == torch.float32 and float(under.detach()) == pytest.approx(
        float(loss.detach()), rel=1e-6
    )
    coarse = batch.scores.detach().bfloat16()
    assert float(call(name, batch, coarse)) == pytest.approx(
        float(call(name, batch, coarse.float())), rel=1e-4
    )


@pytest.mark.parametrize("name", COUNTED)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_loss_of_drawn_pairs_is_near_that_of_all(name, seed):
    """As shards keep pairs: relevant ones for certain, of the others some. A model that knows the
    relevant ones alone: without weights its loss seems small. `sigmoid` is without bias, `daa`, of
    ratios of ranks, within a tenth."""
    rng, size, draws = np.random.default_rng(seed), 16, 60
    own, relevance = torch.eye(size, dtype=torch.bool), torch.tensor(rng.beta(1, 3, (size, size)))
    relevance = relevance.where(~own, 1)
    scores = torch.tensor(rng.uniform(0, 0.4, (size, size))).where(relevance < 0.4, relevance)
    chance = torch.ones_like(relevance).where(relevance > 0.4, 0.15)
    options = {"temperature": 0.05} if name == "daa" else {"temperature": 1.0, "bias": 0.0}
    whole, found, each_once = float(FUNCTIONS[name](scores, relevance, own, **options)), [], []
    for _ in range(draws):
        known = torch.tensor(rng.random((size, size))) < chance
        weights = (1 / chance).where(known, 0)
        found.append(float(FUNCTIONS[name](scores, relevance, own, known, weights, **options)))
        each_once.append(
            float(FUNCTIONS[name](scores, relevance, own, known, known.float(), **options))
        )
    near = 5 * np.std(found) / np.sqrt(draws) + (0.1 * whole if name == "daa" else 0)
    assert abs(np.mean(found) - whole) < near < 0.4 * whole < whole - np.mean(each_once)


@pytest.mark.parametrize("name", GRADED)
def test_nan_in_what_is_known_is_not_passed_over(name):
    batch = batch_of(1, 5, masked=True)
    batch.relevance[0, 3], batch.own[0, 3] = math.nan, False
    for known in (False, True):
        batch.known[0, 3], batch.weights[0, 3] = known, float(known)
        assert math.isnan(float(call(name, batch))) == known


def test_random_negatives_are_others_and_follow_the_generator():
    batch, loss = batch_of(5, 20), term("triplet", negatives="random", margin=3.0)
    values = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        values.append(float(loss(batch)))
    assert values[0] == values[1] != values[2]
    least, most = (
        equations.total(equations.triplet(batch, 3.0, kind)) for kind in ("soft", "hard")
    )
    assert least < values[0] < most


def test_terms_are_weighed():
    batch = batch_of(0)
    one, two = term("triplet")(batch), term("kendall")(batch)
    both = LossTerms([{"name": "triplet"}, {"name": "kendall", "weight": 0.5}])(batch)
    assert float(both) == pytest.approx(float(one) + 0.5 * float(two), rel=1e-5)
    assert term("triplet").needs == term("info_nce").needs == set()
    assert LossTerms([{"name": "sam"}, {"name": "centre"}]).needs == {"relevance", "vectors"}
    assert term("info_nce", targets="relevance").needs == {"relevance"}
    assert term("info_nce", mask_above=0.5).needs == {"relevance"}


def test_numbers_that_yaml_reads_as_text_are_numbers():
    terms = yaml.safe_load(
        "[{name: info_nce, temperature: 5e-2, weight: 1e0}, {name: ladder, margins: [2e-1, 1e-2]}]"
    )
    assert isinstance(terms[0]["temperature"], str)
    found = LossTerms(terms)(batch_of(0))
    assert float(found) == pytest.approx(
        float(LossTerms([{"name": "info_nce"}, {"name": "ladder"}])(batch_of(0)))
    )


def test_a_term_looks_at_the_scores_of_a_part():
    batch = batch_of(5)
    part = replace(batch, scores=-batch.scores, more={"instance": batch.scores})
    loss = term("triplet", of="instance", weight=5)
    assert float(loss(part)) == pytest.approx(5 * float(term("triplet")(batch)))


def test_logits_take_no_second_temperature():
    for given_ in (
        {"name": "info_nce"},
        {"name": "info_nce", "temperature": 0.05},
        {"name": "sigmoid", "bias": 0.0},
    ):
        with pytest.raises(
            InputError, match="divides them by a temperature, .*give this term temperature: 1.0"
        ):
            LossTerms([{**given_, "of": "logits"}])
        LossTerms([{**given_, "of": "logits", "temperature": 1.0}, {**given_, "of": "instance"}])
    for name in ("triplet", "daa", "smooth_ap"):  # theirs is of ranks, DAA's of the relevance's too
        term(name, of="logits")


@pytest.mark.parametrize(
    "name", ["scores", "own", "relevance", "known", "images", "captions", "labels"]
)
def test_a_batch_of_other_shapes_is_refused(name):
    """B images and 5 B captions give plausible numbers in some losses."""
    batch = batch_of(0, masked=True)
    wide = torch.cat(
        [getattr(batch, name)] * 5, dim=0 if name in ("images", "captions", "labels") else 1
    )
    with pytest.raises(
        InputError, match=r"of a batch is \[.*\], and \[.*\] fits (6 pairs|the \[6, 30\] scores)"
    ):
        replace(batch, **{name: wide})


SQUARE, WIDE, MASKED = batch_of(0), batch_of(0, 3, 5), batch_of(0, 3, 5, masked=True)
BARE = ScoredBatch(torch.rand(3, 3), torch.eye(3, dtype=torch.bool))
TENSORS = MASKED.scores, MASKED.relevance, MASKED.own, MASKED.known


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: term("sma"), "unknown loss 'sma'"),
        (lambda: LossTerms([{"name": ["sam"]}]), r"unknown loss '\['sam'\]'"),
        (lambda: term("sam", tua=1), "loss 'sam' has no option 'tua'"),
        (lambda: losses.Sam(learn=False), "loss 'sam' has no option 'learn'"),
        (lambda: losses.Sam(weight=2.0), "loss 'sam' has no option 'weight'"),
        (lambda: term("sam", negatives="easy"), "option 'negatives' of loss 'sam' is 'easy'"),
        (lambda: term("sam", negatives="sum"), "option 'negatives' of loss 'sam' is 'sum'"),
        (lambda: term("sam", tau=0), "option 'tau' of loss 'sam' is 0: Input should be greater than 0"),
        (lambda: losses.InfoNCE(temperature=0), "option 'temperature' of loss 'info_nce' is 0"),
        (lambda: losses.InfoNCE(0.07), r"InfoNCE\(0.07\): an option without its name -> write temperature=..."),
        (lambda: losses.Sam(3.0), r"Sam\(3.0\): an option without its name -> write tau=..."),
        (lambda: term("triplet", margin="wide"), "option 'margin' of loss 'triplet' is 'wide'"),
        (lambda: term("triplet", weight="much"), "option 'weight' of loss 'triplet' is 'much'"),
        (lambda: term("ladder", margins=[0.2]), "loss 'ladder' has 1 thresholds, 1 margins, 2 weights"),
        (lambda: term("sigmoid", low=1, high=1), "loss 'sigmoid' has low 1 and high 1 -> give a high above low"),
        (lambda: term("kendall_windows", alpha=2.5), "no window of alpha 2.5 and beta 0.1 fits"),
        (lambda: term("captioning")(BARE), "loss 'captioning' is of a model that has it"),
        (lambda: term("triplet", of="instance")(SQUARE), "scores of 'instance'"),
        (lambda: term("sam", form="authors")(batch_of(0, masked=True)),
         "form authors, needs .* train.relevance=exact or train.unknown=estimate, or"),
        (lambda: term("daa", form="authors")(WIDE), "form authors, is written for square batches"),
        *((lambda name=name: term(name)(BARE), f"a loss asks for `{lacks}`, which this batch lacks")
          for name, lacks in (("daa", "relevance"), ("centre", "images"), ("classify", "image_logits"))),
        *((lambda name=name: call(name, replace(MASKED, weights=None)),
           f"'{name}' counts how many pairs each known one stands for, and weights") for name in COUNTED),
        (lambda: losses.sam(TENSORS[0].numpy(), TENSORS[1]), "scores is ndarray, not a torch tensor -> torch.from_n"),
        (lambda: losses.sam(*TENSORS[:2]), "3 images and 5 captions, and nothing says which belong together -> give"),
        (lambda: losses.sam(TENSORS[0], TENSORS[1][:, :4], TENSORS[2]), r"relevance is \[3, 4\], scores \[3, 5\]"),
        (lambda: losses.sam(*TENSORS[:2], TENSORS[2].float()), "own is torch.float32 -> give bool values"),
        (lambda: losses.sam(TENSORS[0], TENSORS[2], TENSORS[2]), "relevance is torch.bool -> give real values"),
        (lambda: losses.sam(TENSORS[0], None, TENSORS[2]), "asks for `relevance`, .* -> give it: labels.block"),
        (lambda: losses.sam(*TENSORS[:2], torch.zeros_like(TENSORS[2])), "a batch without pairs -> mark each image's"),
        (lambda: losses.sam(MASKED, known=TENSORS[3]), "loss 'sam' of a ScoredBatch is given known too -> put it"),
        (lambda: losses.info_nce(TENSORS[0], TENSORS[2], TENSORS[1]), "of own targets takes no relevance -> give t"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(build, message):
    with pytest.raises(InputError, match=message):
        build()


PAGE = (ROOT / "docs" / "losses.md").read_text(encoding="utf-8")
TABLE = PAGE[PAGE.index("| name | what is summed") : PAGE.index("`of` in a term")].splitlines()[2:]
ROWS = {
    tuple(re.findall(r"`(\w+)`", line.split("|")[1])): line.split("|")[3] for line in TABLE if line
}
OPTION = re.compile(r"`(\w+)` (\[[^]]*\]|[^\s,]+)")  # such as `margin` 0.2


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_options_are_declared_once(name):
    """By the function's signature, which is the library's, a term's and the page's."""
    function = getattr(losses, name)
    cell = next(cell for names, cell in ROWS.items() if name in names)
    parameters = inspect.signature(function).parameters
    assert LOSSES[name].function is function
    declared = {key: one.default for key, one in parameters.items() if one.kind is one.KEYWORD_ONLY}
    assert LOSSES[name].defaults == declared
    plain = {
        key: list(value) if isinstance(value, tuple) else value for key, value in declared.items()
    }
    assert {key: yaml.safe_load(value) for key, value in OPTION.findall(cell)} == plain
    if name in FUNCTIONS:
        shown = pydoc.plain(pydoc.render_doc(function))
        assert f"{name}(scores: 'ScoreMatrix', " in shown and "`capgrade.losses`" in shown
        assert all(f"{key}: " in shown and repr(value) in shown for key, value in declared.items())


def test_modules_learn_what_they_are_for():
    batch = batch_of(4, masked=True)
    arguments = batch.scores, batch.relevance, batch.own, batch.known, batch.weights
    assert not any(one.requires_grad for one in losses.Sigmoid(learn=False).parameters())
    assert float(losses.Sam(tau=2.0)(*arguments[:3])) == float(losses.sam(*arguments[:3], tau=2.0))
    for module, given_ in (
        (losses.InfoNCE(), arguments[:1]),
        (losses.SoftInfoNCE(), arguments[:4]),
        (losses.Sigmoid(), arguments),
    ):
        before = module(*given_)
        before.backward()
        assert all(p.grad is not None and p.grad.abs() > 0 for p in module.parameters())
        torch.optim.SGD(module.parameters(), lr=1e-3).step()
        assert float(module(*given_).detach()) < float(before.detach())
