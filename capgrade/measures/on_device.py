"""CIDEr-D, ROUGE-L and Sentence-BERT on a GPU: dense blocks by torch, within 1e-5 of the kernels for processors.

What is fitted is the same; its arrays go to the device once a worker, an image's references are folded by the same
kernels, and the device does what costs: the product, the updates of postings, the steps of the subsequences. Other
measures, single captions and captions left out of their own references stay with the processor.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capgrade.measures.base import Error, Fill, Fitted
from capgrade.measures.cider import FittedCider
from capgrade.measures.mixture import FittedMixture
from capgrade.measures.rouge import ONE, FittedRougeL, lanes_of
from capgrade.measures.sbert import ONE as SBERT_ONE
from capgrade.measures.sbert import FittedSbert
from capgrade.schemas.devices import device_of

LONGEST = 64  # tokens of a reference that one number's bits hold


def on_device(fitted: Fitted, device: str) -> Fitted:
    """The measure with its dense blocks on `device`, "cuda" or "cuda:1"; itself for "cpu", and where it has no such
    form. Raises InputError when there is no such device."""
    if device == "cpu":
        return fitted
    return _moved(fitted, device_of(device))


def _moved(fitted: Fitted, device: torch.device) -> Fitted:
    if isinstance(fitted, FittedMixture):
        return replace(fitted, parts={name: _moved(part, device) for name, part in fitted.parts.items()})
    for kind, form in FORMS.items():
        if isinstance(fitted, kind):
            return form(fitted, device)
    return fitted


class _OnDevice(Fitted):
    """A fitted measure and a device; a form says what it prepares for images, and its values for a chunk."""

    fitted: FittedCider | FittedRougeL | FittedSbert

    @property
    def columns(self) -> int:
        return self.fitted.columns

    def filler(self, images: np.ndarray, start: int) -> Fill:
        prepared = self._prepare(images)

        def fill(first: int, last: int, out: np.ndarray) -> None:
            out[:, : last - first] = self._values(prepared, first, last).cpu().numpy()

        return fill

    @property
    def error(self) -> Error:
        """As `Fitted.error`: that of the processor holds for sums in any order."""
        return self.fitted.error

    @property
    def leave_out(self) -> bool:
        return self.fitted.leave_out

    @property
    def ref_ptr(self) -> np.ndarray:
        return self.fitted.ref_ptr

    @property
    def refs(self) -> np.ndarray:
        return self.fitted.refs

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.fitted.pairs(images, captions)

    @abstractmethod
    def _prepare(self, images: np.ndarray) -> tuple: ...

    @abstractmethod
    def _values(self, prepared: tuple, first: int, last: int) -> Tensor: ...


class SbertOnDevice(_OnDevice):
    """A product in float32, folded over an image's references."""

    def __init__(self, fitted: FittedSbert, device: torch.device) -> None:
        self.fitted: FittedSbert = fitted
        self.embeddings = torch.as_tensor(np.asarray(fitted.embeddings), device=device)
        self.repeated = np.flatnonzero(np.bincount(fitted.same) > 1)  # the first caption of each text of several

    def _prepare(self, images: np.ndarray) -> tuple:
        """Queries, the image of each, how many images, and the cosines of texts that several captions have."""
        queries, start = self.fitted.queries(images)
        owner = np.repeat(np.arange(len(images)), np.diff(start))
        device = self.embeddings.device
        vectors, images_of = torch.as_tensor(queries, device=device), torch.as_tensor(owner, device=device)
        repeated = torch.as_tensor(self.repeated, device=device)
        known = self._cosines(vectors, images_of, len(images), self.embeddings[repeated])
        return vectors, images_of, len(images), known

    def _values(self, prepared: tuple, first: int, last: int) -> Tensor:
        vectors, images_of, n_images, known = prepared
        cosines = self._cosines(vectors, images_of, n_images, self.embeddings[first:last])
        text = np.searchsorted(self.repeated, self.fitted.same[first:last])
        here = np.flatnonzero(np.append(self.repeated, -1)[text] == self.fitted.same[first:last])
        columns, of = (torch.as_tensor(k, device=known.device) for k in (here, text[here]))
        cosines[:, columns] = known[:, of]
        return cosines

    def cells(self, images: np.ndarray, captions: np.ndarray) -> Tensor:
        """Cosines of any caption rows, float32 [len(images), len(captions)], on the device in one product."""
        queries, start = self.fitted.queries(images)
        device = self.embeddings.device
        owner = torch.as_tensor(np.repeat(np.arange(len(images)), np.diff(start)), device=device)
        targets = self.embeddings[torch.as_tensor(captions, device=device)]
        return self._cosines(torch.as_tensor(queries, device=device), owner, len(images), targets)

    def _cosines(self, queries: Tensor, owner: Tensor, n_images: int, targets: Tensor) -> Tensor:
        cosines = queries @ targets.T
        folded = cosines.new_full((n_images, len(targets)), -1.0)
        folded.scatter_reduce_(0, owner[:, None].expand(cosines.shape), cosines, "amax")
        return torch.where(folded > float(SBERT_ONE), 1.0, folded)


