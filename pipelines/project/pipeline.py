"""dvc.yaml: the pipeline of any data, in it a stage of DVC for each stage, and what it writes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from capgrade.schemas.stage import Shown, Stage
from capgrade.stages import OURS, STAGES

PIPELINE = Path(__file__).with_name("pipeline.yaml")
_INPUTS = "data/inputs"
_RUN = "${item.run}"  # one of the runs, in DVC
_END = "\nplots:\n"  # what follows the stages


def dvc_stage(stage: Stage[Any]) -> dict[str, Any]:
    """A stage as dvc.yaml has it: what it reads and writes lies in data/, at the stages' places."""
    place = stage.place or stage.name
    of_preset = _RUN in place and "preset" in stage.params.model_fields
    options = ["--params params.yaml", *([f"--preset {_RUN}"] if of_preset else [])]
    commands = [f"capgrade {stage.typed('data/{}', *options)}"]
    commands += [_copied(shown, place) for shown in stage.shown]
    made_of = f"{_INPUTS}/{place if of_preset else stage.name}.json"
    read = [f"data/{reads.place}" for reads in stage.reads.values()]
    kinds: dict[str, list[Any]] = {"outs": [f"data/{place}"], "metrics": [], "plots": []}
    for shown in stage.shown:
        copy = f"data/{shown.place}"
        kind = "metrics" if shown.metrics else "plots" if shown.plot else "outs"
        kinds[kind].append({copy: dict(shown.plot)} if shown.plot else copy)
    return {
        "desc": stage.summary,
        **({"matrix": {"run": "${runs}"}} if _RUN in place else {}),
        "cmd": commands if len(commands) > 1 else commands[0],
        "deps": [f"{_INPUTS}/code.json", made_of, *read],
        **{kind: files for kind, files in kinds.items() if files},
    }


def _copied(shown: Shown, place: str) -> str:
    to = PurePosixPath("data") / shown.place
    folder = to.parent if to.suffix else to
    return f"mkdir -p {folder} && cp data/{place}/{shown.files} {to}"


def pipeline_text() -> str:
    """What `capgrade init` writes: our dvc.yaml, with the stages of other packages at its end."""
    before, end, after = PIPELINE.read_text(encoding="utf-8").partition(_END)
    others = {
        stage.name: dvc_stage(stage)
        for stage in STAGES.values()
        if stage.in_pipeline and stage not in OURS
    }
    if not others:
        return f"{before}{end}{after}"
    lines = yaml.safe_dump(others, sort_keys=False, width=120).splitlines()
    added = "\n".join(f"  {line}" for line in lines)
    return f"{before}\n{added}\n{end}{after}"


@cache
def outputs() -> set[str]:
    """The names below data/ that the pipeline writes."""
    texts = re.findall(r"\bdata/([\w.]+)", pipeline_text())
    return set(texts)
