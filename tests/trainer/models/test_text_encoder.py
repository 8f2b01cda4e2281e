"""Word pieces and hidden states, against sentence-transformers' on the embedded model."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, RobertaTokenizerFast

from capgrade.measures.embeddings import load_encoder
from capgrade.pretrained import EMBEDDED
from capgrade.schemas.errors import InputError
from capgrade.trainer.data.pairs import pad_texts
from capgrade.trainer.data.text import ModelTokens
from capgrade.trainer.models.base import CaptionTokens
from capgrade.trainer.models.text_encoder import (
    TextEncoder,
    load_tokenizer,
    pieces_of,
    stop_pieces,
    word_starts,
)

CAPTIONS = [
    "A white doggy is on the right of a woman dressed in orange.",
    "A lady.",
    "two  high-rises\tby the café",
]


def test_hidden_states_equal_sentence_transformers():
    rows = ModelTokens(EMBEDDED).encode_texts(CAPTIONS)
    with torch.inference_mode():
        states = TextEncoder().eval()(pad_texts(rows))
    expected = load_encoder(EMBEDDED).encode(CAPTIONS, output_value="token_embeddings")
    for row, state, known in zip(rows, states, expected, strict=True):
        known = known[: len(row)].cpu()
        assert (state[: len(row)] - known).abs().max() < 1e-5, (
            (state[: len(row)] - known).abs().max()
        )


def test_pieces_know_their_words():
    for text, row in zip(CAPTIONS, pieces_of(CAPTIONS), strict=True):
        tokenizer, _ = load_tokenizer("all-MiniLM-L6-v2")
        assert row.words[0] == row.words[-1] == -1
        for k, word in enumerate(text.split()):
            ids = [piece for piece, at in zip(row.ids, row.words, strict=True) if at == k]
            assert ids == tokenizer(word, add_special_tokens=False)["input_ids"], (word, ids)


def test_nothing_is_cut_off(bert):
    assert pieces_of([], bert) == [] and pieces_of([""], bert)[0].words == [-1, -1]
    assert len(pieces_of(["dog " * 30], bert)[0].ids) == 32
    with pytest.raises(
        InputError, match=r"row captions\[1\]: caption of 33 tokens, .* takes 32: 'dog dog"
    ):
        pieces_of(["a dog", "dog " * 31], bert)


def test_first_layers_are_those_of_the_whole(bert):
    captions = CaptionTokens(torch.tensor([[2, 9, 10, 3]]), torch.ones(1, 4, dtype=torch.bool))
    whole, first = TextEncoder(bert).eval(), TextEncoder(bert, layers=1).eval()
    states = whole.encoder(captions.tokens, output_hidden_states=True).hidden_states
    assert (
        torch.allclose(first(captions), states[1], atol=1e-6)
        and len(first.encoder.encoder.layer) == 1
    )
    with pytest.raises(InputError, match="has 2 layers"):
        TextEncoder(bert, layers=3)


def test_stop_words_of_a_file(bert, tmp_path):
    (tmp_path / "stop.txt").write_text("red\nunheard\nruns\n")
    stop, inner = stop_pieces(str(tmp_path / "stop.txt"), bert)
    tokenizer, _ = load_tokenizer(bert)
    assert tokenizer.convert_ids_to_tokens(stop.nonzero()[:, 0].tolist()) == [
        "red"
    ]  # nor [UNK], nor run of run ##s
    assert tokenizer.convert_ids_to_tokens(inner.nonzero()[:, 0].tolist()) == [
        "##s",
        "##ing",
        "##ion",
    ]


def test_pieces_that_do_not_mark_words_are_refused_where_words_count(tmp_path):
    """RoBERTa's: "playing" is "play" and "ing", which nothing tells from a word of its own."""
    pieces = {
        piece: k
        for k, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "\u0120"])
    }
    RobertaTokenizerFast(vocab=pieces, merges=[], model_max_length=32).save_pretrained(tmp_path)
    BertConfig(max_position_embeddings=32).save_pretrained(tmp_path)
    assert pieces_of(["a"], str(tmp_path))[0].words == [-1, 0, -1]  # read whole, it is of use
    for use in (lambda: word_starts(str(tmp_path)), lambda: stop_pieces("english", str(tmp_path))):
        with pytest.raises(
            InputError, match="do not tell where a word begins -> use a BERT-like model"
        ):
            use()


def test_a_model_that_cannot_be_loaded_is_one_line(tmp_path):
    for model in ("no/such/model", str(tmp_path)):
        with pytest.raises(InputError, match="cannot load text encoder"):
            TextEncoder(model)
        with pytest.raises(InputError, match="cannot load tokenizer of"):
            pieces_of(["a dog"], model)


def test_missing_weights_are_not_made_up(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "bert")
    weights = load_file(tmp_path / "bert/model.safetensors")
    save_file(
        {k: v for k, v in weights.items() if "layer.1.output" not in k},
        tmp_path / "bert/model.safetensors",
    )
    with pytest.raises(InputError, match=r"lacks 4 weights, the first encoder\.layer\.1\.output"):
        TextEncoder(str(tmp_path / "bert"))
    TextEncoder(str(tmp_path / "bert"), layers=1)
