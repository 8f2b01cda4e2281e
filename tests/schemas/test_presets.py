import pytest
import torch
import yaml

from capgrade.schemas.errors import InputError
from capgrade.schemas.params import load_params
from capgrade.schemas.presets import FILE, with_preset
from capgrade.trainer.losses import ScoredBatch, make_loss


def test_a_run_stands_on_its_preset_and_that_on_its_base():
    params = load_params(None, ["train.preset=bcls", "train.epochs=3"]).train
    assert params.epochs == 3
    assert params.model.name == "saf"
    assert params.lr == 5e-4
    assert params.measure == "sbert"
    assert [term["name"] for term in params.loss] == ["triplet_sn", "kendall_windows"]


# preset: model, batch, epochs, rate, decay, words at least so often, chosen by, measure. Of the papers and the authors'
# commands, not of presets.yaml; docs/models.md cites the lines.
PAPERS = {
    "triplet": ("vse", 128, 30, 2e-4, (15,), 4, "rsum", None),
    "sam": ("vse", 128, 30, 2e-4, (15,), 4, "rsum", "cider"),
    "sam_authors": ("vse", 128, 30, 2e-4, (15,), 4, "rsum", "cider"),
    "saf": ("saf", 128, 20, 2e-4, (10,), 4, "rsum", None),
    "saf_f30k": ("saf", 128, 30, 2e-4, (20,), 4, "rsum", None),
    "sgr": ("sgr", 128, 20, 2e-4, (10,), 4, "rsum", None),
    "sgr_f30k": ("sgr", 128, 40, 2e-4, (30,), 4, "rsum", None),
    "vse_infinity": ("vse_infinity", 128, 25, 5e-4, (15,), 4, "rsum", None),
    "vse_infinity_bert": ("vse_infinity", 128, 25, 5e-4, (15,), 1, "rsum", None),
    "vsrn": ("vsrn", 128, 30, 2e-4, (15,), 4, "rsum", None),
    "vsrn_f30k": ("vsrn", 128, 30, 2e-4, (10, 20), 4, "rsum", None),
    "cvse": ("cvse", 128, 30, 2e-4, (15,), 4, "rsum", None),
    "cvse_f30k": ("cvse", 128, 50, 2e-4, (25,), 4, "rsum", None),
    "scan": ("scan", 128, 20, 5e-4, (10,), 4, "rsum", None),
    "scan_f30k": ("scan", 128, 30, 2e-4, (15,), 4, "rsum", None),
    "scan_i2t": ("scan", 128, 20, 5e-4, (10,), 4, "rsum", None),
    "scan_i2t_f30k": ("scan", 128, 30, 2e-4, (15,), 4, "rsum", None),
    "sam_cvse": ("cvse", 128, 30, 2e-4, (15,), 4, "rsum", "cider"),
    "sam_cvse_f30k": ("cvse", 128, 50, 2e-4, (25,), 4, "rsum", "cider"),
    "sam_vsrn": ("vsrn", 128, 30, 2e-4, (15,), 4, "rsum", "cider"),
    "sam_vsrn_f30k": ("vsrn", 128, 30, 2e-4, (10, 20), 4, "rsum", "cider"),
    "sam_sgr": ("sgr", 128, 20, 2e-4, (10,), 4, "rsum", "cider"),
    "sam_sgr_f30k": ("sgr", 128, 40, 2e-4, (30,), 4, "rsum", "cider"),
    "bcls": ("saf", 128, 20, 5e-4, (10,), 4, "rsum", "sbert"),
    "bcls_sgr": ("sgr", 128, 20, 5e-4, (10,), 4, "rsum", "sbert"),
    "bcls_vse": ("vse", 128, 20, 5e-4, (10,), 4, "rsum", "sbert"),
    "daa": ("sgr", 128, 30, 1.5e-4, (20,), 4, "rsum", "cider"),
    "daa_f30k": ("sgr", 128, 40, 6e-4, (30,), 4, "rsum", "cider"),
    "daa_authors": ("sgr", 128, 30, 1.5e-4, (20,), 4, "rsum", "tfidf_cosine"),
    "daa_authors_f30k": ("sgr", 128, 40, 6e-4, (30,), 4, "rsum", "tfidf_cosine"),
    "tern": ("tern", 40, 30, 1e-5, (20,), 1, "ndcg", "rouge_l"),
    "tern_f30k": ("tern", 30, 30, 1e-5, (20,), 1, "ndcg", "rouge_l"),
    "teran": ("teran", 40, 30, 1e-5, (20,), 1, "ndcg", "rouge_l"),
    "teran_f30k": ("teran", 30, 30, 1e-5, (20,), 1, "ndcg", "rouge_l"),
}


@pytest.mark.parametrize("preset", PAPERS)
def test_a_preset_has_the_papers_values(preset):
    model, batch, epochs, lr, decay, count, best, measure = PAPERS[preset]
    train = load_params(None, [f"train.preset={preset}"]).train
    assert (train.model.name, train.batch_size, train.epochs, train.lr) == (model, batch, epochs, lr)
    assert (train.decay_after, train.min_count, train.best_by, train.clip) == (decay, count, best, 2.0)
    assert measure in (None, train.measure)
    assert train.warmup == (1000 if preset in ("tern_f30k", "teran_f30k") else 0)
    assert train.relevance_of == ("caption" if preset.startswith("bcls") else "image_set")
    make_loss(train.loss)


