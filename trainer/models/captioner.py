"""The captioner of VSRN: a GRU reads the regions, another writes the caption with attention to them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capgrade.trainer.models.base import Texts
from capgrade.trainer.models.encoders import upcast


class Captioner(nn.Module):
    """-sum_t log p(w_t | w_1..t-1, regions), the mean over captions (eq. 9); always given the true word before.

    The word after the last is padding, and counts, as in the authors' code. Attention's first layer is a sum of what
    it says of regions, made once, and of the state; words are predicted for all steps at once; steps end with the
    longest caption, where the authors always take 59. Source: models/*.py, misc/utils.py, data.py 245-265 of VSRN.
    """

    def __init__(self, vocabulary: int, regions: int, hidden: int, word: int, dropout: float) -> None:
        super().__init__()
        self.narrow = nn.Linear(regions, hidden)
        self.read = nn.GRU(hidden, hidden, batch_first=True)
        self.embed = nn.Embedding(vocabulary, word)
        self.write = nn.GRUCell(hidden + word, hidden)
        self.of_regions, self.of_state = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
        self.weigh = nn.Linear(hidden, 1, bias=False)
        self.out = nn.Linear(hidden, vocabulary)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.narrow, self.out):
            nn.init.xavier_normal_(layer.weight)

    def forward(self, regions: Tensor, mask: Tensor, captions: Texts) -> Tensor:
        """regions [B, R, D] -> a scalar."""
        lengths = mask.sum(1).clamp(min=1).cpu()
        narrow = self.dropout(self.narrow(regions))
        packed = pack_padded_sequence(narrow, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.read(packed)
        seen, _ = pad_packed_sequence(states, batch_first=True, total_length=regions.shape[1])
        written = self.states(seen, mask, last[0], self.embed(captions.tokens))
        targets = pad(captions.tokens, (0, 1))[:, 1:]
        logits = upcast(self.out(written[captions.mask]))
        return cross_entropy(logits, targets[captions.mask], reduction="sum") / len(regions)

    def states(self, seen: Tensor, mask: Tensor, state: Tensor, words: Tensor) -> Tensor:
        """float [B, W, hidden] after each word, attending to the regions before it."""
        known, found = self.of_regions(seen), []
        for word in words.unbind(1):
            logits = upcast(self.weigh((known + self.of_state(state).unsqueeze(1)).tanh()).squeeze(2))
            weights = logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(1)
            context = (weights.unsqueeze(1).to(seen.dtype) @ seen).squeeze(1)
            state = self.write(self.dropout(torch.cat([word.to(seen.dtype), context], 1)), state)
            found.append(state)
        return torch.stack(found, 1)
