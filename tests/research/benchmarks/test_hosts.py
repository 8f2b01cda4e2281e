"""A step of ours beside one of the authors' code, which a small stand-in takes the place of."""

from pathlib import Path

import pytest

from capgrade.params import load_params
from capgrade.schemas.errors import InputError
from research.benchmarks import hosts
from research.benchmarks.harness import Asked, BenchParams
from tests.conftest import caption_table, write_captions_folder

# What a later Python or another machine would not read is rewritten: a division, two imports.
AUTHORS = """
import torch
import torchvision.models as models
from torch import nn
from torch.nn.utils.clip_grad import clip_grad_norm

class EncoderText(nn.Module):
    def __init__(self, vocabulary, word, embed, layers, use_bi_gru):
        super().__init__()
        self.words = nn.Embedding(vocabulary, 2 * embed)
    def forward(self, words, lengths):
        found = self.words(words)
        found = (found[:,:,:found.size(2)/2] + found[:,:,found.size(2)/2:])/2
        return (found, lengths) if SCAN else found

class EncoderImage(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes[-2:])

class EncoderSimilarity(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
    def forward(self, images, words, lengths):
        return self.weight * images.mean(1) @ words.mean(1).T

def xattn_score_t2i(images, words, lengths, asked):
    return images.mean(1) @ words.mean(1).T
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    sizes = {"BATCH": 4, "REGIONS": 3, "DIM": 8, "WORD": 4, "EMBED": 8, "SIMILARITY": 4}
    for name, size in sizes.items():
        monkeypatch.setattr(hosts, name, size)
    captions = write_captions_folder(
        tmp_path / "c", [caption_table([["a dog", "a cat runs"]], "x")]
    )
    bench = BenchParams(authors=str(tmp_path / "clones"))
    return Asked(captions, (), load_params(None), bench)


def test_each_host_steps_beside_its_authors_code(asked: Asked) -> None:
    for name in ("SCAN", "SGRAF"):
        folder = Path(str(asked.bench.authors)) / name
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(f"SCAN = {name == 'SCAN'}\n{AUTHORS}")
    for row in hosts.bench(asked).values():
        assert row["ratio"] == pytest.approx(row["pairs_per_s"] / row["authors_pairs_per_s"])


def test_the_authors_code_is_asked_for(asked: Asked) -> None:
    with pytest.raises(InputError, match="clone the authors' repository as .*SCAN"):
        hosts.bench(asked)
