"""Commands of stages: a knob has one name in YAML and shell, and is read alike."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from capgrade.pipelines.cli.stages import knobs_of, make_command
from capgrade.pipelines.options import with_options
from capgrade.schemas.block import ParamsBlock
from capgrade.schemas.natures import Where
from capgrade.schemas.params import put
from capgrade.schemas.stage import Reads, Stage
from capgrade.stages import STAGES
from tests.conftest import call, printed, refusal
from tests.tools.commands import commands

OPTIONS = dict(commands())
MANY = {"--params", "--set", "--json", "--out"}


@pytest.mark.parametrize("stage", STAGES.values(), ids=list(STAGES))
def test_an_option_is_a_folder_that_is_read_or_a_key(stage: Stage[Any]) -> None:
    keys = {f"--{key.replace('_', '-')}": key for key in knobs_of(stage)}
    read = {f"--{name}" for name in stage.reads}
    assert not keys.keys() & (read | MANY) and not read & MANY, "one name stands for one thing"
    shown = {option for option, key in keys.items() if not stage.told or key in stage.told}
    assert {*OPTIONS[stage.name]} - {"--help"} == shown | read | MANY
    assert {*stage.told} <= {*keys.values()}
    assert all(field.description for field in knobs_of(stage).values())
    assert callable(stage.imported())


class Size(ParamsBlock):
    width: int = 1
    height: int = 2


class Inner(ParamsBlock):
    size: Size = Size()


class AllKinds(ParamsBlock):
    """A key of each kind."""

    number: int = 3
    """how many"""
    share: float | None = None
    """how much"""
    text: str = "x"
    """what"""
    names: tuple[str, ...] = ()
    """which"""
    sizes: tuple[int, ...] = (1, 5)
    """how large"""
    whole: bool = True
    """whether all"""
    quick: bool = False
    """whether fast"""
    places: Where | tuple[Where, ...] | None = None
    """where"""
    by_name: dict[str, int] = {}
    """how many of each"""
    size: Size = Size()
    """width and height"""
    deep: Inner = Inner()
    """left to --set, as what follows"""
    terms: tuple[dict[str, Any], ...] = ()


GIVEN: list[Any] = []


def note(regions: Path | None, out: Path, params: AllKinds) -> dict[str, Any]:
    GIVEN.append((regions, out, params))
    return {"files": {}}


STAGE = Stage(
    name="kinds",
    about="All kinds.",
    params=AllKinds,
    reads={"regions": Reads("regions", needed=False)},
    function=f"{__name__}:note",
    line=lambda manifest, params: "done\nwith a note",
    example="",
)


@pytest.mark.parametrize(
    ("typed", "params"),
    [
        ("", AllKinds()),
        (
            "--number 7 --share 0.5 --text yes --names a,b --names c --sizes 2,3 --whole false"
            " --quick --places a,b --by-name a=1 --by-name b=2 --size width=4",
            AllKinds(
                number=7,
                share=0.5,
                text="yes",
                names=("a", "b", "c"),
                sizes=(2, 3),
                whole=False,
                quick=True,
                places="a,b",
                by_name={"a": 1, "b": 2},
                size=Size(width=4),
            ),
        ),
        ("--places a --places b", AllKinds(places=("a", "b"))),
    ],
)
def test_every_kind_of_key_is_read_from_an_option(
    typed: str, params: AllKinds, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert AllKinds.model_fields.keys() - knobs_of(STAGE) == {"deep", "terms"}

    def load(file: Any, sets: Any, measures: Any, kinds: dict[str, Any]) -> Any:
        tree: dict[str, Any] = {}
        for key, value in kinds.items():
            put(tree, key, value)
        return SimpleNamespace(kinds=AllKinds(**tree), measures=None)

    monkeypatch.setattr("capgrade.pipelines.cli.stages.load", load)
    app, words = typer.Typer(), [*typed.split(), "--out", "o"]
    app.command()(with_options(make_command(STAGE)))
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (0, "done -> o\nwith a note\n"), done.output
    assert GIVEN.pop() == (None, Path("o"), params)


def test_a_key_is_checked_alike_on_every_road(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("shards: {top: x}\n")
    of_file = refusal("shards", "--captions", "c", "--out", "o", "--params", tmp_path / "p.yaml")
    of_set = refusal("shards", "--captions", "c", "--out", "o", "--set", "shards.top=x")
    of_option = refusal("shards", "--captions", "c", "--out", "o", "--top", "x")
    assert of_option == of_set == of_file.replace(f"{tmp_path}/p.yaml: ", "")
    assert "parameter 'shards.top' is 'x'" in of_option


def test_parts_and_what_is_joined_say_what_was_made(tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_text("image_id\tcaption\n1\ta dog\n1\tdogs\n2\ta cat\n2\tcats\n")
    assert call("captions", "--source", "tsv", "--input", f"{tmp_path}/c.tsv", "--split", "a",
                "--out", f"{tmp_path}/c") == 0  # fmt: skip
    words = ["shards", "--captions", f"{tmp_path}/c", "--out", f"{tmp_path}/s"]
    words += ["--measures", "rouge_l", "--block-images", "1"]
    for part in ("2/2", "1/2"):
        assert printed(*words, "--part", part)["kind"] == "shards_part"
    assert printed(*words, "--join")["pairs"] == 8
