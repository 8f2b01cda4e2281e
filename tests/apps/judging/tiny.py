"""A cross-encoder of two layers with random weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

OF_BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def random_model(folder: Path, words: Sequence[str] = (), labels: int = 1) -> CrossEncoder:
    """It knows these words and is saved in `folder`; its scores of different texts differ."""
    torch.manual_seed(0)
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*OF_BERT, *words]))
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
    }
    sizes |= {
        "vocab_size": len(OF_BERT) + len(words),
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    config = BertConfig(num_labels=labels, initializer_range=0.5, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    return CrossEncoder(str(folder), device="cpu")
