"""The command line: the documented commands work as written, and what is wrong with input is one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import random_sets

from pipelines import cli


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with captions.tsv and everything the commands make of it."""
    folder = tmp_path_factory.mktemp("cli")
    rows = [
        f"i{i}\ti{i}#{k}\t{text}" for i, texts in enumerate(random_sets(15, seed=6)) for k, text in enumerate(texts)
    ]
    (folder / "captions.tsv").write_text("image_id\tcaption_id\tcaption\n" + "\n".join(rows) + "\n")
    scores = [f"i{i},i{j}#0,{(i * 7 + j) % 5}" for i in range(15) for j in range(0, 15, 3)]
    (folder / "people.csv").write_text("image_id,caption_id,score\n" + "\n".join(scores) + "\n")
    run = f"""
        captions --source tsv --input {folder}/captions.tsv --split test --out {folder}/c
        relevance --captions {folder}/c --measures cider,rouge_l --out {folder}/r -- --direct_num_workers=1
        shards --captions {folder}/c --measures cider,rouge_l --out {folder}/s
        publish --captions {folder}/c --shards {folder}/s --license cc-by-4.0 --out {folder}/d
    """
    for line in run.strip().splitlines():
        assert call(*line.split()) == 0
    np.save(folder / "sims.npy", np.random.default_rng(0).normal(size=(15, len(rows))))
    return folder


