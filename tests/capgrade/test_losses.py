"""The losses as people call them: batches of any shape against loops over their pairs, dtypes, refusals, modules."""

from __future__ import annotations

import inspect
import math
import pydoc
import re

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade import losses
from capgrade.losses import COUNTED, DEFAULTS, LOSSES, Terms
from capgrade.losses.base import ScoredBatch
from capgrade.schemas.errors import InputError
from tests.conftest import ROOT

FUNCTIONS = {name: getattr(losses, name) for name in losses.__all__ if name in LOSSES}
GRADED = [name for name, call in FUNCTIONS.items() if list(inspect.signature(call).parameters)[1] == "relevance"]
PLAIN = [name for name in FUNCTIONS if name not in GRADED]
MODULES = {"InfoNCE": "info_nce", "SoftInfoNCE": "soft_info_nce", "Sigmoid": "sigmoid"}
SMOOTH = {"daa": {"temperature": 0.05}, "smooth_ap": {"temperature": 0.1}}


def tensors_of(function):
    return [key for key, one in inspect.signature(function).parameters.items() if one.kind == one.POSITIONAL_OR_KEYWORD]


def batch_of(seed: int, images: int, captions: int, masked: bool = True):
    """Every image has a caption or more; some captions are nobody's."""
    rng = np.random.default_rng(seed)
    own = np.zeros((images, captions), bool)
    owner = np.concatenate([np.arange(images), rng.integers(-1, images, captions - images)])
    own[owner[owner >= 0], np.flatnonzero(owner >= 0)] = True
    relevance = np.where(own, 1, rng.uniform(-0.5, 0.95, own.shape))
    known = own | (rng.random(own.shape) < 0.6)
    scores = torch.tensor(rng.uniform(-1, 1, own.shape))
    return scores, torch.tensor(relevance), torch.tensor(own), torch.tensor(known) if masked else None


def weights_of(own, known):
    """A known pair stands for one or more, an own one for itself."""
    rows, columns = (torch.arange(size) for size in own.shape)
    several = 1 + (3 * rows[:, None] + columns) % 4
    return several.where(known, 0).where(~own, 1).double()


def call(name, scores, relevance, own, known, **options):
    graded = (relevance, own, known) if name in GRADED else (own,)
    if name in COUNTED and known is not None:
        graded = (*graded, weights_of(own, known))
    return FUNCTIONS[name](scores, *graded, **{**SMOOTH.get(name, {}), **options})


def pairs_of(own):
    return [(i, j) for i in range(len(own)) for j in range(own.shape[1]) if own[i, j]]


def loop_triplet(S, R, own, known, margin=0.2):
    """VSE++, eq. 6, for every pair of an image and one of its captions."""
    total = 0.0
    for i, c in pairs_of(own):
        total += max([max(0, margin + S[i, j] - S[i, c]) for j in range(S.shape[1]) if j != c], default=0)
        total += max([max(0, margin + S[k, c] - S[i, c]) for k in range(len(S)) if k != i], default=0)
    return total


def loop_sam(S, R, own, known, tau=10.0):
    """Biten et al., eq. 7; the first caption of known relevance of a negative image stands for it, and what is own is
    positive, so no negative."""
    total = 0.0
    for i, c in pairs_of(own):
        captions = [j for j in range(S.shape[1]) if not own[i, j] and known[i, j]]
        if captions:
            m = max(captions, key=lambda j: S[i, j])
            total += max(0, (R[i, c] - R[i, m]) / tau + S[i, m] - S[i, c])
        images = [(k, j) for k, j in pairs_of(own) if not own[k, c] and known[i, j]]
        if images:
            k, j = max(images, key=lambda image: S[image[0], c])
            total += max(0, (R[i, c] - R[i, j]) / tau + S[k, c] - S[i, c])
    return total


