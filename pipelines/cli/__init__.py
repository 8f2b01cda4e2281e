"""The `capgrade` command: one subcommand per stage. Each builds parameters, calls the stage and
prints."""

import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from capgrade.pipelines.cli import labels, people, project, regions, training, uses
from capgrade.pipelines.cli.options import BEAM, Command, Group, with_options
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import missing_extra
from capgrade.schemas.say import show_warning

# commands that keep what they have done
GOING_ON = {
    "relevance",
    "shards",
    "regions",
    "train",
    "judge",
    "regrade",
}
REGRADE = "--endpoint http://localhost:8000/v1 --judge llama-3.1-8b"
JUDGE = "--endpoint http://localhost:8000/v1 --model llama-3.1-8b"

# The stages, then their uses; each with the line that its help opens with. Tests run these on small
# inputs.
COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "init": (project.init, "--template scenes project"),
    "inputs": (project.inputs, "--out data/inputs"),
    "captions": (labels.captions, "--source tsv --input captions.tsv --split test --out captions"),
    "regions": (regions.regions, "--images data/captions --out regions"),
    "regions show": (
        regions.show_regions,
        "--regions regions --images data/captions --picture regions.png",
    ),
    "regions export": (regions.export_regions, "--format npz --regions regions --out exported"),
    "regions import": (regions.import_regions, "--format npz --input exported --out imported"),
    "relevance": (labels.relevance, "--captions captions --measures people --out relevance"),
    "shards": (labels.shards, "--captions captions --measures cider,rouge_l --out shards"),
    "train": (
        training.train,
        "--preset sam --captions data/captions --regions data/regions --out run",
    ),
    "evaluate": (
        training.evaluate,
        "--run run --captions data/captions --regions data/regions --split test --out evaluation",
    ),
    "agree": (
        labels.agree,
        "--captions data/captions --split test --judgements data/captions/truth-test.arrow",
    ),
    "publish": (
        labels.publish,
        "--captions captions --shards shards --license cc-by-4.0 --out dataset",
    ),
    "report": (uses.report, "--data data --out report.html"),
    "score": (uses.score, "--candidates results.json --references captions.json"),
    "audit": (uses.audit, "--captions captions --relevance relevance --out audit.html"),
    "search": (training.search, "--run run --query 'two dogs play with a red ball'"),
    "explore": (people.explore, "--dataset dataset"),
    "judge": (
        people.judge,
        f"--captions captions --pairs cxc_sits_test.csv {JUDGE} --out judged.csv",
    ),
    "regrade": (
        people.regrade,
        f"--captions captions --similarity sims.npy {REGRADE} --budget 500 --out regraded",
    ),
    "reproduce": (training.reproduce, "--list"),
    "verify": (labels.verify, "data"),
    "bench": (uses.bench, "relevance --captions captions --measures cider,rouge_l"),
}


class _InOrder(Group):
    """Typer lists groups of commands after single ones."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in COMMANDS if name in self.commands]


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"capgrade {version('capgrade')}")
        raise typer.Exit


app = typer.Typer(
    cls=_InOrder,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=(
        "Graded relevance labels for image-text retrieval. Every command reads `--params FILE`"
        " (params.yaml) when it is given, then `--set KEY=VALUE`, then its own options."
    ),
)


@app.callback()
def _whole(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None: ...


def _named(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """The command; beside its output it records what it took, and when it is stopped it says one
    line."""

    @wraps(command)
    def run(**values: Any) -> None:
        out = values.get("out") or values.get("words")
        try:
            with nullcontext() if out is None else _timed(name, Path(out)):
                command(**values)
        except OSError as error:
            # Of a write that fails nobody says which file: it is of the output.
            if out is None or error.filename or not error.strerror:
                raise
            raise InputError(error.strerror, file=out) from error
        except (KeyboardInterrupt, RuntimeError) as error:
            if not _is_interrupt(error):
                raise
            said = "stopped"
            if name in GOING_ON:
                unit = (
                    "after the last finished epoch" if name == "train" else "where it was stopped"
                )
                without = " without --restart" if values.get("restart") else ""
                said = f"stopped; the same command{without} goes on {unit}"
            typer.echo(said, err=True)
            sys.exit(130)

    return run


def _timed(name: str, out: Path) -> AbstractContextManager[None]:
    from capgrade.schemas.times import timed  # `capgrade --help` does not load it

    return timed(name, out)


def _add_commands() -> None:
    """Each command of the table with its example; `regions` both does something and has commands
    below it."""
    below = typer.Typer(cls=Group, invoke_without_command=True)
    for name, (function, example) in COMMANDS.items():
        description = inspect.cleandoc(function.__doc__ or "")
        shown: dict[str, Any] = {
            "help": f"\b\n$ capgrade {name} {example}\n\n{description}",
            "short_help": description.partition("\n\n")[0].replace("\n", " "),
        }
        group, _, last = name.rpartition(" ")
        if name == "regions":
            below.callback(**shown)(_named(name, with_options(function)))
            app.add_typer(below, name=name)
        else:
            settings = BEAM if name in ("relevance", "shards") else None
            commands = below if group else app
            commands.command(last, cls=Command, context_settings=settings, **shown)(
                _named(name, with_options(function))
            )


_add_commands()


def main() -> None:
    """Run the command line; wrong input ends it with one line and exit status 2."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")  # uploads by git LFS, which the tests speak
    if (
        "OMP_WAIT_POLICY" not in os.environ
    ):  # a wish of the user's own, which the other would overrule
        # torch's threads wait asleep: awake they starve beside others
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("capgrade.pipelines").setLevel(logging.INFO)  # captions left out
    for handler in logging.getLogger().handlers:
        handler.addFilter(_worth_saying)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            try:
                app()
            except SystemExit as done:  # Typer exits whenever it has run
                if done.code:
                    raise
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None or os.environ.get("CAPGRADE_DEBUG"):
            raise
        _say_error(missing)
    except (InputError, OSError) as error:  # OSError: a full disk, a folder that may not be written
        if os.environ.get("CAPGRADE_DEBUG"):
            raise
        _say_error(error)


def _worth_saying(record: logging.LogRecord) -> bool:
    """Not Beam's word at import that Google Cloud's client is not there, nor its tracebacks: what a
    worker raises is the command's one line."""
    if os.environ.get("CAPGRADE_DEBUG"):
        return True
    of_beam = record.name.startswith("apache_beam") and record.levelno < logging.CRITICAL
    return not of_beam and "apitools not found" not in record.getMessage()


def _is_interrupt(error: BaseException) -> bool:
    """Ctrl-C, as Python raises it, or as Beam's worker wraps it in a RuntimeError."""
    return isinstance(error, KeyboardInterrupt) or str(error).startswith("KeyboardInterrupt")


def _say_error(error: InputError | OSError) -> NoReturn:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        # the second of a rename is the one that was asked for
        name = error.filename2 or error.filename
        text = f"{name}: {error.strerror}" if name else error.strerror
    typer.secho(f"error: {text}", fg="red", err=True)
    sys.exit(2)
