"""The line that the help of each command opens with; tests run them, on small inputs of these names."""

from __future__ import annotations

import inspect

import typer
from typer.models import CommandInfo, TyperInfo

EXAMPLES = {
    "captions": "--source tsv --input captions.tsv --split test --out captions",
    "relevance": "--captions captions --measures cider,rouge_l --out relevance",
    "shards": "--captions captions --measures cider,rouge_l --out shards",
    "publish": "--captions captions --shards shards --license cc-by-4.0 --out dataset",
    "regions": "--images data/captions --out regions",
    "regions show": "--regions regions --images data/captions --picture regions.png",
    "regions export": "--format npz --regions regions --out exported",
    "regions import": "--format npz --input exported --out imported",
    "train": "--preset sam --captions data/captions --regions data/regions --out run",
    "evaluate": "--run run --captions data/captions --regions data/regions --split test --out evaluation",
    "search": "--run run --query 'two dogs play with a red ball'",
    "agree": "--captions data/captions --split test --judgements data/captions/truth-test.arrow",
    "report": "--data data --out report.html",
    "score": "--candidates results.json --references captions.json",
    "audit": "--captions data/captions --relevance data/relevance --out audit.html",
    "explore": "--dataset data/dataset",
    "judge": "--captions captions --pairs cxc_sits_test.csv --endpoint http://localhost:8000/v1 --model llama-3.1-8b "
    "--out judged.csv",
    "reproduce": "--list",
    "verify": "data",
    "bench": "relevance --captions captions --measures cider,rouge_l",
}


def open_with_examples(app: typer.Typer, above: str = "") -> None:
    """The help of each command of `app`, and of the groups in it, with its example first."""
    for command in app.registered_commands:
        _open(command, f"{above} {command.name or command.callback.__name__}".strip())  # type: ignore[union-attr]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        name = group.name if isinstance(group.name, str) else ""
        open_with_examples(group.typer_instance, f"{above} {name}".strip())
        if name and group.typer_instance.registered_callback is not None:
            _open(group.typer_instance.registered_callback, name)


def _open(command: CommandInfo | TyperInfo, name: str) -> None:
    told = inspect.cleandoc(command.callback.__doc__ or "")
    command.short_help = told.partition("\n\n")[0].replace("\n", " ")
    command.help = f"\b\n$ capgrade {name} {EXAMPLES[name]}\n\n{told}"