def loop_soft(S, R, own, known, temperature=0.05, softness=0.1):
    """Cross-entropy of two softmaxes, each over what is known and the pair; the mean over pairs, of both directions."""
    total, pairs = 0.0, pairs_of(own)
    for i, c in pairs:
        rows = [(R[i, j], S[i, j]) for j in range(S.shape[1]) if known[i, j] or j == c]
        columns = [(R[k, c], S[k, c]) for k in range(len(S)) if known[k, c] or k == i]
        for some in (rows, columns):
            norm = math.log(sum(math.exp(s / temperature) for _, s in some))
            whole = sum(math.exp(r / softness) for r, _ in some)
            total -= sum(math.exp(r / softness) / whole * (s / temperature - norm) for r, s in some)
    return total / len(pairs) / 2


def candidates_of(*matrices):
    """For each pair and direction: its place among the candidates, and their scores, relevance, and what is known."""
    for i, c in pairs_of(matrices[2]):
        yield c, *(matrix[i] for matrix in matrices if matrix is not matrices[2])
        yield i, *(matrix[:, c] for matrix in matrices if matrix is not matrices[2])


def loop_info(S, R, own, known, temperature=0.05):
    """CLIP's cross-entropy, the pair itself as target; the mean over pairs, of both directions."""
    found = [
        math.log(sum(math.exp((s - scores[at]) / temperature) for s in scores))
        for at, scores, _, _ in candidates_of(S, R, own, known)
    ]
    return sum(found) / len(found)


def loop_sigmoid(S, R, own, known, temperature=0.1, bias=-10.0):
    """Zhai et al., section 3.2: log 1 / (1 + exp(z (-t x + b))) of every cell, with y and 1 - y for z = 1 and -1; a
    known cell as often as it stands for."""
    total, weights = 0.0, weights_of(torch.tensor(own), torch.tensor(known)).numpy()
    for i in range(len(S)):
        for j in range(S.shape[1]):
            x, y = S[i, j] / temperature + bias, 1 if own[i, j] else min(max(R[i, j], 0), 1)
            if own[i, j] or known[i, j]:
                total += weights[i, j] * (y * math.log1p(math.exp(-x)) + (1 - y) * math.log1p(math.exp(x)))
    return total / len(S)


def loop_triplet_sn(S, R, own, known, margin=0.2, gamma=50.0):
    """BCLS, eq. 14 and 15."""
    total = 0.0
    for at, scores, relevance, seen in candidates_of(S, R, own, known):
        less = [math.exp(gamma * s) for s, r, k in zip(scores, relevance, seen, strict=True) if k and r < relevance[at]]
        if less:
            total += max(0, math.log(sum(less)) / gamma - scores[at] + margin)
    return total


def loop_kendall(S, R, own, known, alpha=0.2):
    """BCLS, eq. 5 and 17."""
    total = 0.0
    for _, scores, relevance, seen in candidates_of(S, R, own, known):
        some = [(s, r) for s, r, k in zip(scores, relevance, seen, strict=True) if k]
        total += sum(max(0, s_k - s_j) for s_j, r_j in some for s_k, r_k in some if r_j > r_k + alpha)
    return total


def loop_ladder(S, R, own, known):
    """Zhou et al., eq. 6 and 7: what is above a rung, and what is below it, by its hardest."""
    total = 0.0
    for at, scores, relevance, seen in candidates_of(S, R, own, known):
        for threshold, margin, weight in ((math.inf, 0.2, 1.0), (0.63, 0.01, 0.25)):
            above = {j for j in range(len(scores)) if j == at or (seen[j] and relevance[j] >= threshold)}
            below = [scores[j] for j in range(len(scores)) if seen[j] and j not in above]
            if below:
                total += weight * max(0, margin + max(below) - min(scores[j] for j in above))
    return total


