"""The hours of docs/papers.md follow by its own rule from its steps per second and from the recipes."""

from __future__ import annotations

import re

import pytest

from capgrade.pipelines.reproduce.recipe import load_recipe, names, settings_of
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
RULE = PAGE[PAGE.index("GPU hours are") : PAGE.index("`bcls-2` and")]
RATES = {name: float(rate) for name, rate in re.findall(r"^\| `(\w+)` \| ([\d.]+) \|$", RULE, re.MULTILINE)}
PAIRS = {name: int(count.replace(",", "")) for count, name in re.findall(r"([\d,]{6,}) of (COCO|Flickr30K)", RULE)}
HOURS = dict(re.findall(r"^\| `([\w-]+)` \| [^|]* \| ([^|]*) \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("name", names())
def test_hours_of(name: str) -> None:
    recipe = load_recipe(name)
    pairs, hours = PAIRS.get(recipe.data.partition(",")[0], 0), 0.0
    for run in settings_of(recipe, None, [], small=False).runs.values():
        seen = run.epochs * pairs * run.images * (run.captions_per_image or 5) / 5
        hours += seen / (60 * RATES[run.model.name]) / 3600
    assert HOURS[name] == (f"{hours:.2g}" if recipe.runs else "none")
