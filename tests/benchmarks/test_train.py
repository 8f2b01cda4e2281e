import json

import pytest

from capgrade.benchmarks import train as bench
from tests.conftest import call


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(bench, "BATCH", 6)
    monkeypatch.setattr(bench, "FEATURES", 32)
    monkeypatch.setattr(bench, "REGIONS", 5)
    monkeypatch.setattr(bench, "VOCABULARY", 50)
    words = {"embed": 16, "word": 8, "similarity": 8, "dropout": 0.0}
    tern = {"embed_dim": 16, "image_layers": 1, "joint_layers": 1, "feedforward": 16, "text_layers": 1, "dropout": 0.0}
    vse = {"embed": 16, "word": 8}
    vsrn = {**vse, "layers": 2, "caption_hidden": 8, "caption_word": 4, "caption_dropout": 0.0}
    sizes = {
        "vse": vse, "vse_infinity": {**vse, "drop": 0.0}, "scan": vse, "vsrn": vsrn, "saf": words, "sgr": words,
        "cvse": {**vse, "concepts": 5, "dropout": 0.0}, "tern": tern, "teran": tern,
        "single_stream": {"embed": 8, "width": 8},
    }  # fmt: skip
    assert sizes.keys() == bench.MODELS.keys()
    monkeypatch.setattr(bench, "MODELS", sizes)


def test_each_model_and_loss_is_timed(tiny, capsys):
    assert call("bench", "train", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert bench.MODELS.keys() | {"loss sam", "loss daa", "loss kendall_windows"} <= rows.keys()
    assert all(row["pairs_per_s"] == pytest.approx(6 / row["seconds"]) for row in rows.values())
