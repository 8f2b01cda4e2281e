"""The examples of docs/with_others.md run, on the small inputs of the other pages, with the packages themselves."""

import shlex
from pathlib import Path

import pycocoevalcap.eval
import pycocoevalcap.tokenizer.ptbtokenizer
import pytest

from tests.conftest import call
from tests.docs.test_examples import EXAMPLES, here, world  # noqa: F401  # fixtures

PAGE = EXAMPLES["with_others.md"]


@pytest.mark.parametrize("example", PAGE, ids=lambda example: f"{example.kind}-{example.row}")
def test_the_example(example, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for module in (pycocoevalcap.eval, pycocoevalcap.tokenizer.ptbtokenizer):  # an example puts other classes there
        for name in ("Bleu", "Cider", "Meteor", "PTBTokenizer", "Rouge"):
            monkeypatch.setattr(module, name, getattr(module, name, None), raising=False)
    if example.kind == "python":
        exec(compile(example.text, f"with_others.md, row {example.row}", "exec"), {})
    elif example.kind == "command":
        assert call(*shlex.split(example.text)[1:]) == 0, example.text
