"""Who ranks what first, and the three kinds of disagreement, against plain loops."""

import io
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from capgrade.apps.explorer.answers import (
    LONELY_NOTE,
    TYPED_NOTE,
    UNKNOWN_NOTE,
    Answer,
    Explorer,
    RankedItem,
    rank_best,
)
from capgrade.apps.explorer.models import ModelVoice, open_model_voice
from capgrade.apps.explorer.pairs import PEOPLE_SCORES, RANK
from capgrade.apps.explorer.voices import DEPTH, make_matrix_voice
from capgrade.measures import choose
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.detectors.catalogue import make_detector
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from tests.apps.explorer.conftest import NAMES, explorer_of
from tests.conftest import make_captions, random_sets

CAPTIONS = make_captions(random_sets(14, seed=9, least=2))


def _model(missing: int = 0) -> ModelVoice:
    """A model whose index lists the images backwards and lacks the first `missing` ones with their
    captions."""
    scores = (
        np.random.default_rng(1)
        .normal(size=(CAPTIONS.n_images, CAPTIONS.n_captions))
        .astype(np.float32)
    )
    image = CAPTIONS.n_images - 1 - np.arange(CAPTIONS.n_images)
    caption = np.arange(CAPTIONS.n_captions)
    image[:missing] = -1
    caption[CAPTIONS.owner < missing] = -1
    searcher: Any = SimpleNamespace(
        score_caption=lambda row: scores[:, row], score_image=lambda image: scores[image],
        score_text=lambda text: scores[:, len(text) % scores.shape[1]], score_regions=lambda _: scores[0],
    )  # fmt: skip
    return ModelVoice("model", scores, image, caption, searcher=searcher)


@pytest.fixture
def explorer(tmp_path: Path) -> Explorer:
    return explorer_of(CAPTIONS, tmp_path, models=[_model(3)])


def test_images_for_captions_typed_and_known(explorer: Explorer) -> None:
    typed, known = explorer.answer_text(CAPTIONS.texts[7]), explorer.answer_caption(7)
    for name, asked, picked in zip(NAMES, typed, known, strict=False):
        scores = choose([name], MeasuresParams())[name].fit(CAPTIONS).score(np.arange(14))[:, 7]
        scores[CAPTIONS.owner[7]] = _left_out(name, CAPTIONS, int(CAPTIONS.owner[7]), 7)
        first = np.argsort(-scores, kind="stable")[:8].tolist()
        assert [hit.number for hit in picked.hits] == first
        np.testing.assert_allclose([hit.score for hit in asked.hits], scores[first], atol=1e-5)
        assert all(hit.own == (hit.number == CAPTIONS.owner[7]) for hit in asked.hits)
    assert typed[2].voice == "model"
    assert all(hit.number >= 3 for hit in typed[2].hits), "its index lacks the first three"


def test_captions_for_an_image(explorer: Explorer) -> None:
    for answer in explorer.answer_image(5, count=50)[:2]:
        assert {hit.number for hit in answer.hits if hit.own} == set(
            np.flatnonzero(CAPTIONS.owner == 5).tolist()
        )
        assert len(answer.hits) == min(50, CAPTIONS.n_captions)
    unknown = explorer.answer_image(0)[2]
    assert (unknown.hits, unknown.note) == ((), UNKNOWN_NOTE)


@pytest.mark.parametrize("seed", range(5))
def test_ranks_and_ties_by_loops(seed: int) -> None:
    """Scores that five digits do not tell apart are tied."""
    random = np.random.default_rng(seed)
    scores = random.integers(4, size=20) + random.random(20) / 1e6
    scores[[3, 5]] = np.nan
    hits, more = rank_best(scores, 6, {1})
    ordered = sorted((k for k in range(20) if scores[k] >= 0), key=lambda k: (-scores[k], k))
    assert [hit.number for hit in hits] == ordered[:6]
    for hit in hits:
        whole = round(hit.score)
        assert hit.rank == 1 + sum(s > whole + 0.5 for s in scores) and hit.own == (hit.number == 1)
        assert hit.tied == (sum(abs(s - whole) < 0.5 for s in scores) > 1)
    assert more == sum(abs(scores[k] - whole) < 0.5 for k in ordered[6:])
    assert rank_best(np.full(3, np.nan), 6, set()) == ((), 0)


