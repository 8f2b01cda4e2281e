"""A BERT small enough to build in a test."""

from collections.abc import Iterator

import pytest
import torch

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a the and on red dog cat sofa run play ##s ##ing ##ion ."


@pytest.fixture(scope="session")
def bert(tmp_path_factory) -> str:
    """The folder of a random BERT: 2 layers of 16, 32 positions, the word pieces above."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(PIECES.split()) + "\n")
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    torch.manual_seed(0)
    BertModel(
        BertConfig(vocab_size=len(PIECES.split()), max_position_embeddings=32, **sizes)
    ).save_pretrained(folder)
    BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=32).save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other over tiny tensors are slow on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
