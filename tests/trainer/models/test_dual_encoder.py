"""CLIP and SigLIP beside the models, losses and image processors of transformers; rates of the
layers of encoders."""

import json
import shutil
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.optim import AdamW

from capgrade.losses import LossTerms
from capgrade.losses.base import ScoredBatch
from capgrade.params import load_params
from capgrade.schemas.errors import InputError
from capgrade.trainer.data.pairs import pad_texts
from capgrade.trainer.data.text import ModelTokens, load_tokens
from capgrade.trainer.fit.optimiser import make_optimiser
from capgrade.trainer.models import MODELS, configure, model_of
from capgrade.trainer.models.base import Images, RetrievalModel
from capgrade.trainer.models.dual_encoder import DualEncoderConfig, random_dual_encoder
from capgrade.trainer.stages.train import TrainParams
from tests.trainer.models.made import close, host

SIDE, POSITIONS = 16, 24
CAPTIONS = ["a red dog", "two cats on a sofa", "run", "the dog and the cat"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SMALL = {
    "image": 16,
    "patch": 8,
    "image_width": 16,
    "image_layers": 2,
    "image_heads": 2,
    "text_width": 16,
}
SMALL |= {"text_layers": 2, "text_heads": 2, "positions": POSITIONS}
LOSS = {
    "clip": {"name": "info_nce", "of": "logits", "temperature": 1.0},
    "siglip": {
        "name": "sigmoid",
        "of": "logits",
        "temperature": 1.0,
        "bias": 0.0,
        "targets": "own",
    },
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A random CLIP and a random SigLIP as transformers save them, with values that training may
    have reached.

    Their tokenizer is CLIP's, which knows letters alone; they differ within a word and at its end.
    """
    import transformers as hf

    torch.manual_seed(0)
    tokens = [
        *LETTERS,
        *(f"{letter}</w>" for letter in LETTERS),
        "<|startoftext|>",
        "<|endoftext|>",
    ]
    numbers = {token: k for k, token in enumerate(tokens)}
    tokenizer = hf.CLIPTokenizer(numbers, [], model_max_length=POSITIONS)
    square = {"height": SIDE, "width": SIDE}
    processors = {
        "clip": hf.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=square),
        "siglip": hf.SiglipImageProcessorPil(size=square),
    }
    special = {
        f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")
    }
    made, learned = {}, {"logit_scale": 2.1, "logit_bias": -2.5}
    for name, processor in processors.items():
        model = random_dual_encoder(DualEncoderConfig(**SMALL), len(tokenizer), name == "siglip")
        model.config.text_config.update(special)
        for key, parameter in model.named_parameters():
            if key in learned:
                torch.nn.init.constant_(parameter, learned[key])
        made[name] = tmp_path_factory.mktemp(name)
        for part in (model, tokenizer, processor):
            part.save_pretrained(made[name])
    return made


def _pictures(
    sizes: tuple[tuple[int, int], ...] = ((20, 31), (40, 17), (16, 16), (33, 64)),
) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (*size, 3), np.uint8) for size in sizes]


def _batch(pixels: list[np.ndarray]) -> Images:
    features = torch.from_numpy(np.stack([one.reshape(1, -1) for one in pixels]))
    return Images(
        features, torch.zeros(len(pixels), 1, 5), torch.ones(len(pixels), 1, dtype=torch.bool)
    )


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_scores_loss_and_gradients_are_those_of_transformers(
    folders, name: str, tmp_path: Path
) -> None:
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    folder = str(folders[name])
    config = configure(name, {"pretrained": folder}, 0, 0)
    tokens = ModelTokens(folder, "checkpoint")
    tokens.save(tmp_path / "vocabulary.json")
    assert load_tokens(tmp_path / "vocabulary.json") == tokens
    # rounding in float32 is another on every processor
    model = model_of(name)(config, 0, tokens.size).train().double()
    transform = MODELS[name].transform(config)
    texts = pad_texts(tokens.encode_texts(CAPTIONS))
    batch = _batch([transform(one) for one in _pictures()])
    images, captions = model(replace(batch, features=batch.features.double()), texts)
    logits = model.more_scores(images, captions)["logits"]
    own = torch.eye(len(CAPTIONS), dtype=torch.bool)
    scores = model.scores(images, captions)
    loss = LossTerms([LOSS[name]])(ScoredBatch(scores, own, more={"logits": logits}))
    loss.backward()

    theirs = AutoModel.from_pretrained(folder).train().double()
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    # The documents of SigLIP in transformers: padding="max_length", and no attention mask.
    padding = (
        {"padding": "max_length", "max_length": POSITIONS}
        if name == "siglip"
        else {"padding": True}
    )
    cut = AutoTokenizer.from_pretrained(folder)(CAPTIONS, return_tensors="pt", **padding)
    if name == "siglip":
        del cut["attention_mask"]
    pixels = processor([Image.fromarray(one) for one in _pictures()], return_tensors="pt")[
        "pixel_values"
    ]
    found = theirs(**cut, pixel_values=pixels.double(), return_loss=True)
    found.loss.backward()

    close(logits, found.logits_per_image, 1e-12)
    close(scores, found.image_embeds @ found.text_embeds.T, 1e-12)
    close(loss, found.loss)  # ours is of float32
    expected = dict(theirs.named_parameters())
    for key, parameter in model.encoder.named_parameters():
        grad = expected[key].grad
        assert (parameter.grad is None) == (grad is None), key
        if grad is not None:
            close(parameter.grad, grad, 1e-6 * max(1.0, float(grad.abs().max())))
    assert expected["logit_scale"].grad.abs() > 0


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_pictures_of_a_random_model_are_prepared_as_a_checkpoints(folders, name: str) -> None:
    """CLIP's shorter side becomes n pixels and its centre is cut out; SigLIP's sides both become
    n."""
    of = MODELS[name].transform
    own, theirs = (
        of(configure(name, given, 0, 0)) for given in (SMALL, {"pretrained": str(folders[name])})
    )
    for picture in _pictures():
        assert own(picture).dtype == np.float32 and own(picture).shape == (3, SIDE, SIDE)
        np.testing.assert_array_equal(own(picture), theirs(picture))


def test_the_default_sizes_are_openais_base_32() -> None:
    """transformers' CLIPConfig has those of openai/clip-vit-base-patch32."""
    from transformers import CLIPConfig

    config, known = DualEncoderConfig(), CLIPConfig()
    for side, part in (("image", known.vision_config), ("text", known.text_config)):
        sizes = tuple(getattr(config, f"{side}_{name}") for name in ("width", "layers", "heads"))
        assert sizes == (part.hidden_size, part.num_hidden_layers, part.num_attention_heads)
        assert 4 * sizes[0] == part.intermediate_size
    assert (config.image, config.patch) == (
        known.vision_config.image_size,
        known.vision_config.patch_size,
    )
    assert config.positions == known.text_config.max_position_embeddings


def test_where_the_temperature_starts_and_what_keeps_it() -> None:
    clip, siglip = (
        model_of(name)(configure(name, SMALL, 0, 0), 0, 30).train() for name in ("clip", "siglip")
    )
    # model.py of openai/CLIP, 295
    close(clip.encoder.logit_scale, torch.tensor(log(1 / 0.07)), 1e-4)
    close(siglip.encoder.logit_scale, torch.tensor([log(10)]))
    close(siglip.encoder.logit_bias, torch.tensor([-10.0]))
    pixels = _batch([np.zeros((3, SIDE, SIDE), np.float32)] * 2)
    for model, kept in ((clip, log(100)), (siglip, 6.0)):
        with torch.no_grad():
            model.encoder.logit_scale.fill_(6.0)
        sides = model(pixels, pad_texts([np.array([2, 5, 3])] * 2))
        model.more_scores(*sides)
        close(model.encoder.logit_scale, torch.full_like(model.encoder.logit_scale, kept))


def test_what_it_cannot_use_is_one_error(folders, bert: str, tmp_path: Path) -> None:
    def made(name: str, **options: Any) -> object:
        config = configure(name, options, 0, 0)
        MODELS[name].transform(config)
        return model_of(name)(config, 0, 30)

    broken, shapeless = tmp_path / "broken", tmp_path / "shapeless"
    for folder in (broken, shapeless):
        shutil.copytree(folders["clip"], folder)
    (broken / "model.safetensors").write_bytes(b"no weights")
    text = (shapeless / "preprocessor_config.json").read_text()
    (shapeless / "preprocessor_config.json").write_text(
        text.replace('"do_center_crop": true', '"do_center_crop": false')
    )
    (tmp_path / "empty").mkdir()
    cases = (
        ("clip", {"pretrained": str(tmp_path / "empty")}, "cannot load image processor"),
        ("clip", {"pretrained": str(broken)}, "cannot load dual encoder"),
        ("clip", {"pretrained": str(shapeless)}, "pictures are square"),
        ("clip", {"pretrained": str(folders["siglip"])}, "set train.model.name=siglip"),
        ("siglip", {"pretrained": str(folders["clip"])}, "set train.model.name=clip"),
        ("clip", {"pretrained": str(folders["clip"]), "patch": 16}, "patch beside checkpoint"),
        ("clip", {"patch": 10, "image": 224}, "patch 10 does not divide image 224"),
        ("clip", {**SMALL, "text_heads": 3}, "text_heads 3 does not divide text_width 16"),
        ("siglip", {**SMALL, "embed": 8}, "leave out train.model.options.embed"),
        ("clip", {"patch": 0}, "train.model.options.patch is 0"),
    )
    for name, options, message in cases:
        with pytest.raises(InputError, match=message):
            made(name, **options)
    shutil.copy(folders["clip"] / "preprocessor_config.json", bert)
    with pytest.raises(InputError, match="is a 'bert', which has no get_image_features"):
        made("clip", pretrained=bert)
    with pytest.raises(InputError, match="caption of 102 tokens, .* takes 24: 'xxxx"):
        ModelTokens(str(folders["clip"]), "checkpoint").encode_texts(["x" * 100])
    with pytest.raises(InputError, match="caption of 25 tokens, the model takes 24"):
        made("clip", **SMALL).encode_captions(pad_texts([np.arange(25)]))  # type: ignore[attr-defined]


@pytest.mark.parametrize("package", ["SentencePiece", "ftfy"])
def test_a_tokenizer_whose_package_is_missing_says_what_to_install(
    package: str, monkeypatch, tmp_path
) -> None:
    from transformers import AutoTokenizer

    def missing(*_: object, **__: object) -> None:
        raise ImportError(f"\nThis tokenizer requires the {package} library but it was not found.")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", missing)
    with pytest.raises(
        InputError, match=rf"requires the {package} .*install that package.*'capgrade\[train\]'"
    ):
        ModelTokens(str(tmp_path), "checkpoint").encode_texts(["a dog"])


def test_the_tokenizer_of_siglip_reads_captions(tmp_path) -> None:
    import sentencepiece
    from transformers import SiglipConfig, SiglipTextConfig

    prefix = tmp_path / "spiece"
    options = {
        "vocab_size": 22,
        "pad_id": 0,
        "eos_id": 1,
        "unk_id": 2,
        "bos_id": -1,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CAPTIONS * 20), model_prefix=prefix, **options
    )
    said = {
        "tokenizer_class": "SiglipTokenizer",
        "eos_token": "</s>",
        "pad_token": "</s>",
        "unk_token": "<unk>",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
    SiglipConfig(
        text_config=SiglipTextConfig(bos_token_id=0, eos_token_id=1).to_dict()
    ).save_pretrained(tmp_path)
    expected = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model").encode(
        "two cats on a sofa"
    )
    # it takes punctuation out
    (found,) = ModelTokens(str(tmp_path), "checkpoint").encode_texts(["two cats on a sofa."])
    assert found.tolist() == [*expected, 1]


PARAMS = TrainParams(lr=1e-2, encoder_lr=1e-3, layer_decay=0.5)


def rates(model: RetrievalModel, params: TrainParams) -> dict[str, float]:
    """By name; every parameter once."""
    groups = make_optimiser(model, params).param_groups
    found = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert (
        len(found) == sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    )
    return {name: found[id(p)] for name, p in model.named_parameters()}


def test_a_layer_learns_at_a_share_of_the_rate_of_the_next(bert: str) -> None:
    """Sun et al. 2019: eta^(k-1) = xi eta^k. The random BERT has two layers, a host's own layers
    have `lr`."""
    for name in ("saf, BERT", "vse_infinity, BERT", "tern"):
        model = host(name, bert)
        for parameter, rate in rates(model, PARAMS).items():
            shares = {".embeddings.": 0.25, ".encoder.layer.1.": 1, ".encoder.layer.0.": 0.5}
            expected = next(
                (1e-3 * share for part, share in shares.items() if part in parameter), 1e-2
            )
            assert rate == pytest.approx(expected), (name, parameter)
        assert len(set(rates(model, PARAMS).values())) == 4
        one_rate = PARAMS.model_copy(update={"layer_decay": None})
        assert set(rates(model, one_rate).values()) == {1e-2, 1e-3}
        frozen = host(name, bert, freeze_text=True)
        (group,) = make_optimiser(frozen, one_rate).param_groups
        assert group["lr"] == 1e-2 and all(p.requires_grad for p in group["params"])


def test_both_towers_of_a_dual_encoder_have_their_own_layers() -> None:
    model = model_of("clip")(configure("clip", {**SMALL, "text_layers": 3}, 0, 0), 0, 30)
    found = rates(model, PARAMS)
    for name, power in (
        ("text_model.encoder.layers.2.mlp.fc1.weight", 0),
        ("text_model.encoder.layers.0.mlp.fc1.weight", 2),
        ("text_model.embeddings.token_embedding.weight", 3),
        ("vision_model.encoder.layers.1.mlp.fc1.bias", 0),
        ("vision_model.encoder.layers.0.mlp.fc1.bias", 1),
        ("vision_model.embeddings.patch_embedding.weight", 2),
        ("vision_model.pre_layrnorm.weight", 2),
        ("visual_projection.weight", 0),
        ("text_model.final_layer_norm.weight", 0),
    ):
        assert found[f"encoder.{name}"] == pytest.approx(1e-3 * 0.5**power), name
    assert found["encoder.logit_scale"] == 1e-2
    optimiser = make_optimiser(model, PARAMS.model_copy(update={"weight_decay": 0.2}))
    assert isinstance(optimiser, AdamW) and not isinstance(make_optimiser(model, PARAMS), AdamW)
    decay = {
        id(p): group["weight_decay"] for group in optimiser.param_groups for p in group["params"]
    }
    for name, parameter in model.encoder.named_parameters():
        gain = name in ("logit_scale", "logit_bias") or parameter.ndim < 2
        assert decay[id(parameter)] == (0.0 if gain else 0.2), name


def test_a_decay_that_nothing_would_read_is_refused(bert: str) -> None:
    for options in ({"embed": 16}, {"embed": 16, "text_model": bert, "freeze_text": True}):
        model = model_of("saf")(configure("saf", options, 12, 0), 12, 20)
        with pytest.raises(
            InputError, match="a pretrained encoder that learns, and this model has none"
        ):
            make_optimiser(model, PARAMS)
    with pytest.raises(InputError, match="layer_decay"):
        load_params(None, ["train.layer_decay=1.5"])
