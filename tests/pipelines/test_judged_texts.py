"""Agreement on tables of candidates, references and scores: each kind of file, a published table,
what is refused."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import capgrade
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.judged_texts import agree_on_texts
from capgrade.schemas.errors import InputError
from tests.conftest import (
    DATA,
    call,
    caption_table,
    printed,
    random_sets,
    refusal,
    write_captions_folder,
)

SETS = random_sets(30, seed=2, least=2, most=5)
ROWS = [
    {
        "candidate": SETS[(7 * k) % 30][0],
        "references": SETS[k % 30],
        "score": (k * k) % 5 / 4,
        "clip": (k % 11) / 10,
    }
    for k in range(60)
]


def write(path: Path, names: dict[str, str]) -> Path:
    """ROWS with other names of columns, as a file of the kind that its name says; `img` is a column
    of bytes."""
    rows: list[dict[str, Any]] = [
        {names.get(key, key): value for key, value in row.items()} for row in ROWS
    ]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([{**row, "img": b"\xff\xd8"} for row in rows]), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            lines = csv.DictWriter(
                file, rows[0].keys(), delimiter="\t" if path.suffix == ".tsv" else ","
            )
            lines.writeheader()
            lines.writerows(rows)  # a list as Python writes it
    return path


LAYOUTS = {  # of the authors' own files
    "ours.csv": {},
    "polaris.parquet": {"candidate": "cand", "references": "refs", "score": "human_score"},
    "composite.tsv": {"candidate": "cand", "references": "refs", "score": "human_score"},
    "nebula.jsonl": {"candidate": "mt", "references": "refs", "score": "human_score"},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_has_the_coefficients_of_scipy(name: str, tmp_path: Path) -> None:
    rows, found = agree_on_texts(write(tmp_path / name, LAYOUTS[name]), ["cider", "bleu", "clip"])
    people = [row["score"] for row in ROWS]
    values = capgrade.score(
        [r["candidate"] for r in ROWS], [r["references"] for r in ROWS], ["cider", "bleu"]
    ).sentences
    assert rows == 60 and set(found) == {"cider", "bleu_1", "bleu_2", "bleu_3", "bleu_4", "clip"}
    for measure, of in {**values, "clip": np.array([row["clip"] for row in ROWS])}.items():
        for coefficient, variant in (("kendall", "b"), ("kendall_c", "c")):
            wanted = stats.kendalltau(of, people, variant=variant).statistic
            assert found[measure][coefficient] == {"all": pytest.approx(wanted)}, measure
        low, high = found[measure]["intervals"]["kendall"]["all"]
        assert low < found[measure]["kendall"]["all"] < high


def test_mixtures_score_candidates(tmp_path: Path) -> None:
    table = write(tmp_path / "ours.csv", {})
    params = MeasuresParams.model_validate({"mixtures": {"mine": {"rouge_l": 2, "bleu": 1}}})
    _, found = agree_on_texts(table, ["people", "mine"], params=params)
    candidates, references = ([row[name] for row in ROWS] for name in ("candidate", "references"))
    values = capgrade.score(candidates, references, ["people", "rouge_l", "bleu_4"]).sentences
    values["mine"] = 2 * values["rouge_l"] + values["bleu_4"]
    for name in ("people", "mine"):
        wanted = stats.kendalltau(values[name], [row["score"] for row in ROWS]).statistic
        assert found[name]["kendall"]["all"] == pytest.approx(wanted), name


def test_the_command_takes_columns_as_they_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write(
        tmp_path / "mine.csv", {"candidate": "caption", "references": "gts", "score": "rating"}
    )
    columns = [
        f"--set=agree.columns.{pair}"
        for pair in ("candidate=caption", "references=gts", "score=rating")
    ]
    line = ["agree", "texts", table, *columns, "--measures", "rouge_l,clip"]
    assert call(*line, "--out", tmp_path / "agreement.json") == 0
    said = capsys.readouterr().out
    value = json.loads((tmp_path / "agreement.json").read_text())["measures"]["clip"]["kendall_c"][
        "all"
    ]
    assert f"{value:.3f}" in said and "other" not in said


NO_SCORE = r"no column 'score' -> --set agree.columns.score=NAME, or --captions .*; choose from: cand, refs"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("j.csv", "cand,refs\na,b\n", NO_SCORE),
        ("j.csv", 'cand,refs,score\na,"[1]",1\n', r"row 2.*: 'refs' is"),
        (
            "j.csv",
            'cand,refs,score\na,"[\'b",1\n',
            r"row 2: 'refs' is .* a list that neither JSON nor Python reads",
        ),
        ("j.csv", "cand,refs,score\na,b,nan\n", "row 2: 'score' is 'nan'"),
        ("j.csv", "cand,refs,score\na,b,1e300\n", "row 2: 'score' is '1e300'"),
        (
            "j.jsonl",
            '{"cand": "a", "refs": ["b"], "score": 1}\n{"cand": "a"}\n',
            "row 2: no 'refs'",
        ),
        ("j.csv", "cand,refs,score\n", "no rows"),
        ("j.parquet", "PAR1", "not a whole Parquet file"),
        ("j.txt", "a", "'.txt' is not a kind of table"),
    ],
)
def test_tables_that_cannot_be_used(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        agree_on_texts(tmp_path / name, ["rouge_l"])


def test_a_measure_is_known_or_a_column(tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match="no column 'clipscore' -> name a measure or a column; near it: score, clip",
    ):
        agree_on_texts(write(tmp_path / "j.csv", {}), ["clipscore"])


def test_the_published_figures_of_crowdflower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kendall's tau-b of Hessel et al. 2021 ("CLIPScore", Flickr8k-CF): BLEU-1 17.9, BLEU-4 16.9,
    CIDEr 24.6, METEOR 22.2, ROUGE-L 19.9. As their code does, a candidate that is one of its
    image's references leaves them."""
    if not (DATA / "flickr8k").is_dir():
        pytest.skip("Flickr8k's judgements of ../shared/data are not here")
    # intervals are asked elsewhere
    monkeypatch.setattr("capgrade.agreement.coefficients.SAMPLES", 2)
    captions = dict(
        line.split("\t") for line in (DATA / "flickr8k/Flickr8k.token.txt").read_text().splitlines()
    )
    references: dict[str, list[str]] = {}
    for caption, text in captions.items():
        references.setdefault(caption.split("#")[0], []).append(text)
    judged = [
        line.split("\t")
        for line in (DATA / "flickr8k/CrowdFlowerAnnotations.txt").read_text().splitlines()
    ]
    for image, caption, *_ in judged:
        if captions[caption] in references[image]:
            references[image].remove(captions[caption])
    with (tmp_path / "crowdflower.jsonl").open("w") as file:
        for image, caption, share, *_ in judged:
            row = {
                "cand": captions[caption],
                "refs": references[image],
                "human_score": float(share),
            }
            file.write(json.dumps(row) + "\n")
    rows, found = agree_on_texts(
        tmp_path / "crowdflower.jsonl", ["bleu", "meteor", "rouge_l", "cider"]
    )
    taus = {name: 100 * row["kendall"]["all"] for name, row in found.items()}
    print(rows, {name: round(value, 2) for name, value in taus.items()})
    published = {"bleu_1": 17.9, "bleu_4": 16.9, "cider": 24.6, "meteor": 22.2, "rouge_l": 19.9}
    assert rows == 47830 and {name: taus[name] for name in published} == pytest.approx(
        published, abs=0.1
    )


