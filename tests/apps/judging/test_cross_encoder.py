"""A cross-encoder in this process as a judge: a tiny random one, against sentence-transformers' own
scores."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sentence_transformers import CrossEncoder

from capgrade.apps.judging import cross_encoder
from capgrade.pretrained import embedded_folder
from tests.apps.judging.tiny import random_model
from tests.conftest import caption_table, printed, refusal, write_captions_folder

SETS = [["a dog runs", "the dog is fast", "a red dog"], ["a cat sits", "a lazy cat", "the cat"]]
TEXTS = {f"i{i}#{k}": text for i, captions in enumerate(SETS) for k, text in enumerate(captions)}
WORDS = sorted({word for text in TEXTS.values() for word in text.split()})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_captions_folder(tmp_path / "captions", [caption_table(SETS)])
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def line(
    here: Path, *more: object, model: str | Path = "model", out: str = "out.csv"
) -> list[object]:
    given = [
        "--captions",
        here / "captions",
        "--pairs",
        "all",
        "--judge-model",
        here / model,
        "--out",
        here / out,
    ]
    return ["judge", *given, *more]


def scores(here: Path) -> dict[tuple[str, str, str], float]:
    with (here / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["scale"] for row in rows} == {"0..1"}
    return {
        (row["image_id"], row["caption_id"], row["prompt"]): float(row["score"]) for row in rows
    }


def test_scores_are_the_models_own(here: Path) -> None:
    """Of each pair the mean over the image's other captions, with the caption as document and as
    query."""
    model = random_model(here / "model", WORDS)
    found = printed(*line(here, "--set", "judge.prompt=[references,references_again]"))
    assert (found["answered"], found["left"], found["cost"], found["tokens"]["sent"]) == (
        24,
        0,
        0,
        0,
    )
    table = scores(here)
    for (image, caption, prompt), score in table.items():
        others = [
            text for name, text in TEXTS.items() if name.startswith(image) and name != caption
        ]
        pairs = [(text, TEXTS[caption]) for text in others]
        if prompt == "references_again":
            pairs = [(caption, reference) for reference, caption in pairs]
        assert score == pytest.approx(float(np.mean(model.predict(pairs))), abs=1e-5)
    first = np.array([score for (*_, prompt), score in table.items() if prompt == "references"])
    again = np.array([score for (*_, prompt), score in table.items() if prompt != "references"])
    assert np.ptp(first) > 0.05 and np.abs(first - again).max() > 0.01, (
        "the order matters to this model"
    )


def test_an_instruction_is_the_models_prompt(here: Path) -> None:
    model = random_model(here / "model", WORDS)
    (here / "told.yaml").write_text("query: '{reference}'\ninstruction: 'the red cat '\n")
    printed(*line(here, "--set", f"judge.prompt={here}/told.yaml"))
    pairs = [(TEXTS[name], "a dog runs") for name in ("i0#1", "i0#2")]
    with_it = float(np.mean(model.predict(pairs, prompt="the red cat ")))
    assert scores(here)["i0", "i0#0", "told"] == pytest.approx(with_it, abs=1e-5)
    assert with_it != pytest.approx(float(np.mean(model.predict(pairs))), abs=1e-3)


def test_nothing_is_computed_twice(here: Path) -> None:
    """Also of another folder with the same weights; other weights are another judge."""
    random_model(here / "model", WORDS)
    assert printed(*line(here))["requests"] == 1
    (here / "model").rename(here / "moved")
    moved = line(here, model="moved", out="other.csv")
    assert printed(*moved)["requests"] == 0
    with (here / "moved" / "vocab.txt").open("a") as file:
        file.write("\n")
    assert printed(*moved, "--force")["requests"] == 1


def test_models_that_are_no_judges(here: Path) -> None:
    assert "cannot load the CrossEncoder" in refusal(*line(here, model="captions"))
    said = refusal(*line(here, model=embedded_folder()))
    assert (
        "BertModel has no layer that scores -> give a model that was trained as a CrossEncoder"
        in said
    )
    random_model(here / "model", WORDS, labels=3)
    assert "the model has 3 labels -> give a model of one score" in refusal(*line(here))


class OfColours(torch.nn.Module):
    """Takes a picture and a text: how red the picture is, twice that for texts about dogs."""

    modalities = ("text", "image")

    def preprocess(
        self, inputs: list[tuple[Image.Image, str]], **_: object
    ) -> dict[str, torch.Tensor]:
        red = [
            np.asarray(picture)[..., 0].mean() / 255 * (1 + ("dog" in text))
            for picture, text in inputs
        ]
        return {"red": torch.tensor(red, dtype=torch.float32)}

    def forward(self, features: dict[str, torch.Tensor], **_: object) -> dict[str, torch.Tensor]:
        return {"scores": features["red"][:, None]}


def test_a_picture_goes_along_where_the_model_takes_one(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_model(here / "model", WORDS)
    (here / "pictures").mkdir()
    for i, red in enumerate((255, 0)):
        Image.new("RGB", (32, 32), (red, 0, 0)).save(here / "pictures" / f"i{i}.png")
    images = "--images", here / "pictures"
    assert "the model takes no pictures -> leave --images out" in refusal(*line(here, *images))
    model = CrossEncoder(modules=[OfColours()], device="cpu")
    monkeypatch.setattr(cross_encoder, "load_cross_encoder", lambda name, device: model)
    printed(*line(here, *images))
    for (image, caption, prompt), score in scores(here).items():
        logit = (image == "i0") * (1 + ("dog" in TEXTS[caption]))
        assert prompt == "picture" and score == pytest.approx(1 / (1 + np.exp(-logit)), abs=0.01)
