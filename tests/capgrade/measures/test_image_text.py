"""Captions with pictures, by random small dual encoders: beside transformers' own features, and by
every road."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import capgrade
from capgrade import Labels
from capgrade.apps.explorer.voices import fit_measure_voices
from capgrade.measures import choose, embeddings
from capgrade.measures.image_text import ImageText, ImageTextParams
from capgrade.measures.image_text import encoder as encoders
from capgrade.measures.image_text.fitted import FittedImageText
from capgrade.measures.image_text.forms import RANGES
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.own_pairs import read_own_pairs
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.say import CapgradeWarning
from capgrade.schemas.shards import read_shards
from tests.conftest import (
    call,
    caption_table,
    make_captions,
    random_sets,
    refusal,
    write_captions_folder,
)

SETS = [
    ["a red dog runs", "the dog on the beach"],
    ["two cats sit", "a cat and a cat sit on the beach", "cats"],
    ["the dog"],
    ["a red ball", "a ball on the beach " * 9],
    ["a red dog runs"],
]
SIZES = ((20, 31), (40, 17), (16, 16), (33, 64), (50, 18))
PIECES = (
    "<pad> <bos> <eos> <unk> a the two red dog cat cats ball balls runs sit on and beach A photo"
    " depicts"
)
WORDS = PIECES.split(" ")
LETTERS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *"abcdefghijklmnopqrstuvwxyz"]
LAYERS = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
POSITIONS = 24
NAMES = ("clip", "siglip", "siglip2", "siglip of sentence-transformers")
FORMS = ("cosine", "clipscore", "refclipscore")


def tokenizer(name: str) -> Any:
    """A word a token; SigLIP 2 has a class of its own, here with letters. None has a limit of its
    own."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, Siglip2Tokenizer

    if name == "siglip2":
        return Siglip2Tokenizer({letter: k for k, letter in enumerate(LETTERS)}, [])
    words = Tokenizer(
        models.WordLevel({word: k for k, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    single = "<bos> $A <eos>" if name == "clip" else "$A <eos>"
    special = [("<bos>", 1), ("<eos>", 2)]
    words.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    named = {f"{kind}_token": f"<{kind}>" for kind in ("pad", "bos", "eos", "unk")}
    return PreTrainedTokenizerFast(tokenizer_object=words, **named)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of random dual encoders, as transformers and sentence-transformers save them."""
    import transformers as hf
    from sentence_transformers import SentenceTransformer

    torch.manual_seed(0)
    text = {
        **LAYERS,
        "vocab_size": len(LETTERS),
        "max_position_embeddings": POSITIONS,
        "projection_size": 16,
    }
    text |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    vision = {**LAYERS, "image_size": 16, "patch_size": 8}
    square, patches = {"height": 16, "width": 16}, {**LAYERS, "patch_size": 16, "num_patches": 256}
    made = {
        "clip": (
            hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)),
            hf.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size=square),
        ),
        "siglip": (
            hf.SiglipModel(hf.SiglipConfig(text_config=text, vision_config=vision)),
            hf.SiglipImageProcessorPil(size=square),
        ),
        "siglip2": (
            hf.Siglip2Model(hf.Siglip2Config(text_config=text, vision_config=patches)),
            hf.Siglip2ImageProcessorPil(),
        ),
    }
    folders = {name: str(tmp_path_factory.mktemp(name)) for name in made}
    for name, parts in made.items():
        for part in (*parts, tokenizer(name)):
            part.save_pretrained(folders[name])
    folders["siglip of sentence-transformers"] = str(tmp_path_factory.mktemp("saved"))
    SentenceTransformer(folders["siglip"], device="cpu").save(
        folders["siglip of sentence-transformers"]
    )
    return folders


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture of each image of SETS, and of none."""
    folder: Path = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for k, size in enumerate((*SIZES, (9, 9))):
        Image.fromarray(random.integers(0, 256, (*size, 3), np.uint8)).save(folder / f"i{k}.png")
    return folder


def params_of(model: str, pictures: Path, **more: Any) -> MeasuresParams:
    return MeasuresParams.model_validate(
        {"image_text": {"model": model, "images": str(pictures), **more}}
    )


def fitted_on(captions: Captions, model: str, pictures: Path, **more: Any) -> Any:
    return choose(["image_text"], params_of(model, pictures, **more))["image_text"].fit(captions)


def features(model: str, pictures: Path, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors by transformers itself: float64 [images, d], [texts, d]."""
    from transformers import AutoModel, AutoProcessor

    theirs = AutoModel.from_pretrained(model).eval()
    processor = AutoProcessor.from_pretrained(model, backend="pil")
    files = [Image.open(pictures / f"i{k}.png") for k in range(len(SIZES))]
    # The documentation of SigLIP: padding="max_length", and no attention mask.
    padding = True if theirs.config.model_type == "clip" else "max_length"
    cut = processor.tokenizer(
        texts, return_tensors="pt", padding=padding, truncation=True, max_length=POSITIONS
    )
    if padding == "max_length":
        del cut["attention_mask"]
    with torch.no_grad():
        found = [
            theirs.get_image_features(**processor(images=files, return_tensors="pt")).pooler_output,
            theirs.get_text_features(**cut).pooler_output,
        ]
    return tuple((one / one.norm(dim=1, keepdim=True)).double().numpy() for one in found)  # type: ignore[return-value]


@pytest.mark.filterwarnings("ignore:.*longer than the")
@pytest.mark.parametrize("name", NAMES)
def test_the_cosine_is_that_of_transformers(
    models: dict[str, str], pictures: Path, name: str
) -> None:
    captions = make_captions(SETS)
    seen, said = features(models[name], pictures, captions.texts)
    found = fitted_on(captions, models[name], pictures).score(np.arange(len(SETS)))
    assert np.ptp(seen @ said.T) > 0.05
    np.testing.assert_allclose(found, seen @ said.T, atol=2e-6)


def their_clip_score(seen: np.ndarray, said: np.ndarray) -> np.ndarray:
    """As jmhessel/clipscore computes it, of unit rows, pair by pair."""
    return 2.5 * np.clip(np.sum(seen * said, axis=1), 0, None)


@pytest.mark.filterwarnings("ignore:.*longer than the")
@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_scores_are_those_of_their_authors(
    models: dict[str, str], pictures: Path, name: str, left_out: bool
) -> None:
    """With "A photo depicts " before captions and references; RefCLIPScore is the harmonic mean."""
    captions = make_captions([*SETS[:2], *([*own, "two balls"] for own in SETS[2:])])
    seen, said = features(
        models[name], pictures, [f"A photo depicts {text}" for text in captions.texts]
    )
    clip_score, ref_clip_score = np.empty((2, captions.n_images, captions.n_captions))
    for i in range(captions.n_images):
        clip_score[i] = their_clip_score(seen[[i] * len(said)], said)
        for c in range(captions.n_captions):
            rows = [r for r in captions.rows_of(i) if not (left_out and r == c)]
            best, score = max(np.max(said[c].dot(said[rows].T)), 0), clip_score[i, c]
            ref_clip_score[i, c] = 2 * score * best / (score + best) if score else 0
    sets = {"self_reference": "left_out" if left_out else "included"}
    for form, expected in {"clipscore": clip_score, "refclipscore": ref_clip_score}.items():
        found = fitted_on(captions, models[name], pictures, form=form, **sets)
        np.testing.assert_allclose(found.score(np.arange(captions.n_images)), expected, atol=1e-5)
        measure = ImageText(ImageTextParams(form=form))
        assert measure.low <= expected.min() and expected.max() <= measure.high + 1e-6
    assert (clip_score == 0).any() or name == "siglip"


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_the_form_for_a_gpu_equals_the_kernels(
    form: str, left_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor, and on a GPU where one is; across chunks."""
    monkeypatch.setattr("capgrade.measures.base.CHUNK", 32)
    captions = make_captions(random_sets(40, least=2))
    vectors = (
        np.random.default_rng(0)
        .normal(size=(captions.n_images + captions.n_captions, 24))
        .astype(np.float32)
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    seen, said = vectors[:40], vectors[40:]
    fitted = FittedImageText(captions.ref_ptr, captions.refs, left_out, seen, said, form)
    images = np.random.default_rng(1).permutation(40)
    every = fitted.score(images)
    apart = fitted.pairs(
        *(grid.ravel() for grid in np.meshgrid(images, range(len(said)), indexing="ij"))
    )
    np.testing.assert_allclose(apart.reshape(every.shape), every, atol=2e-6)
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        moved = fitted.on_device(torch.device(device))
        assert type(moved) is not type(fitted)
        np.testing.assert_allclose(moved.score(images), every, atol=1e-5)
        np.testing.assert_array_equal(moved.score(images[:3]), moved.score(images)[:3])


def test_what_is_opposite_is_worth_nothing() -> None:
    """And what is equal the most, exactly."""
    vectors = np.array([[1, 0], [-1, 0]], np.float32)
    for form, (low, high) in RANGES.items():
        found = FittedImageText(np.arange(3), np.arange(2), False, vectors, vectors, form)
        np.testing.assert_array_equal(
            found.score(np.arange(2)), np.float32([[high, low], [low, high]])
        )


@pytest.mark.filterwarnings("ignore:.*longer than the")
@pytest.mark.parametrize("form", FORMS)
def test_a_pair_has_one_value_by_every_road(
    models: dict[str, str], pictures: Path, form: str, tmp_path: Path
) -> None:
    """Dense and sampled files in blocks of any size, labels, exact ones, `grade`, a typed caption,
    a mixture."""
    folder = write_captions_folder(tmp_path / "c", [caption_table(SETS)])
    texts = make_captions(SETS).texts
    block = {"model": models["clip"], "images": str(pictures), "form": form}
    given = [f"measures.image_text.{key}={value}" for key, value in block.items()]
    given += [
        "measures.mixtures={both: {image_text: 0.5, rouge_l: 0.5}}",
        "measures.rouge_l.references=max",
    ]
    sets = [part for one in given for part in ("--set", one)]
    line = ("--captions", folder, "--measures", "image_text,both,rouge_l", *sets)
    assert (
        call("relevance", *line, "--out", tmp_path / "r", "--set", "relevance.block_images=2") == 0
    )
    assert call("shards", *line, "--out", tmp_path / "s", "--set", "shards.block_images=3") == 0
    matrix = read_relevance(tmp_path / "r" / "image_text.arrow").matrix()
    for name in ("image_text", "both"):
        dense = read_relevance(tmp_path / "r" / f"{name}.arrow").matrix()
        for batch in read_shards(tmp_path / "s").batches():
            for row in batch.to_pylist():
                assert np.array_equal(np.float32(row[name]), dense[row["image"], row["captions"]])
    rouge = read_relevance(tmp_path / "r" / "rouge_l.arrow").matrix()
    np.testing.assert_allclose(dense, 0.5 * matrix + 0.5 * rouge, atol=1e-6)
    own = read_own_pairs(tmp_path / "r")["image_text_left_out"]
    lonely = np.repeat([len(one) == 1 for one in SETS], [len(one) for one in SETS])
    assert np.isnan(own[lonely]).all() if form == "refclipscore" else not np.isnan(own).any()

    params = MeasuresParams.model_validate({"image_text": block})
    labels = Labels.load(tmp_path / "s", captions=folder)
    with pytest.raises(InputError, match="made with image_text.*, which is not opened unasked"):
        capgrade.exact(labels, "image_text")
    labels = capgrade.exact(labels, "image_text", model=models["clip"], images=str(pictures))
    exact = labels.block(labels.image_ids, range(labels.n_captions)).relevance
    np.testing.assert_allclose(exact, matrix, atol=2e-6)
    graded = capgrade.grade(
        {f"i{k}": own for k, own in enumerate(SETS)}, pictures, measures="image_text",
        parameters={"image_text": {"model": models["clip"], "form": form}}, tokenizer="lower_split",
    )  # fmt: skip
    np.testing.assert_array_equal(
        graded.block(graded.image_ids, range(len(texts))).relevance, matrix
    )

    captions, measure = make_captions(SETS), choose(["image_text"], params)["image_text"]
    fitted = measure.fit(captions)
    typed = measure.unseen(fitted, captions)
    assert typed is not None
    np.testing.assert_allclose(np.stack([typed(text) for text in texts], axis=1), matrix, atol=2e-6)
    with pytest.raises(InputError, match="no word in this caption"):
        typed(" ")
    (voice,) = fit_measure_voices(captions, ["image_text"], params)  # of the explorer
    np.testing.assert_allclose(voice.score_text(texts[2]), matrix[:, 2], atol=2e-6)
    best = graded.neighbours("i0", top=3)
    assert [caption for caption, _ in best][0] == graded.caption_ids[int(np.argmax(matrix[0]))]
    fitted.save(tmp_path / "fit")
    opened = FittedImageText.load(tmp_path / "fit")
    np.testing.assert_array_equal(opened.score(np.array([3, 0])), matrix[[3, 0]])


def test_convolutions_over_patches_are_in_float32(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU PyTorch would take TF32 for them, and embeddings would differ in more than their
    last bits."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    encoder, allowed = encoders.load_dual_encoder(models["clip"]), []
    layer = encoder[0].auto_model.vision_model.embeddings.patch_embedding
    layer.register_forward_hook(lambda *_: allowed.append(torch.backends.cudnn.allow_tf32))
    encoders.encode_pictures(encoder, [Image.new("RGB", (20, 20))])
    assert allowed and not any(allowed)
    assert torch.backends.cudnn.allow_tf32


def test_embeddings_are_kept_by_the_bytes_of_a_picture(
    models: dict[str, str], pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is computed beside them; a copy under another name is not computed again, a changed
    picture is."""
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    asked: list[int] = []
    encode = encoders.encode_pictures
    monkeypatch.setattr(
        encoders,
        "encode_pictures",
        lambda e, some, *more: asked.append(len(some)) or encode(e, some, *more),
    )
    captions = make_captions([["a dog"]] * 5)
    whole = fitted_on(captions, models["clip"], pictures).pictures
    assert asked == [5]
    for k in range(5):
        content = (pictures / f"i{k}.png").read_bytes()
        (tmp_path / f"i{4 - k}.png").write_bytes(content)
    np.testing.assert_array_equal(
        fitted_on(captions, models["clip"], tmp_path).pictures, whole[::-1]
    )
    assert asked == [5]
    Image.new("RGB", (30, 30)).save(tmp_path / "i0.png")
    again = fitted_on(captions, models["clip"], tmp_path).pictures
    np.testing.assert_array_equal(again[1:], whole[:4][::-1])
    assert asked == [5, 1] and not np.array_equal(again[0], whole[4])
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "other"))
    alone = [
        fitted_on(make_captions([["a dog"]] * n), models["clip"], pictures).pictures for n in (1, 3)
    ]
    np.testing.assert_array_equal(alone[1], whole[:3])
    np.testing.assert_array_equal(alone[0], whole[:1])


def test_an_image_without_a_picture_is_named(
    models: dict[str, str], pictures: Path, tmp_path: Path
) -> None:
    folder = write_captions_folder(tmp_path / "c", [caption_table([*SETS, ["a cat"], ["a dog"]])])
    line = ("relevance", "--captions", folder, "--measures", "image_text", "--out", tmp_path / "r")
    named = "--set", f"measures.image_text.model={models['clip']}"
    assert "image_text needs measures.image_text.model" in refusal(*line)
    assert "image_text needs measures.image_text.images" in refusal(*line, *named)
    said = refusal(*line, *named, "--set", f"measures.image_text.images={pictures}")
    assert "no pictures of 1 of the 7 images: 'i6' -> give a picture of each image" in said
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "i6.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    for k in range(6):
        (tmp_path / "p" / f"i{k}.png").symlink_to(pictures / f"i{k}.png")
    said = refusal(*line, *named, "--set", f"measures.image_text.images={tmp_path / 'p'}")
    assert "i6.png" in said and "not a readable picture" in said
    assert not (tmp_path / "r").exists()


def test_a_model_of_texts_alone_is_refused() -> None:
    with pytest.raises(
        InputError, match="all-MiniLM-L6-v2' is a 'bert', which embeds no pictures -> give a dual"
    ):
        encoders.load_dual_encoder(embeddings.EMBEDDED)


def test_captions_are_not_compared_with_each_other(models: dict[str, str], pictures: Path) -> None:
    captions = make_captions(SETS)
    with pytest.warns(
        CapgradeWarning, match="1 text is longer than the 24 word pieces that the encoder reads"
    ):
        fitted = fitted_on(captions, models["clip"], pictures, form="refclipscore")
    with pytest.raises(InputError, match="compares captions with pictures"):
        fitted.regroup(np.arange(captions.n_captions + 1), np.arange(captions.n_captions))
    first = fitted.regroup(np.arange(len(SETS) + 1), captions.ref_ptr[:-1]).pairs(
        np.array([1]), np.array([0])
    )
    alone = make_captions([own[:1] for own in SETS])
    other = fitted_on(alone, models["clip"], pictures, form="refclipscore")
    np.testing.assert_array_equal(first, other.pairs(np.array([1]), np.array([0])))


def test_pictures_that_no_measure_looks_at_are_refused(pictures: Path) -> None:
    with pytest.raises(
        InputError, match="rouge_l do not look at them -> leave images out, or name.*image_text"
    ):
        capgrade.grade({"a": ["a dog"], "b": ["a cat"]}, pictures, measures="rouge_l")


def test_what_it_read_is_in_the_manifest(
    models: dict[str, str], pictures: Path, tmp_path: Path
) -> None:
    """The model by its bytes, the pictures by their names and sizes, wherever they lie."""
    measure = choose(["image_text"], params_of(models["clip"], pictures))["image_text"]
    before = measure.files()
    assert set(before) == {"measures.image_text.model", "measures.image_text.images"}
    for path in pictures.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    moved = choose(["image_text"], params_of(models["clip"], tmp_path))["image_text"]
    assert moved.files() == before
    (tmp_path / "i0.png").rename(tmp_path / "i9.png")
    assert moved.files()["measures.image_text.images"] != before["measures.image_text.images"]


def test_agreement_and_audit_look_at_pictures(
    models: dict[str, str], pictures: Path, tmp_path: Path
) -> None:
    """A calibration of other captions serves these: where pictures lie changes no meaning."""
    random = np.random.default_rng(0)
    sets = random_sets(30, seed=1, least=2)
    folder, seen = write_captions_folder(tmp_path / "c", [caption_table(sets)]), tmp_path / "p"
    seen.mkdir()
    for k in range(30):
        Image.fromarray(random.integers(0, 256, (20, 20, 3), np.uint8)).save(seen / f"i{k}.png")
    model = ("--set", f"measures.image_text.model={models['clip']}")
    given = (
        "--captions",
        folder,
        "--measures",
        "image_text",
        *model,
        "--set",
        f"measures.image_text.images={seen}",
    )
    assert call("relevance", *given, "--out", tmp_path / "r") == 0
    judged, out = tmp_path / "r" / "image_text.arrow", tmp_path / "agree"
    accept = ("--set", "agree.scale=-1..1", "--set", "agree.accept=0.1")
    calibrated = ("--calibrate", "--out", out)
    assert call("agree", *given, "--judgements", judged, *accept, *calibrated) == 0
    found = json.loads((out / "agreement.json").read_text())["measures"]["image_text"]
    assert found["pearson"]["all"] == pytest.approx(1)
    other = tmp_path / "q"
    seen.rename(other)
    again = [str(one).replace(str(seen), str(other)) for one in given]
    assert call("relevance", *again, "--out", tmp_path / "r2") == 0
    line = (
        "audit",
        "--captions",
        folder,
        "--relevance",
        tmp_path / "r2",
        "--calibration",
        out / "calibration.json",
    )
    assert call(*line, "--images", other, "--out", tmp_path / "audit.html") == 0
