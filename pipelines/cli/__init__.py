"""The `capgrade` command: one subcommand per stage. Each builds parameters, calls the stage and
prints."""

import inspect
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from capgrade.pipelines.cli import catalogues, labels, project, regions, scores, training
from capgrade.pipelines.cli.stages import make_command
from capgrade.pipelines.options import BEAM, Command, Group, option_of, with_options
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.extras import missing_extra
from capgrade.schemas.say import show_warning
from capgrade.stages import STAGES

# The apps stand above the product, which imports none and finds their commands by this name. It is
# no entry point, as a checkout may lie beside the metadata of an older installation.
_APPS: Any = import_module("capgrade.apps.cli")
# Commands that keep finished work when they are stopped, and go on with it.
RESUMABLE = {*_APPS.RESUMABLE, *(name for name, one in STAGES.items() if one.format is not None)}

_OF_STAGES = {name: (make_command(stage), stage.example) for name, stage in STAGES.items()}
# The stages, then their uses; each with the line that its help opens with. Tests run these on small
# inputs.
COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "init": (project.init, "--template scenes project"),
    "inputs": (project.inputs, "--out data/inputs"),
    **_OF_STAGES,
    "regions show": (
        regions.show_regions,
        "--regions regions --images data/captions --out regions.png",
    ),
    "regions export": (regions.export_regions, "--format npz --regions regions --out exported"),
    "regions weights": (
        regions.convert_weights,
        "--input bua-caffe-frcn-r101-k36.pth --out bottom-up-36.safetensors",
    ),
    "compare": (training.compare, "data/evaluation --out comparison"),
    "agree texts": (labels.agree_texts, "polaris.csv --measures cider,rouge_l"),
    "agree choices": (labels.agree_choices, "pascal-50s --measures cider,rouge_l"),
    "publish push": (labels.push, "dataset user/my-labels"),
    "publish check": (labels.check, "dataset"),
    "score": (scores.score, "--candidates results.json --references captions.json"),
    "frequencies": (labels.frequencies, "--captions captions --out frequencies.arrow"),
    "parse": (labels.parse, "'two dogs play with a red ball'"),
    "search": (training.search, "--run run --query 'two dogs play with a red ball'"),
    "verify": (labels.verify, "data"),
    "list": (catalogues.list_names, "measures"),
    **_APPS.COMMANDS,
}


class _OrderedGroup(Group):
    """The commands in the order of the table. Those of two words follow what they begin with."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = [*COMMANDS]
        return sorted(COMMANDS, key=lambda name: (names.index(name.split()[0]), names.index(name)))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        two = " ".join(args[:2])
        if two in self.commands:
            return two, self.commands[two], args[2:]
        below = [name.split()[1] for name in self.commands if name.startswith(f"{args[0]} ")]
        if below and not ctx.resilient_parsing and args[1:] and not args[1].startswith("-"):
            remedy = choose_from(args[1], below, f"{ctx.command_path} --help")
            raise InputError(f"no command '{two}'", remedy=remedy)
        return super().resolve_command(ctx, args)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"capgrade {version('capgrade')}")
        raise typer.Exit


app = typer.Typer(
    cls=_OrderedGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=(
        "Graded relevance labels for image-text retrieval. A command that has the options --params"
        " and --set reads the file first, then `--set KEY=VALUE`, then its other options. `capgrade"
        " list` names measures, metrics, presets and parameters."
    ),
)


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None: ...


def _stoppable(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """The command, which prints one line when it is stopped, by Ctrl-C or SIGTERM."""

    @wraps(command)
    def run(**values: Any) -> None:
        out = values.get("out")
        try:
            command(**values)
        except OSError as error:
            # An error without a file name comes from a failed write, which is of the output.
            if out is None or error.filename or not error.strerror:
                raise
            raise InputError(error.strerror, file=out) from error
        except (KeyboardInterrupt, RuntimeError) as error:
            if not _is_interrupt(error):
                raise
            message = "stopped"
            if name in RESUMABLE:
                unit = STAGES[name].unit if name in STAGES else None
                where = f"after the last finished {unit}" if unit else "where it was stopped"
                without = " without --restart" if values.get("restart") else ""
                message = f"stopped; the same command{without} goes on {where}"
            typer.echo(message, err=True)
            sys.exit(128 + (signal.SIGTERM if _terminated else signal.SIGINT))

    return run


_terminated = False  # whether SIGTERM came


@contextmanager
def _stop_on_sigterm() -> Iterator[None]:
    """Within the block SIGTERM, which schedulers send, ends a command as Ctrl-C does."""
    mine = os.getpid()

    def stop(number: int, _: FrameType | None) -> None:
        global _terminated
        if os.getpid() != mine:  # a worker that was forked ends as it would have
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        _terminated = True
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def add_command(to: typer.Typer, line: str, name: str, function: Callable[..., None]) -> None:
    """Add a command under its name; its help opens with `line`, an example."""
    description = inspect.cleandoc(function.__doc__ or "")
    on_beam = name in STAGES and STAGES[name].on_beam
    to.command(
        name,
        cls=Command,
        context_settings=BEAM if on_beam else None,
        help=f"\b\n$ {line}\n\n{description}",
        short_help=description.partition("\n\n")[0].replace("\n", " "),
    )(_stoppable(name, with_options(function)))


for _name, (_function, _example) in COMMANDS.items():
    add_command(app, f"capgrade {_name} {_example}", _name, _function)


def main() -> None:
    """Run `capgrade`."""
    run(app)


def run(commands: typer.Typer) -> None:
    """Run a command line; wrong input ends it with one line and exit status 2."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Threads of torch wait asleep, since busy waiting starves other processes. GOMP_SPINCOUNT would
    # overrule a user's OMP_WAIT_POLICY, which therefore comes first.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    logging.basicConfig(format="%(message)s")
    # At this level the pipelines say which captions they leave out.
    logging.getLogger("capgrade.pipelines").setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_worth_saying)
    try:
        with warnings.catch_warnings(), _stop_on_sigterm():
            warnings.showwarning = show_warning
            try:
                commands()
            except SystemExit as exit_:  # Typer exits whenever it has run
                if exit_.code:
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


def _is_worth_saying(record: logging.LogRecord) -> bool:
    """False for Beam's note that Google Cloud's client is missing, and for its tracebacks: the
    command prints a worker's error itself, in one line."""
    if os.environ.get("CAPGRADE_DEBUG"):
        return True
    is_beams = record.name.startswith("apache_beam") and record.levelno < logging.CRITICAL
    return not is_beams and "apitools not found" not in record.getMessage()


def _is_interrupt(error: BaseException) -> bool:
    """Ctrl-C, as Python raises it, or as Beam's worker wraps it in a RuntimeError."""
    return isinstance(error, KeyboardInterrupt) or str(error).startswith("KeyboardInterrupt")


def _say_error(error: InputError | OSError) -> NoReturn:
    text = error.at_shell(option_of) if isinstance(error, InputError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        # A rename has two names; the second is the path that the user gave.
        name = error.filename2 or error.filename
        text = f"{name}: {error.strerror}" if name else error.strerror
    typer.secho(f"error: {text}", fg="red", err=True)
    sys.exit(2)