def loop_kendall_windows(S, R, own, known, alpha=0.2, beta=0.1):
    """BCLS, eq. 19 and 20: of each of M windows the closest positive and the hardest negative."""
    total, windows = 0.0, round((2 - alpha) / beta)
    for _, scores, relevance, seen in candidates_of(S, R, own, known):
        for m in range(1, windows + 1):
            low = -1 + m * beta
            positive = [s for s, r, k in zip(scores, relevance, seen, strict=True) if k and r >= low + alpha - 1e-6]
            negative = [s for s, r, k in zip(scores, relevance, seen, strict=True) if k and r <= low + 1e-6]
            if positive and negative:
                total += max(0, max(negative) - min(positive)) / windows
    return total


def soft_rank(values, at, among, temperature, weights=None):
    """DAA, eq. 9, and Brown et al., eq. 5: 1, and for each other candidate how far it is above this one, as often as it
    stands for."""
    others = [(a, 1 if weights is None else weights[a]) for a in among if a != at]
    return 1 + sum(w / (1 + math.exp(-max(-50, min(50, (values[a] - values[at]) / temperature)))) for a, w in others)


def loop_daa(S, R, own, known, temperature=0.05):
    """Li et al. 2022, eq. 8 to 10: 1 - the mean of min / max of two ranks, both directions; a query for each pair,
    and a known candidate as often as it stands for."""
    total, weights = 0.0, weights_of(torch.tensor(own), torch.tensor(known)).numpy()
    for way in range(2):
        shares = []
        for _, scores, relevance, seen, count in list(candidates_of(S, R, own, known, weights))[way::2]:
            among = [j for j in range(len(scores)) if seen[j]]
            for j in among:
                ranks = [soft_rank(values, j, among, temperature, count) for values in (scores, relevance)]
                shares.append((count[j], min(ranks) / max(ranks)))
        total += 1 - sum(count * share for count, share in shares) / sum(count for count, _ in shares)
    return total


def loop_smooth_ap(S, R, own, known, temperature=0.1):
    """Brown et al., eq. 6: 1 - the mean over queries, one for each pair, of the mean over positives of two ranks."""
    total, pairs = 0.0, pairs_of(own)
    for queries in ([(S[i], own[i]) for i, _ in pairs], [(S[:, c], own[:, c]) for _, c in pairs]):
        for scores, mine in queries:
            positives, everything = np.flatnonzero(mine), range(len(scores))
            ranks = [[soft_rank(scores, j, a, temperature) for a in (positives, everything)] for j in positives]
            total -= sum(few / all_ for few, all_ in ranks) / len(positives) / len(pairs)
        total += 1
    return total


LOOPS = {
    "triplet": loop_triplet, "soft_info_nce": loop_soft, "info_nce": loop_info, "sigmoid": loop_sigmoid,
    "triplet_sn": loop_triplet_sn, "kendall": loop_kendall, "kendall_windows": loop_kendall_windows,
    "ladder": loop_ladder, "sam": loop_sam, "daa": loop_daa, "smooth_ap": loop_smooth_ap,
}  # fmt: skip


def test_every_loss_has_a_loop():
    assert LOOPS.keys() == FUNCTIONS.keys()


@pytest.mark.parametrize(("name", "loop"), LOOPS.items())
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), images=st.integers(1, 5), more=st.integers(1, 6))
def test_a_batch_of_any_shape_is_the_loop_over_its_pairs(name, loop, seed, images, more):
    scores, relevance, own, known = batch_of(seed, images, images + more)
    expected = loop(*(x.numpy() for x in (scores, relevance, own, known)))
    assert float(call(name, scores, relevance, own, known)) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", GRADED)