def test_measures_apart(explorer: Explorer) -> None:
    pairs = explorer._labelled
    first = explorer.disagreements("measures", "cider", "rouge_l", 5)[0]
    high, low = ((stats.rankdata(pairs.values[name]) - 0.5) / len(pairs) for name in NAMES)
    row = np.flatnonzero((pairs.image == first.image) & (pairs.caption == first.caption))[0]
    assert (high - low)[row] == (high - low).max() and high[row] > 0.5 > low[row]
    assert {name: first.values[name] for name in NAMES} == {
        name: pairs.values[name][row] for name in NAMES
    }
    ends = np.ceil(100 * (1 - high[row])), np.ceil(100 * low[row])
    said = zip(NAMES, ("highest", "lowest"), ends, strict=True)
    assert first.statements == tuple(
        f"{name}: among the {side} {max(end, 1):.0f}%" for name, side, end in said
    )


def test_two_models_apart_and_side_by_side(tmp_path: Path) -> None:
    """Of two matrices: the pair that one ranks highest above the other among the labelled ones; and
    of each caption what both rank first, with the other's rank, by a sort. Neither answers words.
    """
    random = np.random.default_rng(4)
    scores = {
        name: random.integers(9, size=(14, CAPTIONS.n_captions)).astype(np.float32) for name in "ab"
    }
    explorer = explorer_of(
        CAPTIONS, tmp_path, matrices=[make_matrix_voice(*one) for one in scores.items()]
    )
    pairs = explorer.corpus.pairs
    places = {name: stats.rankdata(one[pairs.image, pairs.caption]) for name, one in scores.items()}
    first = explorer.disagreements("measures", "a", "b", 3)[0]
    row = np.flatnonzero((pairs.image == first.image) & (pairs.caption == first.caption))[0]
    apart = places["a"] - places["b"]
    assert apart[row] == apart.max() and first.values.keys() == {*NAMES, "a", "b"}
    for asked, of in ((explorer.answer_caption(7, names=["b", "a"]), lambda one: one[:, 7]),
                      (explorer.answer_image(3, names=["b", "a"]), lambda one: one[3])):  # fmt: skip
        assert [answer.voice for answer in asked] == ["a", "b"]
        for answer, beside in zip(asked, "ba", strict=True):
            other = of(scores[beside]).tolist()
            ranks = [1 + sum(value > other[hit.number] for value in other) for hit in answer.hits]
            assert [hit.other_rank for hit in answer.hits] == ranks
    four = [hit.other_rank for answer in explorer.answer_caption(7) for hit in answer.hits]
    assert four == [None] * 32, "of four at once none"
    assert [
        (answer.hits, answer.note) for answer in explorer.answer_text("a dog", names=["a"])
    ] == [((), TYPED_NOTE)]
    assert explorer.sides("errors")[0] == ["a", "b"]
    with pytest.raises(
        InputError, match="nobody is named 'c' -> near it: cider; choose from: cider, rouge_l, a, b"
    ):
        explorer.answer_caption(7, names=["a", "c"])


@pytest.mark.parametrize(("shown", "filled"), [
    ([10, 5, 2.5, 0], [1, 0.5, 0.25, 0]), ([0.422, 0.211], [1, 0.5]), ([0.9, -0.3], [1, 0]),
    ([-2, -5, -8], [1, 0.5, 0]), ([0, 0], [0, 0]), ([4, -np.inf], [1, 0]), ([-1, -np.inf], [0, 0]),
])  # fmt: skip
def test_a_bar_follows_the_values_shown(shown: list[float], filled: list[float]) -> None:
    """The longest is full, whatever a measure could give; a matrix may be of distances below 0."""
    hits = tuple(RankedItem(k, score, k + 1, False, False) for k, score in enumerate(shown))
    answer = Answer("a", "measure", hits, 0.0)
    assert [answer.bar_fill(score) for score in shown] == pytest.approx(filled)


