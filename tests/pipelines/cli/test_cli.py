"""The command line: the documented commands work as written, and what is wrong with input is one
line."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

from capgrade.agreement.coefficients import COEFFICIENTS
from capgrade.params import Params
from capgrade.pipelines import cli
from capgrade.pipelines.agreement_text import agreement_text
from capgrade.pipelines.cli.stages import knobs_of
from capgrade.pipelines.cli.tables import print_matches
from capgrade.pipelines.regions import MOST_IMAGES
from capgrade.pipelines.show import Match
from capgrade.schemas.regions import RegionStore
from capgrade.stages import STAGES
from tests import tiny_detector
from tests.conftest import call, caption_table, printed, random_sets, refusal, write_captions_folder
from tests.tools.commands import CAPGRADE, commands


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with captions.tsv and everything the commands make of it."""
    folder = tmp_path_factory.mktemp("cli")
    rows = [
        f"i{i}\ti{i}#{k}\t{text}"
        for i, texts in enumerate(random_sets(15, seed=6))
        for k, text in enumerate(texts)
    ]
    (folder / "captions.tsv").write_text("image_id\tcaption_id\tcaption\n" + "\n".join(rows) + "\n")
    scores = [f"i{i},i{j}#0,{(i * 7 + j) % 5}" for i in range(15) for j in range(0, 15, 3)]
    (folder / "people.csv").write_text("image_id,caption_id,score\n" + "\n".join(scores) + "\n")
    run = f"""
        captions --source tsv --input {folder}/captions.tsv --split test --out {folder}/c
        relevance --captions {folder}/c --measures cider,rouge_l --out {folder}/r -- --direct_num_workers=1
        shards --captions {folder}/c --measures cider,rouge_l --out {folder}/s
    """
    for line in run.strip().splitlines():
        assert call(*line.split()) == 0
    np.save(folder / "sims.npy", np.random.default_rng(0).normal(size=(15, len(rows))))
    np.save(folder / "nan.npy", np.full((15, len(rows)), np.nan))
    (folder / "texts.csv").write_text(
        "candidate,references,score\na dog,the dog,1\na cat,the dog,0\n"
    )
    of_texts = ("agree", "texts", folder / "texts.csv", "--measures", "rouge_l")
    assert call(*of_texts, "--out", folder / "of_texts.json") == 0
    (folder / "pictures").mkdir()
    Image.new("RGB", (9, 9)).save(folder / "pictures" / "a.png")
    write_captions_folder(folder / "one", [caption_table([["x", "y"]])])
    return folder


TOLD = {
    "captions": "source tokenizer",
    "relevance": "measures",
    "shards": "measures",
    "publish": "layout",
    "regions": "boxes",
}


