import pytest

from schemas.errors import InputError
from schemas.params import load_params
from schemas.presets import with_preset


def test_a_run_stands_on_its_preset_and_that_on_its_base():
    params = load_params(None, ["train.preset=bcls", "train.epochs=3"]).train
    assert params.epochs == 3
    assert params.model.name == "saf"
    assert params.lr == 5e-4
    assert params.measure == "sbert"
    assert [term["name"] for term in params.loss] == ["triplet_sn", "kendall_windows"]


def test_presets_of_params_yaml_change_single_options(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("presets:\n  small: {base: teran, model: {options: {embed_dim: 64}}}\ntrain: {preset: small}\n")
    model = load_params(path).train.model
    assert model.name == "teran"
    assert model.options == {"pooling": "MrSw", "embed_dim": 64}


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(InputError, match="unknown preset 'sma'") as error:
        load_params(None, ["train.preset=sma"])
    assert "sam" in error.value.remedy and "teran" in error.value.remedy


def test_a_preset_upon_itself_is_refused():
    with pytest.raises(InputError, match="stands upon itself"):
        with_preset({"preset": "a"}, {"a": {"base": "b"}, "b": {"base": "a"}})