def _left_out(name: str, captions: Captions, image: int, caption: int) -> float:
    """A caption for its own image without itself among the references: as if the image had had one
    caption less, with the document frequencies and words of all."""
    fitted = choose([name], MeasuresParams())[name].fit(captions)
    sets = [captions.rows_of(k) for k in range(captions.n_images)]
    sets[image] = [row for row in sets[image] if row != caption]
    pointer = np.concatenate([[0], np.cumsum([len(some) for some in sets])])
    regrouped = fitted.regroup(pointer, np.array([row for some in sets for row in some]))
    return float(regrouped.pairs(np.array([image]), np.array([caption]))[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_caption_is_not_compared_with_itself(name: str, explorer: Explorer) -> None:
    """On every road to a score: a caption, its words, an image, judged pairs, labelled pairs."""
    image, caption = 5, CAPTIONS.rows_of(5)[1]
    right = pytest.approx(_left_out(name, CAPTIONS, image, caption), abs=1e-5)
    voice = next(voice for voice in explorer.measures if voice.name == name)
    pairs = np.array([image, image + 1]), np.array([caption, caption])
    assert voice.score_caption(caption)[image] == right
    assert voice.score_text(f"  {CAPTIONS.texts[caption]} ")[image] == right
    assert voice.score_image(image)[caption] == right
    assert voice.score_pairs(*pairs)[0] == right
    labelled = explorer._labelled
    row = np.flatnonzero((labelled.image == image) & (labelled.caption == caption))[0]
    assert labelled.values[name][row] == right
    assert explorer.corpus.pairs.values[name][row] > labelled.values[name][row]
    other = ~labelled.is_own(CAPTIONS.owner)
    assert (labelled.values[name][other] == explorer.corpus.pairs.values[name][other]).all()


def test_an_image_with_one_caption_is_said_to_be_left_out(tmp_path: Path) -> None:
    captions = make_captions([["a dog runs"], *random_sets(13, seed=9, least=2)])
    explorer = explorer_of(captions, tmp_path)
    for answer in (explorer.answer_caption(0)[0], explorer.answer_image(0)[0]):
        assert answer.note == LONELY_NOTE and not any(hit.own for hit in answer.hits)
    assert explorer.answer_caption(1)[0].note == ""


def test_labels_and_people(explorer: Explorer) -> None:
    people = explorer.people
    judged = {
        (int(i), int(c)): s
        for i, c, s in zip(people.image, people.caption, people.score, strict=True)
    }
    fitted = choose(["cider"], MeasuresParams())["cider"].fit(CAPTIONS).score(np.arange(14))
    for c, i in enumerate(CAPTIONS.owner.tolist()):
        fitted[i, c] = _left_out("cider", CAPTIONS, i, c)
    for one in explorer.disagreements("people", PEOPLE_SCORES, "cider", 5):
        assert one.values[PEOPLE_SCORES] == judged[one.image, one.caption]
        assert one.values["cider"] == pytest.approx(float(fitted[one.image, one.caption]), abs=1e-5)
    assert all(
        not np.isnan(f.values["model"])
        for f in explorer.disagreements("people", PEOPLE_SCORES, "model", 5)
    )
    for wrong in (("cider", "cider"), ("nobody", "cider")):
        with pytest.raises(InputError, match="choose two different"):
            explorer.disagreements("people", *wrong, 5)


def test_what_a_model_retrieves_find_errors(explorer: Explorer) -> None:
    model = explorer.models[0]
    scores = model.matrix[::-1]  # by image of the corpus
    expected = set()
    for c in np.flatnonzero(CAPTIONS.owner >= 3).tolist():
        first = sorted(range(3, 14), key=lambda i: -scores[i, c])[:DEPTH]
        above = takewhile(lambda i: i != CAPTIONS.owner[c], first)  # noqa: B023  # used at once
        expected |= {(i, c, rank) for rank, i in enumerate(above, start=1)}
    pairs = model.find_errors(explorer.measures[0], CAPTIONS)
    found = zip(
        pairs.image.tolist(),
        pairs.caption.tolist(),
        pairs.values[RANK].astype(int).tolist(),
        strict=True,
    )
    assert set(found) == expected
    assert not pairs.is_own(CAPTIONS.owner).any()
    first = explorer.disagreements("errors", "model", "cider", 3)[0]
    assert first.values["cider"] == pairs.values["cider"].max()
    assert (
        first.statements[0]
        == f"model: rank {first.values[RANK]:.0f}, above the caption's own image"
    )


def test_an_upload_is_ranked_by_the_models(explorer: Explorer) -> None:
    with pytest.raises(InputError, match="a picture needs a trained model and the detector"):
        explorer.answer_upload(b"")
    explorer.detector = make_detector(RegionsParams(detector="scenes", device="cpu", boxes="3"))
    data = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(255, size=(64, 64, 3), dtype=np.uint8)).save(
        data, "PNG"
    )
    with torch.inference_mode():
        found = explorer.answer_upload(data.getvalue())
    assert [answer.voice for answer in found] == ["model"]
    assert len(found[0].hits) == 8
    with pytest.raises(InputError, match="not a readable picture"):
        explorer.answer_upload(b"GIF89a no picture")
    explorer.detector.detect = lambda *_: [[]]  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(InputError, match="no region found"):
        explorer.answer_upload(data.getvalue())


def test_an_index_of_another_split_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SimpleNamespace(items=SimpleNamespace(image_ids=["other"], caption_ids=["other#0"]))
    monkeypatch.setattr("capgrade.apps.explorer.models.open_search", lambda run, folder: other)
    with pytest.raises(InputError, match="none of the 14 images"):
        open_model_voice("m", tmp_path, tmp_path, CAPTIONS)
