"""For the site of docs/: examples in docstrings, as doctest writes them, become blocks of code."""

from __future__ import annotations

import re

import griffe

# From a line of `>>>` to the next empty line.
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


class Examples(griffe.Extension):
    """Fences each example of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub("```pycon\n\\g<0>\n```", obj.docstring.value)
