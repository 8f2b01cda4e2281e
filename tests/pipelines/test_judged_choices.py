"""Pascal-50S: files as CIDEr's authors publish them, accuracies by an obvious loop, what is refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

import capgrade
from capgrade.pipelines.judged_choices import (
    CATEGORIES,
    DRAWS,
    Choices,
    accuracies,
    agree_on_choices,
    read_choices,
)
from capgrade.schemas.errors import InputError
from tests.conftest import call, printed, random_sets, refusal

SETS = random_sets(24, seed=5, least=7, most=7)
N_REFERENCES, N_PAIRS = 6, 40


def made_pairs(votes: int = N_REFERENCES) -> list[dict[str, Any]]:
    """Pairs of 12 images, each with so many votes; every fifth has as many for either."""
    random = np.random.default_rng(3)
    return [
        {
            "image": f"2008_{k % 12:06}.jpg",
            "category": 1 + k % 4,
            "candidates": (SETS[k % 12][6], SETS[12 + k % 12][k % 7]),
            "references": (votes // N_REFERENCES) * SETS[k % 12][:N_REFERENCES],
            "votes": [1, -1] * (votes // 2)
            if k % 5 == 0
            else random.choice([1, -1], votes).tolist(),
        }
        for k in range(N_PAIRS)
    ]


def struct(*names: str) -> Any:
    return [(name, object) for name in names]


def cell(text: str) -> np.ndarray:
    """A cell of one text within a cell."""
    held = np.empty((1, 1), object)
    held[0, 0] = text
    return held


def write(folder: Path, pairs: list[dict[str, Any]]) -> Path:
    """The two files: texts of candidates have spaces around them in one of the two."""
    inputs = [(one["image"], f" {one['candidates'][0]}", one["candidates"][1]) for one in pairs]
    votes = [
        (cell(reference), cell(one["candidates"][0]), cell(f"{one['candidates'][1]} "), vote)
        for one in pairs
        for reference, vote in zip(one["references"], one["votes"], strict=True)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    savemat(
        folder / "pair_pascal.mat",
        {
            "new_input": np.array([inputs], struct("image", "sent1", "sent2")),
            "category": np.array([[one["category"] for one in pairs]]),
            "new_data": np.ones((len(pairs), 2)),
        },
    )
    savemat(
        folder / "consensus_pascal.mat",
        {"triplets": np.array([votes], struct("A", "B", "C", "winner"))},
    )
    return folder


def obvious(
    pairs: list[dict[str, Any]], references: list[list[str]], name: str
) -> dict[str, float]:
    """Accuracy by category, pair by pair: who has the most votes, by text, and who scores more."""
    right: dict[str, list[float]] = {one: [] for one in CATEGORIES}
    first, second = (
        capgrade.score([one["candidates"][side] for one in pairs], references, name).sentences[name]
        for side in (0, 1)
    )
    for k, one in enumerate(pairs):
        votes = Counter(one["candidates"][0 if vote == 1 else 1] for vote in one["votes"])
        a, b = (votes[text] for text in one["candidates"])
        tied = a == b or first[k] == second[k]
        value = 0.5 if tied else float((a > b) == (first[k] > second[k]))
        right[CATEGORIES[one["category"] - 1]].append(value)
    return {category: sum(values) / len(values) for category, values in right.items()}


def test_accuracies_are_those_of_an_obvious_loop(tmp_path: Path) -> None:
    pairs = made_pairs()
    found = agree_on_choices(write(tmp_path, pairs), ["cider", "bleu_2"], N_REFERENCES)
    assert found.judgements == {
        "by": "people",
        "file": tmp_path.name,
        "pairs": N_PAIRS,
        "references": N_REFERENCES,
        "draws": 1,
    }
    for name in ("cider", "bleu_2"):
        wanted = obvious(pairs, [one["references"] for one in pairs], name)
        assert min(wanted.values()) > 0.2 and len(set(wanted.values())) > 1, wanted
        wanted["mean"] = sum(wanted.values()) / 4
        assert found.measures[name]["accuracy"] == pytest.approx(wanted)
        for scope, (low, high) in found.measures[name]["intervals"].items():
            assert low < wanted[scope] < high or wanted[scope] in (0, 1), scope


def test_a_few_references_are_drawn_five_times(tmp_path: Path) -> None:
    """The mean of five draws lies among those of single draws, and is the same at every call."""
    folder = write(tmp_path, made_pairs())
    found = agree_on_choices(folder, ["rouge_l"], 2)
    assert found.judgements["draws"] == DRAWS
    assert found == agree_on_choices(folder, ["rouge_l"], 2)
    assert found != agree_on_choices(folder, ["rouge_l"], 3)
    random, means = np.random.default_rng(0), []
    for _ in range(DRAWS):
        drawn = [
            [one["references"][k] for k in sorted(random.permutation(N_REFERENCES)[:2])]
            for one in made_pairs()
        ]
        means.append(sum(obvious(made_pairs(), drawn, "rouge_l").values()) / 4)
    assert len(set(means)) > 1
    assert found.measures["rouge_l"]["accuracy"]["mean"] == pytest.approx(np.mean(means))


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Four pairs of an image, right or wrong together: an interval over pairs would be half as
    wide."""
    random, held, worlds = np.random.default_rng(1), 0, 200
    image = np.repeat(np.arange(100), 4)
    category = np.tile(np.arange(4), 100)
    for _ in range(worlds):
        right = np.repeat(random.random(100) < 0.7, 4)
        choices = Choices(image, category, [], [], np.ones(400))
        row = accuracies(np.where(right, 1.0, -1.0)[None], choices, samples=400)
        low, high = row["intervals"]["mean"]
        held += low <= 0.7 <= high
    print(held, worlds)
    assert 0.89 * worlds < held < 0.99 * worlds


