"""`evaluate --judgements`: as `agree` says it of the same scores, stored, in tables and refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import call, caption_table, printed, refusal, write_captions_folder

IMAGES, PER_IMAGE = 10, 3
RANDOM = np.random.default_rng(1)
SCORES = RANDOM.uniform(-1, 1, (IMAGES, IMAGES * PER_IMAGE)).astype(np.float32)
PAIRS = RANDOM.permutation(SCORES.size)[:120]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions, two similarities, judgements in Flickr8k's two forms, and some of other images."""
    base = tmp_path_factory.mktemp("judged")
    write_captions_folder(base / "captions", [caption_table([["a dog"] * PER_IMAGE] * IMAGES)])
    np.save(base / "a.npy", SCORES)
    np.save(base / "b.npy", -SCORES)
    crowd, experts = [], []
    for pair in PAIRS:
        image, caption = divmod(int(pair), SCORES.shape[1])
        ids = f"i{image}\ti{caption // PER_IMAGE}#{caption % PER_IMAGE}"
        yes = int(np.clip(1.5 + 1.5 * SCORES[image, caption] + RANDOM.normal(), 0, 3))
        crowd.append(f"{ids}\t{yes / 3}\t{yes}\t{3 - yes}")
        experts.append(f"{ids}\t{yes + 1}\t{max(1, yes)}\t{min(4, yes + 1)}")
    (base / "Crowd.txt").write_text("\n".join(crowd) + "\n")
    (base / "Experts.txt").write_text("\n".join([*experts, "gone\ti0#0\t1\t1\t2"]) + "\n")
    (base / "Others.txt").write_text("gone\ti0#0\t1\t1\t2\n")
    return base


def evaluate(folder: Path, name: str, *given: object, out: bool = True) -> list[object]:
    words = ["evaluate", "--captions", folder / "captions", "--similarity", folder / f"{name}.npy"]
    return [*words, *(["--out", folder / f"run-{name}"] if out else []), *given]


def test_a_run_is_judged_as_a_measure_is(folder: Path) -> None:
    both = ("--judgements", folder / "Crowd.txt", "--judgements", folder / "Experts.txt")
    found = printed(*evaluate(folder, "a", *both))["judgements"]
    agreed = printed(
        *("agree", "--captions", folder / "captions", "--judgements", folder / "Crowd.txt"),
        *("--measures", f"model={folder / 'a.npy'}"),
    )["measures"]["model"]
    assert found["Crowd"].items() >= agreed.items()
    assert agreed["kendall"]["non_original"] > 0.2
    assert found["Experts"]["left_out"] == 1 and found["Crowd"]["left_out"] == 0
    assert found["Experts"]["pairs"] == found["Crowd"]["pairs"] == len(PAIRS)


def test_it_is_stored_and_stands_in_every_table(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = ("--set", f"evaluate.judgements=[{folder / 'Crowd.txt'}, {folder / 'Experts.txt'}]")
    for name in "ab":
        assert call(*evaluate(folder, name, *sets, "--set", "evaluate.samples=20")) == 0
    shown = capsys.readouterr().out
    assert "note: Experts.txt: 1 of 121 judged pairs are of an image or a caption" in shown
    stored = json.loads((folder / "run-a" / "metrics.json").read_text())["judgements"]["Crowd"]
    tau = stored["kendall"]["non_original"]
    assert f"judged_tau_b[Crowd] │ {tau:.3f} [" in " ".join(shown.split()).replace("│ │", "│")
    manifest = json.loads((folder / "run-a" / "manifest.json").read_text())
    assert set(manifest["inputs"]) >= {"judgements Crowd", "judgements Experts"}
    assert manifest["params"]["evaluate"]["judgements"] == ["Crowd.txt", "Experts.txt"]
    runs = (folder / "run-a", folder / "run-b")
    assert call("compare", *runs, "--out", folder / "tables") == 0
    head, _, a, b = (folder / "tables" / "runs.md").read_text().splitlines()
    assert "judged_tau_b[Crowd] | judged_tau_b[Experts] |" in head
    assert f"| **{tau:.3f}** |" in a and f"| {-tau:.3f} |" in b
    files = [folder / f"run-{name}" / "metrics.json" for name in "ab"]
    compared = ("compare", f"a={files[0]}", f"b={files[1]}")
    assert call(*compared, "--metric", "judged_tau_b[Crowd]") == 0
    assert f"| a | **{tau:.3f}** |" in capsys.readouterr().out


def test_what_cannot_be_judged_is_refused(folder: Path) -> None:
    assert "1 judged pairs, none of an image and a caption of split 'test'" in refusal(
        *evaluate(folder, "a", "--judgements", folder / "Others.txt", out=False)
    )
    twice = ("--judgements", folder / "Crowd.txt", "--judgements", folder / "Crowd.txt")
    assert "two judgements are called 'Crowd'" in refusal(*evaluate(folder, "a", *twice, out=False))
    assert "no such file" in refusal(
        *evaluate(folder, "a", "--judgements", folder / "none.txt", out=False)
    )
