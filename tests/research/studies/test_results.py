"""The comparisons of research/studies/results.py: their presets can be trained, and none is written down in
vain."""

from pathlib import Path

import pytest
import yaml

from capgrade.losses import LossTerms
from capgrade.params import load_params
from capgrade.schemas.errors import InputError
from capgrade.trainer.models import model_of
from research.studies import looked_up, results


def test_every_preset_can_be_trained_and_is_of_a_comparison() -> None:
    chosen = [
        (preset, comparison.sets)
        for comparison in results.COMPARISONS
        for preset in comparison.presets
    ]
    compared = {preset for preset, _ in chosen} | set(looked_up.ORIGINS)
    for preset, sets in [*chosen, *((loss, ()) for loss in looked_up.ORIGINS)]:
        train = load_params(
            results.PRESETS, [f"train.{one}" for one in (f"preset={preset}", *sets)]
        ).train
        assert model_of(train.model.name)
        LossTerms(train.loss)
    assert yaml.safe_load(results.PRESETS.read_text())["presets"].keys() == compared


def test_no_comparison_is_an_error_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = [
        "results",
        "--captions",
        "c",
        "--regions",
        "r",
        "--only",
        "nothing",
        "--out",
        str(tmp_path / "t.md"),
    ]
    monkeypatch.setattr("sys.argv", line)
    with pytest.raises(InputError, match="no comparison begins with 'nothing'.*on SGR"):
        results.main()
    assert not list(tmp_path.iterdir())
