"""A source read from what a test writes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capgrade.pipelines.sources import read_source
from capgrade.schemas.captions import Caption
from capgrade.schemas.params import CaptionsParams

Read = Callable[..., list[Caption]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Captions of a source whose input is a file of this name and content; what is no text is written as JSON."""

    def written(source: Any, name: str, content: Any, split: str | None = None, **more: Any) -> list[Caption]:
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_bytes(text.encode())
        return list(read_source(CaptionsParams(source=source, input=str(tmp_path / name), split=split, **more)))

    return written
