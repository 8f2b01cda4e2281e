"""Agreement with a dense file, its table as Markdown and LaTeX, and the figures published for
COCO."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import stats

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.agreement_text import agreement_text
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.relevance import read_relevance
from tests.conftest import (
    DATA,
    agreement,
    call,
    caption_table,
    printed,
    random_sets,
    refusal,
    write_captions_folder,
)

SETS = random_sets(12, seed=8)


@pytest.fixture
def captions_dir(tmp_path: Path) -> Path:
    return write_captions_folder(tmp_path / "captions", [caption_table(SETS)])


def test_a_dense_file_judges_every_pair_and_a_mixture_finds_it(
    captions_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where people judge by one measure, the mixture is that measure, in every fold."""
    relevance(
        captions_dir, tmp_path / "dense", RelevanceParams(measures=("rouge_l",)), MeasuresParams()
    )
    file, names = tmp_path / "dense" / "rouge_l.arrow", ["cider", "rouge_l", "bleu"]
    result = agreement(captions_dir, file, names, MeasuresParams(), mixture="found", folds=4)
    assert (
        result["rouge_l"]["pearson"]["all"] == pytest.approx(1)
        and result["cider"]["pearson"]["all"] < 1
    )
    mixture = result["mixture"]
    assert mixture["pearson"]["all"] == pytest.approx(1) == mixture["pearson"]["non_original"]
    assert mixture["weights"] == {"rouge_l": pytest.approx(1, abs=1e-5)}
    monkeypatch.setenv("COLUMNS", "40")
    said = agreement_text(result)
    assert "weights of the mixture, for measures.mixtures: {rouge_l: 1}" in said, "one line to copy"


def test_a_fitted_mixture_is_written_for_the_next_command(
    captions_dir: Path, tmp_path: Path
) -> None:
    """Where people judge by a mixture, that mixture is found again; its file goes to --params, with
    what the parts were computed with, and gives its values divided by the weights' sum."""
    judged = {"rouge_l": 1.5, "bleu": 0.5}
    params = MeasuresParams.model_validate(
        {"rouge_l": {"references": "mean"}, "mixtures": {"people": judged}}
    )
    relevance(captions_dir, tmp_path / "dense", RelevanceParams(measures=("people",)), params)
    sets = (
        "--set",
        "measures.rouge_l.references=mean",
        "--set",
        "measures.mixtures={half: {bleu: 1, rouge_l: 1}}",
    )
    line = (
        "agree",
        "--captions",
        captions_dir,
        "--judgements",
        tmp_path / "dense" / "people.arrow",
        *sets,
    )
    found_in = ("--mixture", "found", "--out", tmp_path / "agree")
    assert call(*line, "--measures", "rouge_l,half,cider", *found_in) == 0
    file = tmp_path / "agree" / "found.yaml"
    text = file.read_text()
    assert (
        "on people.arrow, split test; on images of 10 folds that it was not fitted on: Pearson's r"
        " 1.000" in text
    )
    found = yaml.safe_load(text)["measures"]
    assert found == {
        "rouge_l": {"references": "mean"},
        "mixtures": {"found": {"rouge_l": 0.75, "bleu": 0.25}},
    }
    given = ("--captions", captions_dir, "--params", file, "--measures", "found")
    assert call("relevance", *given, "--out", tmp_path / "again") == 0
    ours, theirs = (
        read_relevance(tmp_path / f).matrix() for f in ("again/found.arrow", "dense/people.arrow")
    )
    np.testing.assert_allclose(ours * 2, theirs, atol=1e-5)
    assert call(*line, "--measures", "rouge_l,half", *found_in) == 0, "its own folder"


@pytest.mark.parametrize(("name", "said"), [
    ("a b", "a measure cannot be called 'a b'"),
    ("cider", "mixture 'cider' would have the name of a measure"),
])  # fmt: skip
def test_a_mixture_has_a_name_of_its_own(
    captions_dir: Path, tmp_path: Path, name: str, said: str
) -> None:
    judged = tmp_path / "judged.csv"
    judged.write_text(
        "image_id,caption_id,score\n" + "".join(f"i{i},i{i}#0,{i % 3}\n" for i in range(12))
    )
    line = ("agree", "--captions", captions_dir, "--judgements", judged, "--measures", "rouge_l")
    assert said in refusal(*line, "--mixture", name)


def test_measures_that_nobody_agrees_with_are_not_mixed(captions_dir: Path, tmp_path: Path) -> None:
    relevance(
        captions_dir,
        tmp_path / "dense",
        RelevanceParams(measures=("people",)),
        MeasuresParams.model_validate({"mixtures": {"people": {"rouge_l": -1.0}}}),
    )
    line = (
        "agree",
        "--captions",
        captions_dir,
        "--judgements",
        tmp_path / "dense" / "people.arrow",
    )
    said = refusal(
        *line, "--measures", "rouge_l", "--mixture", "found", "--out", tmp_path / "agree"
    )
    assert "no measure agrees with these judgements" in said and not (tmp_path / "agree").exists()