@pytest.mark.parametrize("command", TOLD)
def test_help_tells_the_defaults(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(command, "--help") == 0
    shown, block = " ".join(capsys.readouterr().out.split()), getattr(Params(), command)
    for name in TOLD[command].split():
        value = getattr(block, name)
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        assert re.search(rf"--{name} ((?! --).)*Default: {re.escape(text)}\.", shown), name


def every_option() -> Iterator[tuple[str, Any]]:
    """Each command by its words, and each of its options."""

    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield from (
            (words, option) for option in command.params if option.param_type_name == "option"
        )
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(f"{words} {name}".strip(), inner)

    return below("", get_command(cli.app))


def test_every_option_of_one_value_refuses_two() -> None:
    """Click takes the last: the first was typed in vain."""
    single = [
        (words, one)
        for words, one in every_option()
        if not one.multiple and one.name not in ("help", "version")
    ]
    assert len(single) > 150 and {words for words, _ in single} >= set(cli.COMMANDS)
    for words, option in single:
        once = [option.opts[0], *([] if option.is_flag else ["1"] * option.nargs)]
        assert (
            refusal(*words.split(), *once, *once)
            == f"error: {option.opts[0]} is given 2 times -> give it once\n"
        )
    for command in ("shards", "explore"):
        assert "--set shards.top is given 2 times" in refusal(
            command, *("--set", "shards.top=1") * 2
        )


def test_results_as_json(world: Path) -> None:
    captions, two = ("--captions", f"{world}/c"), ("--measures", "cider,rouge_l")
    result = printed("agree", *captions, "--judgements", f"{world}/people.csv", *two)["measures"]
    assert result.keys() == {"cider", "rouge_l", "binary"}
    assert {"pearson", "spearman", "kendall", "kendall_c", "intervals"} <= result["cider"].keys()
    assert result["cider"]["pearson"].keys() == {"all", "non_original"}
    result = printed(
        "relevance", *captions, *two, "--set", "bench.pairs=50", module="research.benchmarks"
    )
    assert result.pop("all")["times_the_product"] > 0
    for row in result.values():
        assert {"pairs_per_s", "peer", "peer_pairs_per_s", "ratio", "max_abs_diff"} <= row.keys()
        assert row["max_abs_diff"] < 1e-5
    files = ("--similarity", f"{world}/sims.npy", "--relevance", f"{world}/r")
    result = printed("evaluate", *captions, *files, "--set", "evaluate.samples=20")
    assert {"recall@1", "r@1", "ncs@1", "ndcg@25", "asp", "kendall_tau_a"} <= result["i2t"].keys()
    assert {"t2i", "rsum", "nsum"} <= result.keys()


def test_search_frequencies_params_and_imports(world: Path) -> None:
    shown = printed("search", "--captions", f"{world}/c", "--relevance", f"{world}/r", "--top", "2")
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
        f"cider,x={world}/sims.npy",
    )
    done = printed("shards", "--captions", f"{world}/c", *options, "--out", f"{world}/s2")
    assert (done["params"]["shards"]["uniform"], done["params"]["shards"]["top"]) == (3, 2)
    assert done["params"]["measures"]["x"] == {"imported": "sims.npy"}


def test_options_win_over_set_and_set_over_params(world: Path) -> None:
    """A params.yaml may leave out what the command line gives."""
    (world / "q.yaml").write_text("captions: {source: tsv, split: a, tokenizer: ptb_py}\n")
    options = (
        "--params",
        f"{world}/q.yaml",
        "--set",
        "captions.split=b",
        "--set",
        "captions.tokenizer=lower_split",
    )
    arguments = (
        "--input",
        f"{world}/captions.tsv",
        "--split",
        "yes",
        "--columns",
        "caption=caption",
    )
    done = printed("captions", *options, *arguments, "--out", f"{world}/c2")
    assert done["splits"].keys() == {"yes"}
    assert done["params"]["captions"]["tokenizer"] == "lower_split"


def test_regions_of_images_drawn_exported_and_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_detector.register(monkeypatch.setattr)
    (tmp_path / "in").mkdir()
    for k in range(3):
        Image.effect_noise((160, 120), 90).save(tmp_path / "in" / f"{k}.jpg")
    extract = ("regions", "--images", f"{tmp_path}/in", "--detector", "scenes", "--boxes", "5")
    extract = (*extract, "--set", "regions.workers=0")
    capsys.readouterr()
    assert call(*extract, "--out", f"{tmp_path}/r") == 0
    line = capsys.readouterr().out
    assert re.match(
        r"3 images, 15 regions of 64 numbers \(float16, rounded by at most [\d.e-]+, 0.0[45]% of a"
        r" value\)",
        line,
    )
    drawn = (
        "--regions",
        f"{tmp_path}/r",
        "--images",
        f"{tmp_path}/in",
        "--out",
        f"{tmp_path}/p.png",
    )
    assert call("regions", "show", *drawn) == 0
    assert Image.open(tmp_path / "p.png").width == 4 * 14 + 3 * 420
    for format, name in (("tsv", "a.tsv"), ("scan", "a_ims.npy"), ("npz", "a")):
        exported = ("--format", format, "--regions", f"{tmp_path}/r", "--out", f"{tmp_path}/{name}")
        assert call("regions", "export", *exported) == 0
        arguments = (
            "--format",
            format,
            "--features",
            f"{tmp_path}/{name}",
            "--out",
            f"{tmp_path}/{format}",
        )
        done = printed("regions", *arguments)
        split = {"split": "a"} if format == "scan" else {}
        assert done["params"] == {"dtype": "float32", "target_mb": 64, "source": format, **split}
        assert name in done["inputs"]
        for found, made in zip(
            RegionStore(tmp_path / format), RegionStore(tmp_path / "r"), strict=True
        ):
            assert found.image_id == made.image_id and (found.features == made.features).all()


