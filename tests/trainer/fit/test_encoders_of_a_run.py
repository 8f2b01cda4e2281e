"""A run encodes with what it was trained with: another pretrained model in the same place is
refused, and nothing that is not read again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
from capgrade.trainer.fit import CONFIG, VOCABULARY
from capgrade.trainer.fit.checkpoint import load_run
from capgrade.trainer.search.index import embed, search
from capgrade.trainer.stages.embed import EmbedParams
from tests.trainer.conftest import Small
from tests.trainer.fit.runs import run
from tests.trainer.models.conftest import bert  # noqa: F401

TINY = "embed_dim: 16, heads: 2, image_layers: 1, joint_layers: 1, feedforward: 16, text_layers: 1"
OPTIONS = {
    "frozen": "sentence_model: {model}, embed: 8, hidden: 8",
    "teran": TINY + ", text_model: {model}, stop_words: {words}",
}
TRAINED = {"frozen": "sentence_model", "teran": "text_model"}


@pytest.fixture
def encoder(bert: str, tmp_path: Path) -> Path:  # noqa: F811
    """A copy that a test may change."""
    return Path(shutil.copytree(bert, tmp_path / "encoder"))


def trained(small: Small, name: str, encoder: Path) -> Path:
    out, words = encoder.parent / "run", encoder.parent / "words.txt"
    words.write_text("the\n")
    options = OPTIONS[name].format(model=encoder, words=words)
    run(small.data, out, f"train.model={{name: {name}, options: {{{options}}}}}", epochs=1)
    return out


def permute_words(encoder: Path) -> None:
    """Another model of the same sizes and the same tokenizer."""
    weights = load_file(encoder / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    weights[name] = np.ascontiguousarray(weights[name][::-1])
    save_file(weights, encoder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("name", TRAINED)
def test_another_encoder_in_its_place_is_refused(small: Small, encoder: Path, name: str) -> None:
    out, index = trained(small, name, encoder), encoder.parent / "index"
    told = EmbedParams(split="test")
    data = {"run": out, "regions": small.data.regions}
    embed(small.data.captions, index, told, **data)
    before, scores = load_file(encoder / "model.safetensors"), np.load(index / "similarity.npy")
    permute_words(encoder)
    problem = f"trained with another {TRAINED[name]} than '{encoder}' is now -> give back"
    again = {
        "load": lambda: load_run(out),
        "embed": lambda: embed(small.data.captions, encoder.parent / "again", told, **data),
        "search": lambda: search(out, index, "a dog"),
    }
    for what, work in again.items():
        with pytest.raises(InputError, match=problem) as error:
            work()
        assert str(error.value).startswith(str(out / CONFIG)), what
    save_file(before, encoder / "model.safetensors", {"format": "pt"})
    embed(small.data.captions, encoder.parent / "again", told, **data)
    np.testing.assert_array_equal(np.load(encoder.parent / "again" / "similarity.npy"), scores)


def test_so_is_one_that_the_vocabulary_alone_names(small: Small, encoder: Path) -> None:
    """It is the vocabulary that says what encodes captions."""
    out = trained(small, "frozen", encoder)
    moved = Path(shutil.copytree(encoder, encoder.parent / "moved"))
    write_text(out / VOCABULARY, json.dumps({"sentences": str(moved)}))
    load_run(out)  # the same bytes at another place
    permute_words(moved)
    with pytest.raises(InputError, match=f"another sentence_model than '{moved}' is now"):
        load_run(out)


def test_so_are_other_stop_words(small: Small, encoder: Path) -> None:
    out, words = trained(small, "teran", encoder), encoder.parent / "words.txt"
    load_run(out)
    words.write_text("the\na\n")
    with pytest.raises(InputError, match=f"trained with another stop_words than '{words}' is now"):
        load_run(out)


def test_another_commit_of_the_hub_is_another_encoder(
    small: Small, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run names its commit, so that one can fetch it."""
    out, hub = trained(small, "frozen", encoder), encoder.parent / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    for commit in ("1" * 40, "2" * 40):
        write_text(hub / f"models--me--bert/snapshots/{commit}/config.json", "{}")
    config = json.loads((out / CONFIG).read_text())
    config["model"]["sentence_model"] = "me/bert"
    config["inputs"]["sentence_model"] = f"me/bert {'1' * 40}"
    write_text(out / CONFIG, json.dumps(config))
    write_text(out / VOCABULARY, json.dumps({"sentences": "me/bert"}))
    write_text(hub / "models--me--bert/refs/main", "2" * 40)
    with pytest.raises(InputError, match=rf"than 'me/bert' is now -> .* \(me/bert {'1' * 40}\)"):
        load_run(out)


def test_what_is_in_the_weights_is_not_asked_for_again(small: Small, tmp_path: Path) -> None:
    """Word vectors are read before training alone."""
    words, out = tmp_path / "glove.txt", tmp_path / "run"
    words.write_text("dog 1 2 3 4\n")
    options = f"words: {words}, word: 4, embed: 8, concepts: 4"
    run(small.data, out, f"train.model={{name: cvse, options: {{{options}}}}}", epochs=1)
    assert "words" in json.loads((out / CONFIG).read_text())["inputs"]
    words.unlink()
    load_run(out)


def test_a_run_that_recorded_nothing_is_loaded(small: Small, encoder: Path) -> None:
    out = trained(small, "frozen", encoder)
    config = json.loads((out / CONFIG).read_text())
    del config["inputs"]["sentence_model"]
    write_text(out / CONFIG, json.dumps(config))
    permute_words(encoder)
    load_run(out)