def test_a_caption_of_unknown_relevance_that_is_nobodys_changes_nothing(name):
    """The rectangular batch against the square one, which is held against the papers' equations."""
    scores, relevance, own, known = batch_of(3, 6, 6)
    wide = [torch.cat([x, x[:, :1]], dim=1) for x in (scores, relevance, own, known)]
    wide[2][:, -1] = wide[3][:, -1] = False
    assert float(call(name, *wide)) == pytest.approx(float(call(name, scores, relevance, own, known)), rel=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_order_of_images_and_captions_does_not_matter(name):
    scores, relevance, own, known = batch_of(5, 5, 9, masked=False)
    rows, columns = torch.tensor([3, 0, 4, 1, 2]), torch.tensor([8, 1, 0, 5, 2, 4, 3, 7, 6])
    if name == "sam":  # towards images the first caption of an image counts
        columns = torch.arange(9)
    moved = [x[rows][:, columns] for x in (scores, relevance, own)]
    if name == "sam":
        assert float(call(name, *moved, None)) > 0
    assert float(call(name, *moved, None)) == pytest.approx(float(call(name, scores, relevance, own, known)), rel=1e-4)


@pytest.mark.parametrize("name", GRADED)
def test_only_losses_that_are_said_to_count_candidates_look_at_weights(name):
    scores, relevance, own, known = batch_of(1, 6, 6)
    term = {"name": name, **SMOOTH.get(name, {})}
    heavy, light = (
        float(Terms([term])(ScoredBatch(scores, own, relevance, known, weights)))
        for weights in (weights_of(own, known), known.double())
    )
    assert (abs(heavy - light) > 1e-3) == (name in COUNTED)
    assert ("weights" in tensors_of(FUNCTIONS[name])) == (name in COUNTED)


PAGE = (ROOT / "docs" / "losses.md").read_text(encoding="utf-8")
TABLE = PAGE[PAGE.index("| name | what is summed") : PAGE.index("`of` in a term")].splitlines()[2:]
ROWS = {tuple(re.findall(r"`(\w+)`", line.split("|")[1])): line.split("|")[3] for line in TABLE if line}
OPTION = re.compile(r"`(\w+)` (\[[^]]*\]|[^\s,]+)")  # such as `margin` 0.2


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_page_has_every_option_with_its_default(name):
    """`DEFAULTS` is read off the functions of the trainer: nothing else declares one."""
    cell = next(cell for names, cell in ROWS.items() if name in names)
    assert {key: yaml.safe_load(value) for key, value in OPTION.findall(cell)} == {
        key: list(value) if isinstance(value, tuple) else value for key, value in DEFAULTS[name].items()
    }


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_term_and_the_library_call_the_same_function(name):
    assert LOSSES[name].function is getattr(losses, name)
    assert DEFAULTS[name] == {
        key: one.default for key, one in inspect.signature(getattr(losses, name)).parameters.items() if one.kind == 3
    }


@pytest.mark.parametrize(("module", "name"), MODULES.items())
def test_an_option_of_a_module_has_the_losses_default(module, name):
    found = {key: one.default for key, one in inspect.signature(getattr(losses, module)).parameters.items()}
    mine = found.keys() - {"learn"}
    assert {key: found[key] for key in mine} == {key: DEFAULTS[name][key] for key in mine}
    assert DEFAULTS[name].keys() - mine <= {"targets"} | ({"softness"} if name == "info_nce" else set())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_shows_tensors_and_options(name):
    """The declared signature, not that of what checks it; types and all."""
    shown = pydoc.plain(pydoc.render_doc(getattr(losses, name)))
    assert f"{name}(scores: 'Scores', " in shown and "`capgrade.losses`" in shown
    assert all(f"{key}: " in shown and repr(value) in shown for key, value in DEFAULTS[name].items())


def test_a_scored_batch_takes_the_place_of_tensors():
    scores, relevance, own, known = batch_of(4, 5, 8)
    batch = ScoredBatch(scores, own, relevance, known)
    assert float(losses.sam(batch, tau=2.0)) == float(losses.sam(scores, relevance, own, known, tau=2.0))
    with pytest.raises(InputError, match="loss 'sam' of a ScoredBatch is given known too -> put it into the batch"):
        losses.sam(batch, known=known)
    with pytest.raises(InputError, match="loss 'info_nce' of own targets takes no relevance -> give targets="):
        losses.info_nce(scores, own, relevance)


def test_every_loss_of_scores_is_public():
    assert {name for name, loss in LOSSES.items() if loss.needs in (None, "relevance")} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_go_into_scores_alone_and_autocast_changes_nothing(name):
    scores, relevance, own, known = batch_of(2, 6, 6)
    scores, relevance = scores.float().requires_grad_(), relevance.float().requires_grad_()
    call(name, scores, relevance, own, known).backward()
    assert scores.grad is not None and torch.isfinite(scores.grad).all() and relevance.grad is None
    with torch.autocast("cpu", torch.bfloat16):
        under = call(name, scores, relevance, own, known)
    assert under.dtype == torch.float32
    assert float(under.detach()) == pytest.approx(float(call(name, scores, relevance, own, known).detach()), rel=1e-6)


def test_what_does_not_fit_is_named():
    scores, relevance, own, known = batch_of(0, 3, 5)
    for arguments, message in (
        ((scores.numpy(), relevance), "scores is ndarray, not a torch tensor -> torch.from_numpy"),
        ((scores, relevance), "3 images and 5 captions, and nothing says which belong together -> give own"),
        ((scores, relevance[:, :4], own), r"relevance is \[3, 4\], scores \[3, 5\]"),
        ((scores, relevance, own.float()), "own is torch.float32 -> give bool values"),
        ((scores, own, own), "relevance is torch.bool -> give real values"),
        ((scores, None, own), "loss 'sam' needs relevance"),
        ((scores, relevance, torch.zeros_like(own)), "a batch without pairs -> mark each image's own captions"),
    ):
        with pytest.raises(InputError, match=message):
            losses.sam(*arguments)
    with pytest.raises(InputError, match="option 'tau' of loss 'sam' is 0: Input should be greater than 0"):
        losses.sam(scores, relevance, own, tau=0)
    with pytest.raises(InputError, match="form authors, is written for square batches"):
        losses.sam(scores, relevance, own, form="authors")
    for name in COUNTED:
        with pytest.raises(InputError, match=f"'{name}' counts how many pairs each known one stands for, and weights"):
            FUNCTIONS[name](scores, relevance, own, known)
    with pytest.raises(InputError, match="'sigmoid' has low 1 and high 0"):
        losses.sigmoid(scores, relevance, own, low=1, high=0)


@pytest.mark.parametrize("name", GRADED)
def test_nan_in_what_is_known_is_not_passed_over(name):
    scores, relevance, own, known = batch_of(1, 5, 5)
    relevance[0, 3] = math.nan
    known[0, 3] = False
    assert math.isfinite(float(call(name, scores, relevance, own, known)))
    known[0, 3] = True
    assert math.isnan(float(call(name, scores, relevance, own, known)))


def test_modules_learn_what_they_are_for():
    scores, relevance, own, known = batch_of(4, 6, 6)
    assert float(losses.Sam(tau=2.0)(scores, relevance)) == float(losses.sam(scores, relevance, tau=2.0))
    for module, arguments in (
        (losses.InfoNCE(), (scores,)), (losses.SoftInfoNCE(), (scores, relevance, own, known)),
        (losses.Sigmoid(), (scores, relevance, own, known, weights_of(own, known))),
    ):  # fmt: skip
        before = module(*arguments)
        before.backward()
        assert all(p.grad is not None and p.grad.abs() > 0 for p in module.parameters())
        torch.optim.SGD(module.parameters(), lr=1e-3).step()
        assert float(module(*arguments).detach()) < float(before.detach())
    with pytest.raises(InputError, match="loss 'sam' has no option 'tua'"):
        losses.Sam(tua=1)
    with pytest.raises(InputError, match="temperature 0"):
        losses.InfoNCE(0)
