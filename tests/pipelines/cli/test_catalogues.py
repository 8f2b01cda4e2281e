"""`capgrade list` has every name of the catalogues, with a line on each."""

import pytest

from capgrade.losses import LOSSES
from capgrade.measures import MEASURES
from capgrade.metrics.catalogue import CATALOGUE, MEANINGS
from capgrade.pipelines import detectors
from capgrade.pipelines.cli.catalogues import KINDS
from capgrade.pipelines.detectors.catalogue import DETECTORS
from capgrade.pipelines.sources import SOURCES
from capgrade.schemas.params import shipped_presets
from capgrade.trainer.models import MODELS
from tests.conftest import call, printed

NAMES = {
    "measures": MEASURES,
    "presets": shipped_presets(),
    "sources": {"scenes", *SOURCES},
    "detectors": DETECTORS,
    "losses": LOSSES,
    "models": MODELS,
    "parameters": {"relevance.split", "measures.sbert.model", "train.loss", "seed"} - {"seed"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_has_a_line(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = KINDS[kind]()
    assert all(line and "docs/" not in line and "\n" not in line for line in lines.values())
    assert {*NAMES.get(kind, ())} <= lines.keys()
    assert printed("list", kind).keys() == lines.keys()
    capsys.readouterr()
    assert call("list", kind) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == [*lines]


def test_names_and_lines_agree() -> None:
    """They stand apart: lines on detectors read without torch."""
    assert [*MEANINGS] == [*CATALOGUE]
    assert [*detectors.MEANINGS] == [*DETECTORS]


def test_what_needs_an_extra_says_which() -> None:
    lines = KINDS["measures"]()
    assert lines["sbert"].endswith("; needs capgrade[encoder]")
    assert lines["people"].endswith("; needs capgrade[meteor,encoder]")
    assert "needs" not in lines["cider"]
    assert KINDS["sources"]()["hub"].endswith("; needs capgrade[publish]")
