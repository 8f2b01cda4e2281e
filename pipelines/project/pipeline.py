"""dvc.yaml: the pipeline of any data, and in it a stage of DVC for each stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from capgrade.schemas.stage import Stage
from capgrade.stages import OURS, STAGES

PIPELINE = Path(__file__).with_name("pipeline.yaml")
_INPUTS = "data/inputs"
_END = "\nplots:\n"  # what follows the stages


def dvc_stage(stage: Stage[Any]) -> dict[str, Any]:
    """A stage as dvc.yaml has it: what it reads and writes lies in data/, at the stages' places."""
    place = stage.place or stage.name
    commands = [f"capgrade {stage.typed('data/{}', '--params params.yaml')}"]
    for files, folder in stage.shown.items():
        copied = f"cp data/{place}/{files} data/{folder}"
        commands.append(f"mkdir -p data/{folder} && {copied}")
    read = [f"data/{reads.place}" for reads in stage.reads.values()]
    return {
        "desc": stage.summary,
        "cmd": commands if len(commands) > 1 else commands[0],
        "deps": [f"{_INPUTS}/code.json", f"{_INPUTS}/{stage.name}.json", *read],
        "outs": [f"data/{name}" for name in (place, *stage.shown.values())],
    }


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
