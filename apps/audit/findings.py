"""How good an audit's list is: how many pairs are listed, what share of them is right, and what
share of all that is right is listed. By a referee, who knows of some pairs whether they are right,
or as P expects."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from capgrade.agreement.calibration import scale_of
from capgrade.agreement.judgement_files import read_judgements
from capgrade.apps.audit.estimate import PairCounts
from capgrade.pipelines.stages.agree import AgreeParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.judges import RANDOM, TRUTH, parse_scale
from capgrade.schemas.pairs import Pairs
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.reviews import POOL, read_all_ratings, read_plan

EVERY = "every"  # sampling of judgements that have every pair
TRUTH_ACCEPT = 0.9  # true relevance of a right pair: nearly all that the caption says is so
_Z = 1.96  # standard errors of a 95 % interval
_LEAST_FREEDOM = 4  # of a variance between groups


@dataclass(frozen=True)
class Share:
    """A share, with the ends of its 95 % interval where it is an estimate that has one."""

    share: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Findings:
    """What is said of a list of pairs. `right` of the `examined` pairs among the listed ones are
    right, and `all_right` of all pairs, listed or not: counts, or sums of P or of weights."""

    listed: int
    examined: float
    right: float
    all_right: float
    precision: Share | None  # right / examined; None of no pairs
    found: Share | None  # right / all_right

    def json(self) -> dict[str, Any]:
        """As the audit's figures have it, with `missed`, the right pairs that are not listed."""
        return {
            "listed": self.listed,
            "examined": self.examined,
            "right": self.right,
            "missed": self.all_right - self.right,
            "all_right": self.all_right,
            "share_right": None if self.precision is None else vars(self.precision),
            "share_found": None if self.found is None else vars(self.found),
        }


@dataclass(frozen=True)
class Referee:
    """Pairs of other captions that were judged, each once, with whether it is right as the value,
    bool. Right is a score of `accept` or more on the scale `low` to `high`."""

    file: str
    truth: bool  # of generated scenes, not of people
    sampling: str  # EVERY, RANDOM or CHOSEN
    accept: float
    low: float
    high: float
    pairs: Pairs

    def facts(self) -> dict[str, Any]:
        """What the figures say of it."""
        names = ("file", "truth", "sampling", "accept", "low", "high")
        return {**{name: getattr(self, name) for name in names}, "pairs": len(self.pairs)}

    def examine(self, listed: Pairs) -> Findings:
        """What it says of the listed pairs, each of which is there once."""
        judged, right = self.pairs, self.pairs.value
        on_list = listed.rows_of(judged.image, judged.caption) >= 0
        rows_of_sums = on_list, on_list & right, right
        examined, found_right, all_right = (float(judged.weight[k].sum()) for k in rows_of_sums)
        is_sample = self.sampling != EVERY
        precision, found = (
            share_of(values[rows], judged.weight[rows], judged.image[rows], is_sample)
            for values, rows in ((right, on_list), (on_list, right))
        )
        return Findings(len(listed), examined, found_right, all_right, precision, found)


def share_of(
    yes: np.ndarray, weight: np.ndarray, group: np.ndarray, is_sample: bool = True
) -> Share | None:
    """The weighted share of `yes`, bool [n]; None of no pairs. The interval of a sample is Wilson's
    (1927), for as many independent pairs as would have the variance between groups, int [n]: pairs
    of one image are alike (Korn and Graubard 1998). A few groups tell little of that variance, so
    Student's t is taken, as `share_interval` does. Where all agree, a group counts as one pair."""
    if not len(yes):
        return None
    total = weight.sum()
    share = float((weight * yes).sum() / total)
    if not is_sample:
        return Share(share)
    groups = np.unique(group, return_inverse=True)[1]
    weight_of_group = np.bincount(groups, weight)
    independent, width = total**2 / (weight_of_group**2).sum(), _Z
    n = len(weight_of_group)
    if 0 < share < 1 and n > 1:
        squares = np.bincount(groups, weight * (yes - share)) ** 2
        variance = n / (n - 1) * squares.sum() / total**2
        # Chance may make pairs of a group less alike than independent ones: that is not counted.
        independent = min(share * (1 - share) / variance, total**2 / (weight**2).sum())
        kurtosis = n * (squares**2).sum() / squares.sum() ** 2
        width = stdtrit(max(2 * n / max(kurtosis - 1, 1e-6), _LEAST_FREEDOM), 0.975)
    z = width**2 / independent
    middle = (share + z / 2) / (1 + z)
    half = np.sqrt(z * share * (1 - share) + z**2 / 4) / (1 + z)
    return Share(share, float(max(middle - half, 0.0)), float(min(middle + half, 1.0)))