class CiderOnDevice(_OnDevice):
    """Every posting of an image's terms in the chunk is one addition, frequent n-grams like others."""

    def __init__(self, fitted: FittedCider, device: torch.device) -> None:
        self.fitted: FittedCider = fitted
        self.n, postings, (_, *ranked) = fitted.columns, fitted.postings, fitted.ranked
        term = np.repeat(np.arange(len(postings.ptr) - 1), np.diff(postings.ptr))
        self.key = torch.as_tensor(term * self.n + postings.rank, device=device)  # ascending
        self.post_rank = torch.as_tensor(postings.rank.astype(np.int64), device=device)
        self.rank, self.class_of_rank = (torch.as_tensor(a.astype(np.int64), device=device) for a in ranked[:2])
        self.norm_of_rank = torch.as_tensor(np.asarray(ranked[2]), device=device)

    def _prepare(self, images: np.ndarray) -> tuple:
        folded = self.fitted.fold(images)
        start, used = folded.start[:-1], folded.used
        rows = np.concatenate([np.arange(a, a + n) for a, n in zip(start, used, strict=True)])
        owner = np.repeat(np.arange(len(images)), used)
        parts = (folded.table[rows], folded.term[rows], folded.order[rows].astype(np.int64), owner)
        return len(images), *(torch.as_tensor(part, device=self.rank.device) for part in parts)

    def _values(self, prepared: tuple, first: int, last: int) -> Tensor:
        n_images, table, term, order, owner = prepared
        begin = torch.searchsorted(self.key, term * self.n + first)
        size = torch.searchsorted(self.key, term * self.n + last) - begin
        row = torch.repeat_interleave(size)
        at = torch.arange(len(row), device=row.device) - (size.cumsum(0) - size - begin)[row]
        rank = self.post_rank[at]
        gain = table[row, self.class_of_rank[rank]] * self.norm_of_rank[order[row], rank]
        sums = torch.zeros(n_images, last - first, dtype=torch.float64, device=row.device)
        sums.view(-1).index_add_(0, owner[row] * (last - first) + rank - first, gain.double())
        values, full = sums[:, self.rank[first:last] - first], self.fitted.full
        return torch.where(values > full * (1 - 1e-6), full, values).float()