# AdamW's weight decay, rate of the text encoder, epochs over all negatives.
DECAYED = {"vse_infinity": (0.01, None, 1), "vse_infinity_bert": (1e-4, 5e-5, 1)}


@pytest.mark.parametrize("preset", PAPERS)
def test_weights_decay_where_the_authors_let_them(preset):
    train = load_params(None, [f"train.preset={preset}"]).train
    assert (train.weight_decay, train.encoder_lr, train.all_negatives_first) == DECAYED.get(preset, (0.0, None, 0))


# Options of the model, of the authors' commands.
OPTIONS = {
    "cvse": {"labels": 0.4},
    "cvse_f30k": {"labels": 0.35},
    "vsrn_f30k": {"first_norm": False, "last_norm": True},
    "vse_infinity_bert": {"text_model": "all-MiniLM-L6-v2"},
    "scan": {"direction": "t2i", "pooling": "lse", "temperature": 9, "sharpness": 6},
    "scan_f30k": {"direction": "t2i", "pooling": "lse", "temperature": 9, "sharpness": 6},
    "scan_i2t": {"direction": "i2t", "pooling": "lse", "temperature": 4, "sharpness": 20},
    "scan_i2t_f30k": {"direction": "i2t", "pooling": "lse", "temperature": 4, "sharpness": 5},
}


@pytest.mark.parametrize("preset", OPTIONS)
def test_a_host_has_the_options_of_its_authors(preset):
    assert load_params(None, [f"train.preset={preset}"]).train.model.options == OPTIONS[preset]


# Options of the graded term.
TERMS = {
    "sam": {"weight": 10, "tau": 3, "negatives": "hard", "form": "paper"},
    "sam_authors": {"weight": 5, "tau": 10, "negatives": "soft", "form": "authors"},
    "daa": {"weight": 25, "temperature": 0.001, "form": "paper"},
    "daa_f30k": {"weight": 10, "temperature": 0.001, "form": "paper"},
    "daa_authors": {"weight": 25, "temperature": 0.001, "form": "authors"},
    "daa_authors_f30k": {"weight": 10, "temperature": 0.001, "form": "authors"},
}


@pytest.mark.parametrize("preset", TERMS)
def test_a_graded_term_stands_beside_the_hardest_triplet(preset):
    first, term = load_params(None, [f"train.preset={preset}"]).train.loss
    assert first == {"name": "triplet", "margin": 0.2, "negatives": "hard"}
    assert term == {"name": preset.split("_")[0], **TERMS[preset]}


def test_every_preset_is_held_against_its_paper():
    known = yaml.safe_load(FILE.read_text())
    others = {"semanticmap", *TUNED, "infonce"}
    assert known.keys() == {*PAPERS, *others}, "infonce has no paper of the field"


def test_semanticmap_has_the_papers_values():
    """Nawaz et al. 2019, section 5: Adam 0.05, decay 5e-5, 100 epochs, 45 pairs, 128 numbers; eq. 4 and the softmax."""
    train = load_params(None, ["train.preset=semanticmap"]).train
    assert (train.model.name, train.model.options) == ("single_stream", {"embed": 128})
    assert (train.lr, train.weight_decay, train.epochs, train.batch_size) == (0.05, 5e-5, 100, 45)
    assert (train.decay_after, train.warmup, train.clip) == ((), 0, None)
    generator = torch.Generator().manual_seed(0)
    images, captions = (torch.randn(6, 4, generator=generator) for _ in range(2))
    logits = [torch.randn(6, 3, generator=generator) for _ in range(2)]
    labels = torch.tensor([0, 1, 2, 0, 1, 0])
    sides = {"images": images, "captions": captions, "image_logits": logits[0], "caption_logits": logits[1]}
    batch = ScoredBatch(torch.zeros(6, 6), torch.eye(6, dtype=torch.bool), labels=labels, **sides)
    expected = 0.0
    for c in range(3):
        of_class = torch.cat([images[labels == c], captions[labels == c]])
        expected += 0.5 * float((of_class - of_class.mean(0)).square().sum())
    softmax = torch.cat(logits).softmax(1)[torch.arange(12), labels.repeat(2)]
    assert float(make_loss(train.loss)(batch)) == pytest.approx(expected - float(softmax.log().mean()), rel=1e-5)


# A checkpoint, its loss, and the decay of its authors; rate, batch and epochs are ours.
TUNED = {
    "clip": ("openai/clip-vit-base-patch32", "info_nce", "own", 0.2),
    "clip_graded": ("openai/clip-vit-base-patch32", "info_nce", "relevance", 0.2),
    "siglip": ("google/siglip-base-patch16-224", "sigmoid", "own", 1e-4),
    "siglip_graded": ("google/siglip-base-patch16-224", "sigmoid", "relevance", 1e-4),
}


@pytest.mark.parametrize("preset", TUNED)
def test_a_dual_encoder_is_tuned_at_its_own_temperature(preset):
    train = load_params(None, [f"train.preset={preset}"]).train
    pretrained, loss, targets, decay = TUNED[preset]
    assert (train.model.name, train.model.options) == (preset.split("_")[0], {"pretrained": pretrained})
    (term,) = train.loss
    assert (term["name"], term.get("targets", "own"), term["of"], term["temperature"]) == (loss, targets, "logits", 1)
    assert term.get("bias", 0.0) == 0.0 and train.weight_decay == decay and train.clip is None
    make_loss(train.loss)


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