def test_ties_count_half_and_are_told() -> None:
    choices = Choices(
        np.arange(8), np.tile(np.arange(4), 2), [], [], np.array([1, 1, 1, 1, 0, 0.5, 0.5, 0])
    )
    row = accuracies(np.array([[0.0, 2, -1, 1, -3, 1, 0, 1]]), choices)
    assert row["tied"] == 0.25
    assert row["accuracy"] == {"HC": 0.75, "HI": 0.75, "HM": 0.25, "MM": 0.5, "mean": 0.5625}


def test_the_command_prints_and_writes_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "pascal-50s", made_pairs())
    line = ("agree", "choices", folder, "--measures", "rouge_l,people", "--references", "3")
    assert call(*line, "--out", tmp_path / "choices.md") == 0
    said = capsys.readouterr().out
    figures = printed(*line)
    mean = figures["measures"]["people"]["accuracy"]["mean"]
    assert f"{100 * mean:.1f}" in said and "HC" in said
    assert f"| {100 * mean:.1f} |" in (tmp_path / "choices.md").read_text()
    assert call(*line, "--out", tmp_path / "choices.json") == 0
    assert json.loads((tmp_path / "choices.json").read_text()) == figures
    assert "--force" in refusal(*line, "--out", tmp_path / "choices.json")


def changed(**changes: Any) -> list[dict[str, Any]]:
    """The pairs, the third of them with other entries."""
    return [{**one, **(changes if k == 2 else {})} for k, one in enumerate(made_pairs())]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (changed(category=5), r"pair_pascal.mat: 'category' is not 1 to 4"),
        (made_pairs()[:3], r"'category' is not 1 to 4, each somewhere"),
        (
            changed(votes=[1, 1, 0, 1, 1, 1]),
            r"row triplets\[14\].*no vote, 1 or -1, .* new_input\[2\]",
        ),
        (changed(references=["a"], votes=[1]), "40 pairs, 40 categories, 235 votes"),
        (changed(candidates=("a dog", "")), r"row new_input\[2\].*not 3 fields with text"),
        (changed(references=["", *"abcde"]), r"row triplets\[12\].*not 4 fields with text"),
    ],
)
def test_files_that_do_not_fit(pairs: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_choices(write(tmp_path, pairs))


def test_candidates_of_the_votes_are_those_of_the_pairs(tmp_path: Path) -> None:
    write(tmp_path / "other", changed(candidates=("a dog", "a cat")))
    folder = write(tmp_path / "one", made_pairs())
    (tmp_path / "other/pair_pascal.mat").rename(folder / "pair_pascal.mat")
    with pytest.raises(InputError, match=r"triplets\[12\].*new_input\[2\]"):
        read_choices(folder)


def test_folders_that_are_none(tmp_path: Path) -> None:
    line = ("agree", "choices", tmp_path, "--measures", "rouge_l")
    assert "pair_pascal.mat: no such file -> give the folder" in refusal(*line)
    write(tmp_path, made_pairs())
    assert "7 references are asked for, there are 6" in refusal(*line, "--references", "7")
    file = tmp_path / "consensus_pascal.mat"
    file.write_bytes(file.read_bytes()[:-200])
    assert "consensus_pascal.mat: not a whole file of MATLAB" in refusal(*line)
    savemat(file, {"pairs": np.ones(3)})
    assert "no variable 'triplets'" in refusal(*line)