class RougeOnDevice(_OnDevice):
    """The bit-parallel steps of `rouge`, a caption a row and a reference a column: token after token for all captions
    of a chunk, those past a caption's end changing nothing. Images with a reference of more than 64 tokens, which one
    number cannot hold, stay with the processor."""

    def __init__(self, fitted: FittedRougeL, device: torch.device) -> None:
        self.fitted: FittedRougeL = fitted
        self.device = device
        lengths = np.diff(fitted.ptr)
        self.longest = np.maximum.reduceat(lengths[fitted.refs], fitted.ref_ptr[:-1])
        self.ones = torch.as_tensor([bin(k).count("1") for k in range(1 << 16)], dtype=torch.float32, device=device)
        self.lengths = torch.as_tensor(lengths.astype(np.float32), device=device)

    def _prepare(self, images: np.ndarray) -> tuple:
        """Lanes of the short references and of the long ones: masks by word, lengths, images; each word's row."""
        few = np.flatnonzero(self.longest[images] <= LONGEST)
        some, fitted = images[few], self.fitted
        form = fitted.form(some)._replace(width=len(some))
        found = lanes_of(some, fitted.ref_ptr, fitted.refs, fitted.texts, form)
        used, rows, owner = np.flatnonzero(found.length), len(found.mask), found.long_image
        row = self._there(np.append(np.where(found.row < 0, rows, found.row), rows))
        lanes: list[tuple[np.ndarray, ...]] = [
            (found.mask[:, used].astype(np.int32), found.length[used], used % max(len(some), 1)),
            (found.long_mask.view(np.int64).reshape(rows, len(owner)), found.long_length, owner),
        ]
        # The last row is of words that no reference has, and past the end.
        return (
            images,
            few,
            row,
            [tuple(map(self._there, (np.pad(mask, ((0, 1), (0, 0))), *of))) for mask, *of in lanes if mask.shape[1]],
        )

    def _there(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=self.device)

    def _values(self, prepared: tuple, first: int, last: int) -> Tensor:
        images, few, row, lanes = prepared
        out = torch.zeros(last - first, len(few), device=self.device)
        best, recall, total = torch.zeros_like(out), torch.zeros_like(out), torch.zeros_like(out)
        n, beta2 = self.lengths[first:last, None], self.fitted.beta**2
        for mask, length, owner in lanes:
            common = self._common(mask, row, first, last)
            into = owner.expand(common.shape)
            best.scatter_reduce_(1, into, common, "amax")
            recall.scatter_reduce_(1, into, common / length, "amax")
            total.index_add_(1, owner, (1 + beta2) * common / (n + beta2 * length))
        if self.fitted.mean:
            sizes = np.diff(self.fitted.ref_ptr)[images[few]].astype(np.float32)
            f = total / torch.as_tensor(sizes, device=self.device)
        else:
            f = (1 + beta2) * best * recall / (n * recall + beta2 * best).clamp(min=1e-30)
            f = torch.where(f > float(ONE), 1.0, f)
        return self._with_others(images, few, f.clamp(max=1), first, last)

    def _common(self, mask: Tensor, local: Tensor, first: int, last: int) -> Tensor:
        """Length of the longest common subsequence of each caption and lane, float32 [captions, lanes]."""
        ptr = self.fitted.ptr[first : last + 1]
        sizes, rows = np.diff(ptr), np.arange(last - first)
        words = np.full((len(rows), int(sizes.max(initial=0))), self.fitted.n_vocabulary)
        row = np.repeat(rows, sizes)
        words[row, np.arange(len(row)) - (ptr[:-1] - ptr[0])[row]] = self.fitted.word[ptr[0] : ptr[-1]]
        steps = local[torch.as_tensor(words, device=self.device)].T
        state = torch.full((len(rows), mask.shape[1]), -1, dtype=mask.dtype, device=self.device)
        for step in steps:
            shared = state & mask[step.long()]
            state = (state + shared) | (state - shared)
        zeros = ~state
        quarters = range(0, torch.iinfo(mask.dtype).bits, 16)
        return sum(
            (self.ones[(zeros >> shift & 0xFFFF).long()] for shift in quarters), torch.zeros((), device=self.device)
        )

    def _with_others(self, images: np.ndarray, few: np.ndarray, f: Tensor, first: int, last: int) -> Tensor:
        if len(few) == len(images):
            return f.T
        others = np.setdiff1d(np.arange(len(images)), few)
        out = torch.empty(len(images), last - first, device=self.device)
        out[torch.as_tensor(few, device=self.device)] = f.T
        values = np.empty((len(others), last - first), np.float32)
        self.fitted.filler(images[others], first)(first, last, values)
        out[torch.as_tensor(others, device=self.device)] = torch.as_tensor(values, device=self.device)
        return out


FORMS: dict[type, Any] = {FittedSbert: SbertOnDevice, FittedCider: CiderOnDevice, FittedRougeL: RougeOnDevice}
