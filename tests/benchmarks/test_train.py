import pytest

from capgrade.benchmarks import train as bench


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(bench, "FEATURES", 32)
    monkeypatch.setattr(bench, "REGIONS", 5)
    monkeypatch.setattr(bench, "VOCABULARY", 50)
    monkeypatch.setattr(bench, "MATRIX", 64)
    words = {"embed": 16, "word": 8, "similarity": 8, "dropout": 0.0}
    tern = {"embed_dim": 16, "image_layers": 1, "joint_layers": 1, "feedforward": 16, "text_layers": 1, "dropout": 0.0}
    vse = {"embed": 16, "word": 8}
    vsrn = {**vse, "layers": 2, "caption_hidden": 8, "caption_word": 4, "caption_dropout": 0.0}
    sizes = {
        "vse": vse,
        "vse_infinity": {**vse, "drop": 0.0},
        "scan": vse,
        "vsrn": vsrn,
        "cvse": {**vse, "concepts": 5, "dropout": 0.0},
        "saf": words,
        "sgr": words,
        "tern": tern,
        "teran": tern,
        "single_stream": {"embed": 8, "width": 8},
    }
    assert sizes.keys() == bench.MODELS.keys()
    monkeypatch.setattr(bench, "MODELS", sizes)


def test_peers_compute_the_same(tiny, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    found = bench.bench(6, list(bench.MODELS))
    for name in bench.MODELS.keys() - bench.PEERS.keys():
        assert "peer" not in found[name] and found[name]["pairs_per_s"] > 0 and found[name]["processor_s"] > 0
    for name in bench.PEERS:
        line = found[name]
        assert line["max_abs_diff"] < 1e-4, name
        assert line["ratio"] > 0 and line["processor_ratio"] > 0 and line["gflop"] > 0
        assert 1 <= line["rounds"] <= 5 and line["spread"] >= 1 and line["peer_spread"] >= 1
    assert {"sam", "daa", "kendall_windows"} <= found["losses"].keys()
    bench.show(found)
    said = capsys.readouterr().out
    assert "all pairs at once" in said and "…" not in said  # a pipe is as wide as the table
