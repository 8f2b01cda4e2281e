"""The human ceiling: how well one rater agrees with the mean of the others on the same pairs."""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.agreement.coefficients import Row, coefficients
from capgrade.pipelines.agreement.ratings import Judgements, Ratings

NO_RATERS: dict[str, object] = {
    **{name: {} for name in ("pearson", "spearman", "kendall", "kendall_c")}, "pairs": 0, "ratings": 1.0,
}  # fmt: skip
DRAWS = 20  # each draw takes one of a pair's ratings as the rater's


def human(people: Judgements, original: np.ndarray, seed: int = 0) -> dict[str, object]:
    """The coefficients of `coefficients`, with one rating of each pair in the place of a measure and the mean of the
    pair's others in that of the score; the mean of DRAWS draws of that rating. Pairs of one rating are left out.

    Files that do not name raters cannot tell them apart, so a rating is drawn from each pair alike. `pairs` is how
    many have several ratings, `ratings` how many of these a pair has on average; the coefficients are empty without.
    """
    several = np.flatnonzero(people.ratings.counts > 1) if people.ratings is not None else np.empty(0, np.int64)
    if people.ratings is None or not len(several):
        return NO_RATERS
    random = np.random.default_rng(seed)
    rows = [_one_against_others(people, several, original[several], random) for _ in range(DRAWS)]
    mean = {
        name: {scope: float(np.mean([row[name][scope] for row in rows if scope in row[name]])) for scope in found}
        for name, found in rows[0].items()
    }
    return {**mean, "pairs": len(several), "ratings": float(people.ratings.counts[several].mean())}


def _one_against_others(
    people: Judgements, pairs: np.ndarray, original: np.ndarray, random: np.random.Generator
) -> Row:
    ratings = people.ratings
    assert isinstance(ratings, Ratings)
    counts = ratings.counts[pairs]
    one = ratings.value[ratings.ptr[pairs] + random.integers(counts)]
    others = (ratings.means[pairs] * counts - one) / (counts - 1)
    return coefficients(one, Judgements(people.image[pairs], people.caption[pairs], others), original)
