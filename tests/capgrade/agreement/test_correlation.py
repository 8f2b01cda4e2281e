"""Agreement of a model's scores with people, against scipy; and judgements of a part of what was
judged."""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import capgrade
from capgrade.agreement.correlation import agreement_of_scores
from capgrade.agreement.judgement_files import name_judgements, read_judgements
from capgrade.agreement.judgements import Judgements, Ratings, Within
from capgrade.schemas.errors import InputError
from tests.conftest import make_captions

IMAGES, OWNER = 12, np.repeat(np.arange(12), 2)
RANDOM = np.random.default_rng(0)
SCORES = RANDOM.uniform(-1, 1, (IMAGES, len(OWNER))).astype(np.float32)
IMAGE, CAPTION = (side.ravel() for side in np.divmod(RANDOM.permutation(SCORES.size)[:150], 24))
SCORE = (RANDOM.integers(4, size=150) + 2 * SCORES[IMAGE, CAPTION]).round()
PEOPLE = Judgements(IMAGE, CAPTION, SCORE.astype(np.float64))


def test_a_model_s_agreement_is_scipys() -> None:
    found = agreement_of_scores(SCORES, OWNER, PEOPLE)
    own = OWNER[CAPTION] == IMAGE
    assert (found["pairs"], found["own"], found["left_out"]) == (150, own.sum(), 0)
    assert 0 < own.sum() < 150
    for scope, mask in {"all": np.ones(150, bool), "non_original": ~own}.items():
        pair = SCORES[IMAGE, CAPTION][mask], SCORE[mask]
        want = {
            "pearson": stats.pearsonr(*pair).statistic,
            "spearman": stats.spearmanr(*pair).statistic,
            "kendall": stats.kendalltau(*pair, variant="b").statistic,
            "kendall_c": stats.kendalltau(*pair, variant="c").statistic,
        }
        for name, value in want.items():
            assert found[name][scope] == pytest.approx(value)
            low, high = found["intervals"][name][scope]
            assert low < value < high


def test_evaluate_says_it_beside_recall() -> None:
    kept = Judgements(IMAGE, CAPTION, PEOPLE.score)
    metrics = ["recall@1", "recall@5", "recall@10"]
    found = capgrade.evaluate(
        SCORES, None, metrics, owner=OWNER, judgements={"people": kept, "same": kept}
    )
    tau = agreement_of_scores(SCORES, OWNER, kept)["kendall"]["non_original"]
    assert found.judged == {"judged_tau_b[people]": tau, "judged_tau_b[same]": tau}
    assert f"judged_tau_b[people]  {tau:.4f} [" in str(found)
    assert set(found.json()["judgements"]) == {"people", "same"}
    assert "judgements" not in capgrade.evaluate(SCORES, None, metrics, owner=OWNER).json()
    frame = found.to_frame().set_index("metric")
    assert frame.loc["judged_tau_b[people]", "value"] == tau
    low, high = found.judged_intervals["judged_tau_b[people]"]
    assert (frame.loc["judged_tau_b[people]", ["low", "high"]] == [low, high]).all()
    assert f"& {tau:.3f} \\\\" in capgrade.latex_table({"ours": found}, ["judged_tau_b[people]"])


def test_own_pairs_alone_are_told_by_all() -> None:
    own = Judgements(OWNER, np.arange(24), np.arange(24) % 5.0)
    found = capgrade.evaluate(SCORES, owner=OWNER, metrics="recall@1", judgements={"own": own})
    want = stats.kendalltau(SCORES[OWNER, np.arange(24)], own.score).statistic
    assert found.judged["judged_tau_b[own]"] == pytest.approx(want)


def test_what_does_not_fit_the_scores_is_refused() -> None:
    def refused(said: str, scores: np.ndarray = SCORES, people: Judgements = PEOPLE) -> None:
        with pytest.raises(InputError, match=said):
            agreement_of_scores(scores, OWNER, people)

    refused("judged images 0 to 11, scores of 5", SCORES[:5])
    refused("judged captions 0 to 23, scores of 7", SCORES[:, :7])
    left_out = SCORES.copy()
    left_out[IMAGE[:3], CAPTION[:3]] = -np.inf
    refused("3 of 150 judged pairs have no finite score -> score every judged pair", left_out)
    captions = make_captions([["a", "b"]] * IMAGES)
    refused(
        "judgements of pairs of captions",
        people=Within.between("captions", CAPTION, CAPTION, SCORE, captions),
    )
    with pytest.raises(InputError, match="crowd: 3 of 150 judged pairs"):
        capgrade.evaluate(left_out, owner=OWNER, metrics="recall@1", judgements={"crowd": PEOPLE})
    with pytest.raises(InputError, match="give owner"):
        capgrade.evaluate(SCORES, SCORES, ["ndcg@5"], judgements={"people": PEOPLE})


def test_judgements_of_a_part_are_numbered_anew_and_the_others_counted() -> None:
    rows = [[float(k), float(k + 1)] if k % 3 else [float(k)] for k in range(150)]
    people = Judgements(IMAGE, CAPTION, SCORE, Ratings.of(rows), random=IMAGE > 5, left_out=4)
    images = np.array([7, 2, 9])
    captions = np.flatnonzero(np.isin(OWNER, images))[::-1]
    part = people.restricted_to(images, captions)
    kept = [
        k for k in range(150) if IMAGE[k] in images.tolist() and CAPTION[k] in captions.tolist()
    ]
    assert len(kept) > 5 and part.left_out == 4 + 150 - len(kept)
    assert (images[part.image] == IMAGE[kept]).all()
    assert (captions[part.caption] == CAPTION[kept]).all()
    assert (part.score == SCORE[kept]).all() and (part.random == (IMAGE[kept] > 5)).all()
    for k, row in enumerate(kept):
        assert (
            part.ratings.value[part.ratings.ptr[k] : part.ratings.ptr[k + 1]].tolist()
            == (rows[row])
        )
    assert len(people.restricted_to(images[:0], captions).score) == 0


def test_a_file_of_more_than_the_split_is_read_in_part(tmp_path: Path) -> None:
    path, captions = tmp_path / "crowd.csv", make_captions([["a b"], ["c d"]])
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["image_id", "caption_id", "score"],
                ["i0", "i1#0", 2],
                ["elsewhere", "i1#0", 3],
                ["i1", "elsewhere", 4],
                ["i1", "i0#0", 5],
            ]
        )
    people = read_judgements(path, captions, partly=True)
    assert people.score.tolist() == [2, 5] and people.left_out == 2
    with pytest.raises(InputError, match="image 'elsewhere' is not among the captions"):
        read_judgements(path, captions)
    others = make_captions([["a b"]], split="val")
    said = "4 judged pairs, none of an image and a caption of split 'val'; the first is of 'i0'"
    with pytest.raises(InputError, match=said):
        read_judgements(path, others, partly=True)


def test_judgements_are_called_by_their_files() -> None:
    assert name_judgements([Path("a/x.csv"), Path("eccv")]) == {
        "x": Path("a/x.csv"),
        "eccv": Path("eccv"),
    }
    with pytest.raises(InputError, match="b/x.txt: two judgements are called 'x'"):
        name_judgements([Path("a/x.csv"), Path("b/x.txt")])