def test_a_dataset_is_read_by_its_split(tmp_path: Path) -> None:
    """As Polaris lies on the hub: tables of Parquet by split, with pictures beside the texts."""
    folder = tmp_path / "polaris"
    folder.mkdir()
    names = LAYOUTS["polaris.parquet"]
    write(folder / "test-00000-of-00001.parquet", names)
    table = pq.read_table(folder / "test-00000-of-00001.parquet")
    others = table.slice(0, 20).set_column(
        table.column_names.index("human_score"), "human_score", pa.array([0.0, 1.0] * 10)
    )
    pq.write_table(others, folder / "validation-00000-of-00001.parquet")
    whole = agree_on_texts(folder / "test-00000-of-00001.parquet", ["rouge_l"])
    assert agree_on_texts(folder, ["rouge_l"]) == whole
    said = printed("agree", "texts", folder, "--measures", "rouge_l", "--split", "validation")
    assert said["judgements"]["pairs"] == 20
    refused = refusal("agree", "texts", folder, "--measures", "rouge_l", "--split", "dev")
    assert "no split 'dev' -> give --split: " in refused and "test" in refused


def test_texts_are_no_judgements_of_ids(tmp_path: Path) -> None:
    folder = write_captions_folder(tmp_path / "captions", [caption_table(SETS)])
    line = ("agree", "--captions", folder, "--judgements", "yuwd/Polaris", "--measures", "rouge_l")
    assert "capgrade agree texts yuwd/Polaris" in refusal(*line)
