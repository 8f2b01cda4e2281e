"""docs/metrics.md: the worked example computes what its table says, and every metric of the catalogue is described."""

import re
from pathlib import Path

import numpy as np
import pytest

from capgrade import metrics
from capgrade.metrics.catalogue import CATALOGUE

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+\(.*\))` \| (-?[\d.]+) \|", PAGE, flags=re.MULTILINE)
SETUP = re.search(r"## The worked example.*?```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_page_has_its_example():
    assert SETUP and len(ROWS) >= 20


@pytest.mark.parametrize(("call", "value"), ROWS)
def test_worked_example(call, value):
    names = {name: getattr(metrics, name) for name in metrics.__all__} | {"np": np}
    exec(SETUP[1], names)  # the page's own code
    assert eval(call, names)[0] == pytest.approx(float(value), abs=6e-5), call


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_metric_is_described(name):
    assert re.search(rf"[`*]{re.escape(name)}(@\w+)?(\(m=M\))?[`*]", PAGE), name
