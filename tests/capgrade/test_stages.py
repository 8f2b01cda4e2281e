"""Stages of other packages: an entry point brings a command, a block, a stage of DVC."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from capgrade.params import Params
from capgrade.pipelines.cli import COMMANDS
from capgrade.stages import STAGES, TAKEN
from tests.conftest import caption_table, random_sets, write_captions_folder

MODULE = """
from capgrade.schemas.block import ParamsBlock, Positive
from capgrade.schemas.natures import How, Split
from capgrade.schemas.stage import Reads, Shown, Stage


class LettersParams(ParamsBlock):
    \"\"\"`capgrade letters`: which letter is counted.\"\"\"

    letter: str = "a"
    \"\"\"the letter to count\"\"\"
    split: Split | None = None
    \"\"\"the split to count in\"\"\"
    at_once: How[Positive] = 3
    \"\"\"captions that are read at once\"\"\"


LETTERS = Stage(
    name="letters",
    about="Count a letter in captions.",
    params=LettersParams,
    reads={"captions": Reads("captions")},
    function="letters_work:letters",
    line=lambda manifest, params: f"{manifest['total']} times {params.letter}",
    example="--captions captions --letter e --out letters",
    shown=(Shown("count.txt", "plots/letters"),),
)
"""
WORK = """
from capgrade.schemas.captions import read_captions
from capgrade.schemas.files import write_text
from capgrade.schemas.run import StageRun
from letters_stage import LETTERS


def letters(captions, out, params):
    table = read_captions(captions, params.split)
    run = StageRun(stage=LETTERS, params=params, inputs={"captions": table.digest})
    with run.folder(out) as folder:
        total = sum(text.count(params.letter) for text in table.texts)
        write_text(folder / "count.txt", str(total))
        return run.finish(folder, {"count.txt": 1}, total=total)
"""
# What one process prints of it: starting one takes seconds.
ASK = """
import json, sys
from pathlib import Path
from capgrade.params import Params, load_params
from capgrade.pipelines.cli import COMMANDS, main
from capgrade.pipelines.project.inputs import write_inputs
from capgrade.pipelines.project.pipeline import pipeline_text
from capgrade.schemas.keys import describe_keys

sys.argv = ["capgrade", *"letters --captions captions --letter s --at-once 2 --out out".split()]
main()
inputs = [
    write_inputs(load_params(None, [given]), Path("data/inputs"))["letters"]
    for given in ("letters.at_once=3", "letters.at_once=4", "letters.letter=b")
]
folder = Path("data/inputs")
code = json.loads((folder / "code.json").read_text())["packages"]
keys = [line for key, line in describe_keys(Params) if key == "letters.letter"]
print(json.dumps([[*COMMANDS], inputs, keys, pipeline_text(), code]))
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with captions and an installed package."""
    write_captions_folder(tmp_path / "captions", [caption_table(random_sets(4, seed=3))])
    made = tmp_path / "site" / "letters-0.1.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text("Name: letters\nVersion: 0.1\n")
    (made / "entry_points.txt").write_text("[capgrade.stages]\nletters = letters_stage:LETTERS\n")
    (tmp_path / "site" / "letters_stage.py").write_text(MODULE)
    (tmp_path / "site" / "letters_work.py").write_text(WORK)
    return tmp_path


def python(world: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(world / "site"), *sys.path])}
    return subprocess.run(
        [sys.executable, *words], cwd=world, env=environment, capture_output=True, text=True
    )


def test_a_package_brings_a_stage(world: Path) -> None:
    done = python(world, "-c", ASK)
    assert done.returncode == 0, done.stderr
    line, told = done.stdout.splitlines()
    assert line.endswith(" times s -> out")
    commands, inputs, keys, pipeline, packages = json.loads(told)
    assert packages == {"letters": "0.1"}, "another version runs again"
    assert commands.index("letters") > commands.index("shards")
    assert inputs[0] == inputs[1] != inputs[2], "what decides no result runs nothing again"
    assert keys == ['text ("a"); the letter to count']
    assert yaml.safe_load(pipeline)["stages"]["letters"] == {
        "desc": "Count a letter in captions.",
        "cmd": [
            "capgrade letters --params params.yaml --captions data/captions --out data/letters",
            "mkdir -p data/plots/letters && cp data/letters/count.txt data/plots/letters",
        ],
        "deps": ["data/inputs/code.json", "data/inputs/letters.json", "data/captions"],
        "outs": ["data/letters", "data/plots/letters"],
    }
    manifest = json.loads((world / "out" / "manifest.json").read_text())
    assert (manifest["kind"], manifest["params"]) == (
        "letters",
        {"letters": {"letter": "s", "split": None}},
    )


def test_no_stage_has_the_name_of_a_command_or_of_a_key() -> None:
    named = {*(name.split()[0] for name in COMMANDS), *Params.model_fields}
    assert named - {*STAGES} == TAKEN


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("raise OSError('no such library')", "no such library"),
        ("LETTERS = 3", "is no capgrade.schemas.stage.Stage"),
        (MODULE.replace('name="letters"', 'name="shards"'), "there is a 'shards' already"),
        (MODULE.replace('name="letters"', 'name="score"'), "there is a 'score' already"),
        (MODULE.replace('name="letters"', 'name="a b"'), "a stage cannot be called 'a b'"),
    ],
)
def test_a_package_that_is_broken_leaves_the_other_stages(
    world: Path, module: str, said: str
) -> None:
    (world / "site" / "letters_stage.py").write_text(module)
    asked = "from capgrade.stages import STAGES; print(*STAGES)"
    done = python(world, "-c", asked)
    assert "letters" not in done.stdout and "publish" in done.stdout and said in done.stderr
