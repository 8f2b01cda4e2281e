"""dvc.yaml: a pipeline of any data, read at one glance, whose stages name what they read and
write."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from capgrade.pipelines.cli import COMMANDS
from capgrade.pipelines.project.inputs import READ
from capgrade.pipelines.project.pipeline import dvc_stage, pipeline_text
from capgrade.stages import OURS, STAGES
from tests.conftest import ROOT

TEXT = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
PIPELINE = yaml.safe_load(TEXT)
CODE = "data/inputs/code.json"


def stages() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Each stage with its commands."""
    for name, stage in PIPELINE["stages"].items():
        yield (
            name,
            stage,
            " ".join(stage["cmd"]) if isinstance(stage["cmd"], list) else stage["cmd"],
        )


def outputs(stage: dict[str, Any]) -> list[str]:
    plots = [next(iter(plot)) for plot in stage.get("plots", [])]
    return [*stage["outs"], *stage.get("metrics", []), *plots]


def test_it_is_read_at_one_glance_and_knows_no_dataset() -> None:
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    assert len(TEXT.splitlines()) <= 120
    assert not any(run in TEXT for run in params["runs"])
    settings = re.sub(r"desc: .*", "", TEXT)
    assert "scenes" not in settings and ".venv" not in settings


@pytest.mark.parametrize(("name", "stage", "command"), [*stages()], ids=list(PIPELINE["stages"]))
def test_a_stage_depends_on_what_it_reads(name: str, stage: dict[str, Any], command: str) -> None:
    """Every path under data/ in its commands is one of its inputs or outputs, or lies in one, or
    holds one."""
    known = [*stage.get("deps", []), *outputs(stage)]
    named = set(re.findall(r"data/[\w./${}*-]+", command))
    for path in named - {"data/"}:
        assert any(
            f"{path}/".startswith(f"{one}/") or f"{one}/".startswith(f"{path}/") for one in known
        ), path
    assert name == "inputs" or CODE in stage["deps"]
    assert re.findall(r"capgrade (\w+)", command)[0] in COMMANDS


@pytest.mark.parametrize(("name", "stage", "command"), [*stages()], ids=list(PIPELINE["stages"]))
def test_what_a_stage_reads_is_made_by_another(
    name: str, stage: dict[str, Any], command: str
) -> None:
    made = [out for other, one, _ in stages() for out in outputs(one) if other != name]
    for dep in stage.get("deps", []):
        assert any(f"{dep}/".startswith(f"{out}/") or out.startswith(f"{dep}/") for out in made), (
            dep
        )


def test_a_stage_depends_on_the_parameters_it_is_given() -> None:
    """By the file that `inputs` writes of them."""
    of_pipeline = {name for name, stage in STAGES.items() if stage.in_pipeline} - {"train"}
    files = {f"data/inputs/{stage}.json" for stage in (*READ, *of_pipeline)} | {
        "data/inputs/runs/${item.run}.json"
    }
    for name, stage, command in stages():
        if "--params" in command and name != "inputs":
            assert files & {*stage["deps"]}, name
            assert "params" not in stage, "a path or a device would run it again"
    assert PIPELINE["params"] == ["params.yaml"], "dvc params diff shows them"
    assert files <= {dep for _, stage, _ in stages() for dep in stage.get("deps", [])}


@pytest.mark.parametrize("stage", OURS, ids=lambda stage: stage.name)
def test_a_stage_stands_there_as_it_is_declared(stage: Any) -> None:
    assert PIPELINE["stages"].get(stage.name) == (dvc_stage(stage) if stage.in_pipeline else None)


def test_a_project_has_this_file() -> None:
    assert pipeline_text() == TEXT