def test_captions_left_out_are_counted_by_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.token").write_text("".join(f"{name}.jpg#0\ta dog\n" for name in "abc"))
    (tmp_path / "list.txt").write_text("b.jpg\n")
    arguments = [
        "--source",
        "flickr",
        "--input",
        "f.token",
        "--split-lists",
        "t=list.txt",
        "--out",
        "o",
    ]

    def said(*more: str) -> str:
        assert call("captions", *arguments, *more) == 0
        out, error = capfd.readouterr()
        assert error == ""
        return out

    assert said().splitlines() == [
        "1 captions of 1 images (t 1) -> o",
        "left out: 2 captions of images in no list",
    ]
    found = json.loads(said("--json"))
    assert (found["splits"], found["left_out"]) == ({"t": 1}, {"captions of images in no list": 2})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_leave_the_finished_blocks(number: int, tmp_path: Path) -> None:
    write_captions_folder(tmp_path / "c", [caption_table(random_sets(300, seed=3))])
    shards = (
        "shards",
        "--captions",
        f"{tmp_path}/c",
        "--measures",
        "rouge_l",
        "--set",
        "shards.block_images=3",
    )
    process = subprocess.Popen(
        [*CAPGRADE, *shards, "--out", f"{tmp_path}/s"], stderr=subprocess.PIPE, text=True
    )
    while not list(tmp_path.glob("s.unfinished/*/parts/*.arrow")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    # Beam may say where it was stopped; the last line is ours.
    last = process.communicate()[1].splitlines()[-1]
    assert last == "stopped; the same command goes on where it was stopped"
    assert process.returncode == 128 + number
    assert not (tmp_path / "s" / "manifest.json").exists()
    for name in ("s", "whole"):
        assert call(*shards, "--out", f"{tmp_path}/{name}") == 0
    whole = (tmp_path / "whole" / "manifest.json").read_bytes()
    assert (tmp_path / "s" / "manifest.json").read_bytes() == whole


def test_a_stop_says_what_of_regions_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shard of pictures takes minutes."""
    monkeypatch.setattr("capgrade.pipelines.regions.regions", Mock(side_effect=KeyboardInterrupt))
    assert call("regions", "--images", tmp_path, "--out", tmp_path / "o") == 130
    said = f"after the last finished shard, of up to {MOST_IMAGES} images\n"
    assert capsys.readouterr().err.endswith(f"the same command goes on {said}")


# A command (w: the folder above, o: a new one) => part of the one line that says what is wrong.
# What stages refuse is tested with them.
WRONG = """
captions --source tsv --input {w}/none.tsv --out {o} => none.tsv: no such file
captions --source vg --input x --out {o} => parameter 'captions.source' is 'vg' -> choose from: scenes, coco, karpathy
captions --source tsv --input {w}/captions.tsv --out {w}/captions.tsv/out => error: {w}/captions.tsv/out: 
frequencies --captions {w}/c --out {w}/one => {w}/one: a folder where a file is to be written
captions --source scenes => missing option '--out'
captions --source csv --input x --columns nothing=y --out {o} => unknown parameter 'captions.columns.nothing'
relevance --captions {w} --measures cider --out {o} => no manifest.json: not a finished captions
relevance --captions {w}/c --measures cider --out {o} cider
    => unexpected 'cider' -> see capgrade relevance --help; options of Apache Beam follow `--`
shards --captions {w}/c --set shards.top=[1 --out {o} => 'shards.top=[1' is not valid YAML: 
shards --captions {w}/c --part 1/2 --join --out {o} => --part and --join together: make the parts first, then join them
agree --captions no --judgements j --measures cider --calibrate => --calibrate writes a file -> give --out
agree --captions no => nothing to agree with -> give --judgements
agree texts {w}/texts.csv --measures nothing => no column 'nothing'
agree choices {w}/c --measures cider => pair_pascal.mat: no such file
agree raters {w} => not a review
publish --captions {w}/c --shards {w}/s --license mit --agreement {w}/c/manifest.json --out {o}
    => manifest.json: not agreement figures of captions -> give what capgrade agree --captions --out wrote
publish --captions {w}/c --shards {w}/s --license mit --agreement {w}/of_texts.json --out {o}
    => of_texts.json: not agreement figures of captions -> give 
evaluate --captions {w}/c --similarity {w}/nan.npy
    => nan.npy: NaN for image 'i0', caption 'i0#0', 15 such rows -> score every pair
publish --captions {w}/c --license mit --out {o} => no labels to publish -> give --shards, one of each split
publish push no user/name => no manifest.json: not a finished publish folder -> run `capgrade publish`
publish check no => no: no such folder, nor a dataset USER/NAME -> check the path
explore --captions no --measures cider --set regions.weights=w => regions.weights without explore.detector
search --captions c --query dog => --query without --run
search --captions c => nothing to search -> give --captions and --relevance, or --run
align --run r --captions c --regions g --out {o} => no pictures to draw on -> give --images
regions --out {o} => no pictures and no features -> give --images, or --features and --format
regions --images {w}/pictures --boxes many --out {o} => parameter 'regions.boxes' is 'many': 
regions --images {w}/pictures --boxes 20-10 --out {o} => boxes 20-10: write MIN-MAX, the smaller first
regions --format csv --features {w}/captions.tsv --out {o}
    => unknown format 'csv' -> near it: tsv; choose from: tsv, npz, teran, scan, h5, lxmert
regions export --format h5 --regions {w}/one --out {o}
    => no writer for format 'h5' -> choose from: tsv, scan, npz
regions export --format tsv --regions {w}/c --out {o} => a folder of captions where one of regions is needed
"""


@pytest.mark.parametrize("case", WRONG.replace("\n    ", " ").strip("\n").splitlines())
def test_bad_input_is_one_line(case: str, world: Path, tmp_path: Path) -> None:
    line, message = case.split(" => ")
    assert message.format(w=world) in refusal(*line.format(w=world, o=tmp_path / "o").split())
    assert not (tmp_path / "o" / "manifest.json").exists()


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert call("--version") == 0
    assert capsys.readouterr().out == f"capgrade {version('capgrade')}\n"


@pytest.mark.parametrize(
    ("own", "left"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_how_threads_wait_is_the_users_to_say(
    own: dict[str, str], left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # what the command sets goes with it
        monkeypatch.delenv(name)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert call("--help") == 0
    assert os.environ.get("GOMP_SPINCOUNT") == left


def test_a_full_disk_names_what_was_to_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("capgrade.pipelines.captions.captions", full)
    said = refusal("captions", "--source", "scenes", "--out", tmp_path / "c")
    assert said == f"error: {tmp_path}/c: No space left on device\n"


def test_commands_and_options_are_few() -> None:
    """Those that nearly every command has count once, and keys of a stage's block as keys."""
    common = {"--params", "--set", "--json"}
    own = [
        option
        for name, options in commands()
        for option in {*options} - common
        if option.startswith("-")
        and not (name in STAGES and option[2:].replace("-", "_") in knobs_of(STAGES[name]))
    ]
    assert len(list(commands())) <= 35 and len(own) + len(common) <= 170


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_help_fits_on_a_screen_and_opens_with_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call(*name.split(), "--help") == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert len(lines) <= 40
    assert lines[2].strip() == f"$ capgrade {name} {cli.COMMANDS[name][1]}"


def test_help_lists_the_commands_in_the_order_of_the_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("--help") == 0
    shown = capsys.readouterr().out
    listed = re.findall(r"^  ([a-z]+)  ", shown.partition("Commands:")[2], re.MULTILINE)
    assert listed == [name for name in cli.COMMANDS if " " not in name]
    assert call() == 2 and capsys.readouterr().err.strip() == shown.strip(), (
        "the bare command says them too"
    )


def test_no_head_of_a_table_is_cut_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    shown = agreement_text(
        {"people": {name: {"all": -0.123, "non_original": -0.456} for name in COEFFICIENTS}}
    )
    assert "…" not in shown and all(name.replace("_", " ") in shown for name in COEFFICIENTS)
    assert shown.count("-0.456") == len(COEFFICIENTS) < shown.count("other")


def test_a_narrow_terminal_cuts_no_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_matches(
        "a dog",
        [
            Match(
                "a/long/path/000000000001.jpg", "a dog", False, dict.fromkeys("abcdefghijkl", 0.25)
            )
        ],
    )
    shown = capsys.readouterr().out
    assert shown.count("0.25") == 12 and "…" not in shown
