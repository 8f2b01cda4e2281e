"""Tops of ROUGE-L by bounds are those of all pairs: the same captions, the same bits, ties included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.captions import captions as stage
from capgrade.pipelines.measures.rouge import FittedRougeL, RougeL
from capgrade.pipelines.measures.tops.every import every_pair
from capgrade.pipelines.measures.tops.find import EveryPair, finder
from capgrade.pipelines.measures.tops.listed import listed_values
from capgrade.pipelines.measures.tops.rouge import RougeTops
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.params import CaptionsParams, RougeParams
from tests.conftest import DATA, make_captions, random_sets
from tests.pipelines.measures.tops.same import ties

FLICKR = DATA / "flickr30k" / "train.en.token"


def assert_same(fitted: FittedRougeL, images: np.ndarray, k: int) -> np.ndarray:
    n = len(fitted.ptr) - 1
    found, full = finder(fitted, ties(n)).tops(images, k), every_pair(fitted, images, k, ties(n))
    np.testing.assert_array_equal(found.rows, full.rows)
    assert found.values.tobytes() == full.values.tobytes()
    return found.pairs


def sets_of_all_lengths(images: int, seed: int, words: int) -> list[list[str]]:
    """Captions of up to `words` words of few different ones, some twice, some again in another order, one empty."""
    rng = np.random.default_rng(seed)
    sets = random_sets(images, seed=seed, least=2)
    for k in range(0, images, 2):
        size = int(rng.integers(1, words + 1))
        text = rng.choice([f"w{j}" for j in range(size // 2 + 2)], size)
        sets[k] = [" ".join(text), " ".join(rng.permutation(text)), sets[k - 1][0]]
    sets[1][0] = ""
    return sets


@settings(max_examples=25, deadline=None)
@given(
    st.integers(20, 100), st.integers(0, 10_000), st.integers(1, 12), st.booleans(), st.sampled_from(["max", "mean"]),
    st.sampled_from([0.3, 1.2, 4.0]), st.sampled_from([12, 90]),
)  # fmt: skip
def test_tops_are_those_of_all_pairs(
    images: int, seed: int, k: int, left_out: bool, references: str, beta: float, words: int
) -> None:
    reference = "left_out" if left_out else "included"
    params = RougeParams(beta=beta, references=references, self_reference=reference)
    fitted = RougeL(params).fit(make_captions(sets_of_all_lengths(images, seed, words)))
    assert isinstance(finder(fitted, ties(fitted)), RougeTops)
    some = np.arange(0, images, 2)
    assert_same(fitted, some, k)
    rows = np.sort(np.random.default_rng(seed).permutation(len(fitted.ptr) - 1)[:20])
    found = listed_values(finder(fitted, ties(fitted)), some, 20 * np.arange(len(some) + 1), np.tile(rows, len(some)))
    assert found.tobytes() == np.ascontiguousarray(fitted.score(some)[:, rows]).tobytes()


def test_captions_of_too_many_words_are_left_to_all_pairs() -> None:
    sets = random_sets(5, seed=3)
    sets[0][0] = " ".join(f"word{k}" for k in range(256))
    assert isinstance(finder(RougeL(RougeParams()).fit(make_captions(sets)), ties(5)), EveryPair)


def test_more_captions_than_there_are() -> None:
    fitted = RougeL(RougeParams()).fit(make_captions(random_sets(12, seed=4)))
    assert_same(fitted, np.arange(12), 500)


@pytest.fixture(scope="module")
def flickr(tmp_path_factory: pytest.TempPathFactory) -> Captions:
    """Two thousand images."""
    if not FLICKR.is_file():
        pytest.skip("Flickr30K is not here")
    folder = tmp_path_factory.mktemp("flickr")
    lines = FLICKR.read_text(encoding="utf-8").splitlines(keepends=True)[:10_000]
    (folder / "some.token").write_text("".join(lines), encoding="utf-8")
    stage(folder / "captions", CaptionsParams(source="flickr", input=str(folder / "some.token"), split="train"))
    return read_captions(folder / "captions")


@pytest.mark.parametrize("references", ["max", "mean"])
def test_real_captions_have_the_same_tops_with_few_pairs(flickr: Captions, references: str) -> None:
    fitted = RougeL(RougeParams(references=references)).fit(flickr)
    pairs = assert_same(fitted, np.arange(0, flickr.n_images, 40), 16)
    assert pairs.mean() < flickr.n_captions / 10


def test_bounds_that_are_too_low_would_be_seen(flickr: Captions) -> None:
    """The comparison can fail: with the common tokens forgotten, some tops differ."""
    broken = RougeTops(RougeL(RougeParams()).fit(flickr), ties(flickr))
    object.__setattr__(
        broken, "__dict__", {**broken.__dict__, "index": broken.index._replace(bits=0 * broken.index.bits)}
    )
    images = np.arange(0, flickr.n_images, 40)
    full = every_pair(broken.fitted, images, 16, ties(flickr.n_captions))
    assert not np.array_equal(broken.tops(images, 16).rows, full.rows)