def test_the_table_is_markdown_and_latex_too(
    captions_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"i{i},i{k}#0,{(i + k) % 4}" for i in range(12) for k in range(3)]
    # with Excel's mark of UTF-8 and its line ends
    text = "\r\n".join(["\ufeffimage_id,caption_id,score", *rows])
    (judged := tmp_path / "j.csv").write_bytes(text.encode())
    line = ["agree", "--captions", captions_dir, "--judgements", judged, "--measures", "rouge_l"]
    folder = tmp_path / "agree"
    out = {suffix: folder / f"agreement{suffix}" for suffix in (".md", ".tex", ".json")}
    for _ in range(2):
        assert call(*line, "--out", folder) == 0, "its own folder is replaced"
    said = capsys.readouterr().out
    assert (
        "non-own" not in said
        and said.count("captions") >= 2
        and said.startswith("36 judged pairs -> ")
    )
    figures = json.loads(out[".json"].read_text())
    assert (figures["judgements"]["by"], figures["judgements"]["pairs"]) == ("people", 36)
    assert figures["params"] == MeasuresParams().used(["rouge_l"]), "of measures, not of binary"
    value = f"{figures['measures']['rouge_l']['pearson']['all']:.3f}"
    table = out[".md"].read_text().splitlines()
    assert (
        table[0].startswith("| measure | pearson | other captions |")
        and value in table[2]
        and value in said
    )
    latex = out[".tex"].read_text()
    assert latex.startswith(r"\begin{tabular}{lrrrrrrrr}") and rf"rouge\_l & {value} &" in latex


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image_id,caption_id,score\ri0,i0#0,3\r", "carriage returns alone"),
        ("i0\ti0#0\t1\t3\t0\ri1\ti1#0\t0\t0\t3\r", "carriage returns alone"),
        ("", "no header"),
        ("image_id,caption_id,score,rater\n", "a header alone"),
        ("caption,image,agg_score\n", "a header alone"),
    ],
)
def test_judgements_that_are_none(text: str, said: str, captions_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "judged").write_bytes(text.encode())
    with pytest.raises(InputError, match=said):
        agreement(captions_dir, tmp_path / "judged", ["rouge_l"], MeasuresParams())


def test_published_figures_on_coco(
    coco: Captions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CIDEr-D 0.738 / 0.487 and binary 0.7115 on Crisscrossed Captions, ROUGE-L 0.7742 / 0.4587."""
    judgements = DATA / "coco" / "cxc_sits_test.csv"
    if not judgements.is_file():
        pytest.skip("the Crisscrossed Captions judgements of ../shared/data are not here")
    # intervals are asked elsewhere
    monkeypatch.setattr("capgrade.agreement.coefficients.SAMPLES", 2)
    write_captions_folder(tmp_path / "c", [coco.table])
    result = agreement(tmp_path / "c", judgements, ["cider", "rouge_l"], MeasuresParams())
    assert result["cider"]["pearson"] == pytest.approx(
        {"all": 0.7384, "non_original": 0.487}, abs=5e-4
    )
    assert result["rouge_l"]["pearson"] == pytest.approx(
        {"all": 0.7742, "non_original": 0.4587}, abs=5e-4
    )
    assert result["binary"]["pearson"] == pytest.approx({"all": 0.7115}, abs=5e-4)


def test_a_judge_stands_beside_measures_and_people(
    captions_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With chosen and with random pairs, each as scipy has it of these alone; the judge was asked
    by two prompts, which have another grade on a quarter of the pairs, and another verdict on an
    eighth."""
    random, pairs = np.random.default_rng(3), [(i, k) for i in range(12) for k in range(12)]
    truth = random.integers(0, 6, len(pairs)).clip(0, 5)
    drawn = np.arange(len(pairs)) % 3 == 0
    people = ["image_id,caption_id,score,rater,scale,sampling"]
    judged = ["image_id,caption_id,score,rater,scale,prompt"]
    means, ratings = np.empty(len(pairs)), np.empty(len(pairs))
    for n, (i, k) in enumerate(pairs):
        two = [min(5, int(truth[n]) + step) for step in random.integers(0, 3, 2)]
        means[n] = np.mean(two)
        people += [f"i{i},i{k}#0,{one},{who},0..5,{('chosen', 'random')[int(drawn[n])]}"
                   for one, who in zip(two, ("ann", "bo"), strict=True)]  # fmt: skip
        first, again = (1, 3) if n % 8 == 0 else (3, 5) if n % 8 == 1 else (truth[n], truth[n])
        ratings[n] = (first + again) / 2
        judged += [f"i{i},i{k}#0,{first},m,0..5,a", f"i{i},i{k}#0,{again},m,0..5,b"]
    for name, lines in {"people": people, "judged": judged}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    line = ["agree", "--captions", captions_dir, "--judgements", tmp_path / "people.csv"]
    line += ["--measures", f"rouge_l,judge={tmp_path}/judged.csv"]
    found = printed(*line, "--calibrate", "--out", tmp_path / "agree")["measures"]
    assert found["judge"]["contradictions"] == {"pairs": 144, "grade": 1 / 4, "verdict": 1 / 8}
    for scope, mask in {"all": drawn | True, "random": drawn, "chosen": ~drawn}.items():
        expected = stats.kendalltau(ratings[mask], means[mask]).statistic
        assert found["judge"]["kendall"][scope] == pytest.approx(expected)
        assert 0 < found["human"]["kendall"][scope] < 1 and scope in found["rouge_l"]["kendall"]
    assert 0 <= found["judge"]["calibration"]["ece"] < 0.2, "what the judge says was calibrated"
    monkeypatch.setenv("COLUMNS", "120")
    assert call(*line) == 0
    said = capsys.readouterr().out
    assert "the share of pairs on which two prompts of a judge disagree" in said
    table = said.partition("Judges beside")[2].splitlines()
    row = next(text for text in table if text.strip(" │").startswith("judge"))
    shown = [f"{found['judge']['kendall'][scope]:.3f}" for scope in ("all", "chosen", "random")]
    assert all(text in row for text in (*shown, "25.0%", "12.5%"))
    assert printed(*line, "--set", "agree.sampling=chosen")["measures"]["judge"][
        "kendall"
    ].keys() == {
        "all",
        "non_original",
    } | {f"{scope}_ratings" for scope in ("all", "non_original")}
