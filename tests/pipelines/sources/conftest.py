"""A source read from what a test writes."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capgrade.pipelines.sources import read_source
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.captions import Caption

Read = Callable[..., list[Caption]]
NAMES = {"coco": "captions_val2014.json", "karpathy": "dataset_coco.json", "flickr": "tokens.txt"}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Captions of a source whose input is a file of this content; what is no text is written as
    JSON."""

    def written(source: Any, content: Any, split: str | None = None, name: str = "",
                left_out: Counter[str] | None = None, **more: Any) -> list[Caption]:  # fmt: skip
        name = name or NAMES.get(source, f"captions.{source}")
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_bytes(text.encode())
        params = CaptionsParams(source=source, input=str(tmp_path / name), split=split, **more)
        return list(read_source(params, left_out))

    return written
