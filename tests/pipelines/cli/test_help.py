"""Help stands on its own: sentences, and words for what an option takes."""

import re
from typing import Any

import pytest
from typer.main import get_command

from capgrade.pipelines import cli
from tests.conftest import call, refusal
from tests.tools.commands import commands

TYPES = r"<|\b(list\[|str|int|float|bool|Path|path|integer|directory|filename)\b>?"

ALL: Any = get_command(cli.app)


def options_of(name: str) -> list[Any]:
    command = ALL.commands[name] if name else ALL
    return [one for one in command.params if one.name != "help"]


@pytest.mark.parametrize("name", ["", *(name for name, _ in commands())])
def test_help_names_no_type_of_python_and_no_page(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wheel has no docs/."""
    monkeypatch.setenv("COLUMNS", "80")
    assert call(*name.split(), "--help") == 0
    shown = capsys.readouterr().out
    assert "docs/" not in shown and "--no-" not in shown
    heads = re.findall(r"^  (--\S.*?|[A-Za-z_{}\[\]]+ <\S+>)(?:  |$)", shown, re.MULTILINE)
    assert [head for head in heads if re.search(TYPES, head)] == []
    long = [line for line in shown.splitlines() if len(line) > 80 and "$ capgrade" not in line]
    assert long == []


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_every_option_has_a_sentence_and_a_word_for_its_value(name: str) -> None:
    for option in options_of(name):
        told = option.help or ""
        assert told.endswith(".") and len(told.split()) >= 2, (option.opts, told)
        assert re.match(r"[A-Z]|params\.yaml|1|mteb", told), (option.opts, told)
        if not getattr(option, "is_flag", False):
            assert option.metavar and re.search("[A-Z]|[|]", option.metavar), option.opts


def test_the_top_help_is_true_of_params_and_set() -> None:
    """It speaks of commands that have both; none has --set alone."""
    for name, options in commands():
        assert "--set" not in options or "--params" in options, name


def test_one_thing_has_one_option() -> None:
    """What was called --pictures and --picture beside --images, --judge beside --model, --by beside
    --measure."""
    by_name = dict(commands())
    every = {option for options in by_name.values() for option in options}
    assert not every & {"--pictures", "--picture", "--judge", "--by", "--licence", "--list"}
    having = {
        option: {name for name in by_name if option in by_name[name]}
        for option in ("--judge-model", "--model")
    }
    assert having == {
        "--judge-model": {"judge", "regrade"},
        "--model": {"regions"},
    }


def taking(kinds: str) -> list[tuple[str, Any]]:
    return [
        (name, option)
        for name, _ in commands()
        for option in options_of(name)
        if not getattr(option, "is_flag", False) and option.param_type_name == kinds
    ]


def test_no_option_takes_an_empty_value(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--out ""` would be the current folder."""
    monkeypatch.chdir(tmp_path)
    every = taking("option")
    assert len(every) > 150
    for name, option in every:
        for empty in ("", " "):
            given = [option.opts[0], *["x"] * (option.nargs - 1), empty]
            said = f"error: {option.opts[0]} is empty -> give it a value, or leave it out\n"
            assert refusal(*name.split(), *given) == said
    for name, argument in taking("argument"):
        names = [one.name for one in options_of(name) if one.param_type_name == "argument"]
        given = ["x"] * names.index(argument.name)
        assert f"{argument.metavar} is empty" in refusal(*name.split(), *given, "")
    assert "--out is empty" in refusal("captions", "--out=")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        "captions --source flickr --input x --split-lists test= --out o",
        "captions --source csv --input x --columns =caption --out o",
        "regrade --captions c --judge-model m --out o --similarity a=",
        "relevance --captions c --measures x= --out o",
        "compare a=",
    ],
)
def test_no_name_stands_for_an_empty_value(
    line: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = next(word for word in line.split() if word[0] == "=" or word[-1] == "=")
    assert given in refusal(*line.split())
    assert list(tmp_path.iterdir()) == []