def expected_findings(
    listed: PairCounts, others: PairCounts, n_listed: int, is_random: bool
) -> Findings:
    """What P expects of the listed pairs and of all others. It has intervals where the calibration
    is on random pairs; P of chosen ones is too high, by an unknown amount."""
    right = float(listed.expected_accepted().sum())
    all_right = right + float(others.expected_accepted().sum())
    ends: list[list[float]] = [[], []]
    if is_random and n_listed and all_right:
        drawn, beside = listed.draw_sums(0).clip(0, n_listed), others.draw_sums(1).clip(0)
        wholes = n_listed, np.maximum(drawn + beside, 1e-9)
        # Pairs are whole: half a pair more at either end (Yates 1934).
        ends = [
            [
                float(np.quantile(((drawn + half) / whole).clip(0, 1), tail))
                for half, tail in ((-0.5, 0.025), (0.5, 0.975))
            ]
            for whole in wholes
        ]
    precision = Share(right / n_listed, *ends[0]) if n_listed else None
    found = Share(right / all_right, *ends[1]) if all_right else None
    return Findings(n_listed, n_listed, right, all_right, precision, found)


def read_referee(path: Path, captions: Captions, agree: AgreeParams) -> Referee:
    """Judgements as `capgrade agree` reads them, by its `accept`, `scale` and `sampling`; the truth
    accepts from TRUTH_ACCEPT on. InputError as `read_judgements` and `scale_of`."""
    people = read_judgements(path, captions, parse_scale(agree.scale) if agree.scale else None)
    is_truth = path.suffix == ".arrow" and read_relevance(path).metadata.get("measure") == TRUTH
    accept = TRUTH_ACCEPT if is_truth and agree.accept is None else agree.accept
    scale = scale_of(people, accept, path)
    pairs = people.means(captions.n_captions).of_others(captions.owner)
    # Dense files have float32, in which 0.9 is a little less than 0.9.
    pairs = pairs.valued(pairs.value.astype(np.float32) >= np.float32(scale.accept))
    sampling = agree.sampling or people.sampling
    if len(pairs) == (captions.n_images - 1) * captions.n_captions:
        sampling = EVERY
    elif path.is_dir() and (stood_for := _pairs_stood_for(path)):
        sampling = RANDOM
        rows = zip(pairs.image.tolist(), pairs.caption.tolist(), strict=True)
        weight = [stood_for[captions.image_ids[i], captions.caption_ids[c]] for i, c in rows]
        pairs = replace(pairs, weight=np.array(weight))
    return Referee(path.name, is_truth, sampling, scale.accept, scale.low, scale.high, pairs)


def _pairs_stood_for(folder: Path) -> dict[tuple[str, str], float]:
    """As how many pairs each rated pair of a pool counts; empty for another review, and where a
    stratum has no rating, which nothing then stands for."""
    plan = read_plan(folder)
    if plan.protocol != POOL:
        return {}
    rated = set().union(*read_all_ratings(folder, plan).values())
    strata = plan.facts["strata"]
    n_rated = {name: sum(plan.items[item].stratum == name for item in rated) for name in strata}
    if any(not n_rated[name] for name, facts in strata.items() if facts["pairs"]):
        return {}
    items = [plan.items[k] for k in rated]
    return {
        (item.image_id, item.caption_id): strata[item.stratum]["pairs"] / n_rated[item.stratum]
        for item in items
    }
