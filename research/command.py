"""A command of research: options, errors and help as those of `capgrade`."""

from collections.abc import Callable

import typer

from capgrade.pipelines.cli import add_command, run


def run_command(module: str, function: Callable[..., None], example: str) -> None:
    """Run `function` as `python -m MODULE`, with the words of the command line."""
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False)
    line = f"python -m {module} {example}".rstrip()
    add_command(app, line, module.rpartition(".")[2], function)
    run(app)