def call(*arguments: str) -> int:
    """Exit status of `capgrade ARGUMENTS`, run as the installed command runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["capgrade", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
            raise SystemExit(0)
    return int(stopped.value.code or 0)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    capsys.readouterr()
    assert call(*arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_every_stage_wrote_its_folder(world: Path) -> None:
    for name, file in (
        ("c", "captions.arrow"),
        ("r", "cider.arrow"),
        ("s", "shard-00000-of-00001.arrow"),
        ("d", "README.md"),
    ):
        assert (world / name / file).is_file()
        assert (world / name / "manifest.json").is_file()


@pytest.mark.parametrize(
    "command", ["", *(c.name or c.callback.__name__ for c in cli.app.registered_commands), "bench relevance"]
)
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*command.split(), "--help") == 0
    assert "Usage" in capsys.readouterr().out


def test_agree_prints_json(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--judgements", f"{world}/people.csv", "--measures", "cider,rouge_l", "--json")
    result = printed(capsys, "agree", "--captions", f"{world}/c", *arguments)
    assert result.keys() == {"cider", "rouge_l", "binary"}
    assert result["cider"].keys() == {"pearson", "spearman", "kendall"}
    assert result["cider"]["pearson"].keys() == {"all", "non_original"}


def test_bench_prints_json(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--measures", "cider,rouge_l", "--pairs", "50", "--json")
    result = printed(capsys, "bench", "relevance", "--captions", f"{world}/c", *arguments)
    for row in result.values():
        assert {"pairs_per_s", "peer", "peer_pairs_per_s", "ratio", "max_abs_diff"} <= row.keys()
        assert row["max_abs_diff"] < 1e-5


def test_evaluate_prints_json(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--captions", f"{world}/c", "--similarity", f"{world}/sims.npy", "--relevance", f"{world}/r")
    result = printed(capsys, "evaluate", *files, "--samples", "20", "--json")
    assert {"recall@1", "r@1", "ncs@1", "ndcg@25", "asp", "kendall_tau_a"} <= result["i2t"].keys()
    assert {"t2i", "rsum", "nsum"} <= result.keys()


def test_show_frequencies_params_and_imports(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, "show", "--captions", f"{world}/c", "--relevance", f"{world}/r", "--top", "2", "--json")
    assert len(shown["images"]) == 2
    assert call("frequencies", "--captions", f"{world}/c", "--out", f"{world}/df.arrow") == 0
    (world / "p.yaml").write_text(
        f"measures: {{cider: {{document_frequency: '{world}/df.arrow'}}}}\nshards: {{uniform: 3}}\n"
    )
    options = (
        "--params",
        f"{world}/p.yaml",
        "--set",
        "shards.top=2",
        "--measures",
        "cider",
        "--import",
        f"x={world}/sims.npy",
    )
    done = printed(capsys, "shards", "--captions", f"{world}/c", *options, "--out", f"{world}/s2", "--json")
    assert (done["params"]["shards"]["uniform"], done["params"]["shards"]["top"]) == (3, 2)
    assert done["params"]["measures"]["x"] == {"imported": f"{world}/sims.npy"}


# What is wrong -> the command (w: the folder above, t: files with one thing wrong each), and part of its one line.
BAD = {
    "a missing file": (
        "captions --source tsv --input {t}/none.tsv --out {t}/o",
        "none.tsv: no such file",
    ),
    "bytes that are no UTF-8": (
        "captions --source tsv --input {t}/latin.tsv --out {t}/o",
        "latin.tsv row 2: ",
    ),
    "malformed JSON": (
        "captions --source coco --input {t}/bad.json --split x --out {t}/o",
        "bad.json row 1: ",
    ),
    "wrong columns": (
        "captions --source tsv --input {t}/columns.tsv --out {t}/o",
        "columns.tsv row 1: ",
    ),
    "a duplicate id": (
        "captions --source tsv --input {t}/twice.tsv --out {t}/o",
        "twice.tsv row 3: duplicate caption id '1'",
    ),
    "an empty caption": (
        "captions --source tsv --input {t}/empty.tsv --out {t}/o",
        "empty.tsv row 2: caption '1' has no words",
    ),
    "an unknown source": (
        "captions --source vg --input x --out {t}/o",
        "parameter 'source' is 'vg': Input should be",
    ),
    "an unknown measure": (
        "relevance --captions {w}/c --measures cidr --out {t}/o",
        "unknown measure 'cidr' -> choose from: ",
    ),
    "an unknown split": (
        "shards --captions {w}/c --split val --out {t}/o",
        "no split 'val' -> choose from: test",
    ),
    "one image for CIDEr": (
        "relevance --captions {t}/one --measures cider --out {t}/o",
        "make every CIDEr 0 -> set",
    ),
    "a misspelt parameter": (
        "shards --captions {w}/c --params {t}/p.yaml --out {t}/o",
        "p.yaml: unknown parameter 'shards.tpo'",
    ),
    "no licence": (
        "publish --captions {w}/c --shards {w}/s --out {t}/o",
        "no licence given -> set publish.license",
    ),
    "shards of other captions": (
        "publish --captions {t}/one --shards {w}/s --license mit --out {t}/o",
        "made from another captions table",
    ),
    "a judgement of nothing": (
        "agree --captions {w}/c --judgements {t}/j.csv --measures cider",
        "j.csv row 2: image 'zz'",
    ),
    "a truncated table": (
        "relevance --captions {t}/cut --measures cider --out {t}/o",
        "captions.arrow: ",
    ),
    "NaN in a matrix": (
        "relevance --captions {w}/c --measures x --import x={t}/nan.npy --out {t}/o",
        "holds nan",
    ),
    "NaN in a similarity": (
        "evaluate --captions {w}/c --similarity {t}/nan.npy",
        "nan.npy: NaN for image 'i0', caption 'i0#0', 15 such rows -> score every pair",
    ),
    "no captions folder": (
        "relevance --captions {t} --measures cider --out {t}/o",
        "no manifest.json: not a finished captions",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line(kind: str, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(world, tmp_path)
    line, message = BAD[kind]
    capsys.readouterr()
    assert call(*line.format(w=world, t=tmp_path).split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    assert not (tmp_path / "o" / "manifest.json").exists()


def prepare(world: Path, folder: Path) -> None:
    """Files with one thing wrong each."""
    head = "image_id\tcaption_id\tcaption\n"
    (folder / "latin.tsv").write_bytes((head + "a\t1\tcaf\u00e9\n").encode("latin-1"))
    (folder / "bad.json").write_text('{"images": [')
    (folder / "columns.tsv").write_text("image\ttext\na\tb\n")
    (folder / "twice.tsv").write_text(head + "a\t1\tx\na\t1\ty\n")
    (folder / "empty.tsv").write_text(head + "a\t1\t \n")
    (folder / "one.tsv").write_text(head + "a\t1\tx\na\t2\ty\n")
    (folder / "p.yaml").write_text("shards: {tpo: 3}\n")
    (folder / "j.csv").write_text("image_id,caption_id,score\nzz,i0#0,1\n")
    n_captions = json.loads((world / "r" / "manifest.json").read_text())["n_captions"]
    np.save(folder / "nan.npy", np.full((15, n_captions), np.nan))
    assert (
        call("captions", "--source", "tsv", "--input", f"{folder}/one.tsv", "--split", "test", "--out", f"{folder}/one")
        == 0
    )
    (folder / "cut").mkdir()
    for name in ("captions.arrow", "manifest.json"):
        (folder / "cut" / name).write_bytes((world / "c" / name).read_bytes())
    table = folder / "cut" / "captions.arrow"
    table.write_bytes(table.read_bytes()[:-64])


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "c.tsv").write_text("image_id\tcaption_id\tcaption\na\t1\tx\n")
    assert call("captions", "--source", "tsv", "--input", f"{tmp_path}/c.tsv", "--out", f"{tmp_path}/file/out") == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/file/out: ")


def test_the_traceback_is_there_for_those_who_want_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from schemas.errors import InputError

    monkeypatch.setenv("CAPGRADE_DEBUG", "1")
    monkeypatch.setattr(
        sys, "argv", ["capgrade", "captions", "--source", "tsv", "--input", "none", "--out", str(tmp_path)]
    )
    with pytest.raises(InputError):
        cli.main()
