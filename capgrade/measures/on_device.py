"""CIDEr-D, ROUGE-L, Sentence-BERT and dual encoders on a GPU: dense blocks by torch, within 1e-5 of the kernels for
processors.

What is fitted is the same; its arrays go to the device once a worker, an image's references are folded by the same
kernels, and the device does what costs: the product, the updates of postings, the steps of the subsequences. Other
measures, single captions and captions left out of their own references stay with the processor.

A value does not depend on the block that it is in. So products have one shape, and what a device may add in any order
are whole numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from capgrade.devices import device_of
from capgrade.measures.base import Fill, Fitted
from capgrade.measures.cider import FittedCider
from capgrade.measures.image_text import REFCLIPSCORE, FittedImageText, of_form
from capgrade.measures.rouge import ONE, FittedRougeL, lanes_of
from capgrade.measures.sbert import ONE as SBERT_ONE
from capgrade.measures.sbert import FittedSbert

LONGEST = 64  # tokens of a reference that one number's bits hold
QUERIES, TARGETS = 512, 2048  # of a product
STEPS = 2.0**40  # of whole numbers, between 0 and 1
F = TypeVar("F", FittedCider, FittedRougeL, FittedSbert, FittedImageText)


def on_device(fitted: Fitted, device: str) -> Fitted:
    """The measure with its dense blocks on `device`, "cuda" or "cuda:1"; itself for "cpu", and where it has no such
    form. Raises InputError when there is no such device."""
    return fitted if device == "cpu" else fitted.on_device(device_of(device))


class _OnDevice(Fitted, Generic[F]):
    """A fitted measure and a device; a form says what gives images' values for a chunk."""

    def __init__(self, fitted: F, device: torch.device) -> None:
        self.fitted: F = fitted
        self.device = device
        self.ref_ptr, self.refs, self.leave_out = fitted.ref_ptr, fitted.refs, fitted.leave_out

    @property
    def columns(self) -> int:
        return self.fitted.columns

    def filler(self, images: np.ndarray, start: int) -> Fill:
        values = self._values(images)

        def fill(first: int, last: int, out: np.ndarray) -> None:
            out[:, : last - first] = values(first, last).cpu().numpy()

        return fill

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.fitted.pairs(images, captions)

    def own_left_out(self, images: np.ndarray) -> np.ndarray:
        return self.fitted.own_left_out(images)

    @abstractmethod
    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        """float32 [images, captions], of caption rows first..last."""

    def _there(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=self.device)


class SbertOnDevice(_OnDevice[FittedSbert]):
    """A product in float32, folded over an image's references."""

    def __init__(self, fitted: FittedSbert, device: torch.device) -> None:
        super().__init__(fitted, device)
        self.embeddings = self._there(np.asarray(fitted.embeddings))

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        cosines_of = self._cosines(images)
        return lambda first, last: cosines_of(self.embeddings[first:last])

    def cells(self, images: np.ndarray, captions: np.ndarray) -> Tensor:
        """Cosines of any caption rows, float32 [len(images), len(captions)], on the device."""
        return self._cosines(images)(self.embeddings[self._there(captions)])

    def _cosines(self, images: np.ndarray) -> Callable[[Tensor], Tensor]:
        """With the vectors of some captions."""
        vectors, start = self.fitted.queries(images)
        queries, owner = self._there(vectors), self._there(np.repeat(np.arange(len(images)), np.diff(start)))

        def cosines_of(targets: Tensor) -> Tensor:
            cosines = _product(queries, targets)
            folded = cosines.new_full((len(images), len(targets)), -1.0)
            folded.scatter_reduce_(0, owner[:, None].expand(cosines.shape), cosines, "amax")
            return torch.where(folded > float(SBERT_ONE), 1.0, folded)

        return cosines_of


class ImageTextOnDevice(_OnDevice[FittedImageText]):
    """The product with pictures, and that with the references of RefCLIPScore."""

    def __init__(self, fitted: FittedImageText, device: torch.device) -> None:
        super().__init__(fitted, device)
        self.embeddings = self._there(np.asarray(fitted.embeddings))
        self.of_pictures = SbertOnDevice(fitted.of_pictures, device)
        self.of_references = SbertOnDevice(fitted.of_references, device) if fitted.form == REFCLIPSCORE else None

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        seen = self.of_pictures._cosines(images)
        said = None if self.of_references is None else self.of_references._values(images)

        def values(first: int, last: int) -> Tensor:
            references = None if said is None else said(first, last)
            found: Tensor = of_form(self.fitted.form, seen(self.embeddings[first:last]), references)
            return found

        return values


def _product(queries: Tensor, targets: Tensor) -> Tensor:
    """float32 [queries, targets] from unit vectors, in tiles of one shape: the order in which a device sums, and so the
    last bits, may depend on the shape."""
    out = queries.new_empty(len(queries), len(targets))
    for row in range(0, len(queries), QUERIES):
        some = _padded(queries[row : row + QUERIES], QUERIES)
        for column in range(0, len(targets), TARGETS):
            tile = out[row : row + QUERIES, column : column + TARGETS]
            product = some @ _padded(targets[column : column + TARGETS], TARGETS).T
            tile.copy_(product[: tile.shape[0], : tile.shape[1]])
    return out


def _padded(vectors: Tensor, rows: int) -> Tensor:
    return torch.nn.functional.pad(vectors, (0, 0, 0, rows - len(vectors)))


def _whole(values: Tensor) -> Tensor:
    """int64 steps of values of 0 to a few thousand: their sum is the same in any order."""
    return (values.double() * STEPS).round().long()


class CiderOnDevice(_OnDevice[FittedCider]):
    """Every posting of an image's terms in the chunk is one addition, frequent n-grams like others."""

    def __init__(self, fitted: FittedCider, device: torch.device) -> None:
        super().__init__(fitted, device)
        postings, (_, *ranked) = fitted.postings, fitted.ranked
        term = np.repeat(np.arange(len(postings.ptr) - 1), np.diff(postings.ptr))
        self.key = self._there(term * self.columns + postings.rank)  # ascending
        self.post_rank = self._there(postings.rank.astype(np.int64))
        self.rank, self.class_of_rank = (self._there(a.astype(np.int64)) for a in ranked[:2])
        self.norm_of_rank = self._there(np.asarray(ranked[2]))

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        folded = self.fitted.fold(images)
        start, used = folded.start[:-1], folded.used
        rows = np.concatenate([np.arange(a, a + n) for a, n in zip(start, used, strict=True)])
        owner, table = self._there(np.repeat(np.arange(len(images)), used)), self._there(folded.table[rows])
        beginning = self._there(folded.term[rows]) * self.columns
        order = self._there(folded.order[rows].astype(np.int64))

        def values(first: int, last: int) -> Tensor:
            begin = torch.searchsorted(self.key, beginning + first)
            size = torch.searchsorted(self.key, beginning + last) - begin
            row = torch.repeat_interleave(size)
            at = torch.arange(len(row), device=row.device) - (size.cumsum(0) - size - begin)[row]
            rank = self.post_rank[at]
            gain = table[row, self.class_of_rank[rank]] * self.norm_of_rank[order[row], rank]
            sums = torch.zeros(len(images), last - first, dtype=torch.int64, device=row.device)
            sums.view(-1).index_add_(0, owner[row] * (last - first) + rank - first, _whole(gain))
            found, full = sums[:, self.rank[first:last] - first] / STEPS, self.fitted.full
            return torch.where(found > full * (1 - 1e-6), full, found).float()

        return values


class RougeOnDevice(_OnDevice[FittedRougeL]):
    """The bit-parallel steps of `rouge`, a caption a row and a reference a column: token after token for all captions
    of a chunk, those past a caption's end changing nothing. Images with a reference of more than 64 tokens, which one
    number cannot hold, stay with the processor."""

    def __init__(self, fitted: FittedRougeL, device: torch.device) -> None:
        super().__init__(fitted, device)
        lengths = np.diff(fitted.texts.ptr)
        self.longest = np.maximum.reduceat(lengths[fitted.refs], fitted.ref_ptr[:-1])
        self.ones = self._there(np.bitwise_count(np.arange(1 << 16)).astype(np.float32))
        self.lengths = self._there(lengths.astype(np.float32))

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        few = np.flatnonzero(self.longest[images] <= LONGEST)
        some, fitted = images[few], self.fitted
        form = fitted.form(some)._replace(width=len(some))
        found = lanes_of(some, fitted.ref_ptr, fitted.refs, fitted.texts, form)
        used, rows, owner = np.flatnonzero(found.length), len(found.mask), found.long_image
        row = self._there(np.append(np.where(found.row < 0, rows, found.row), rows))
        both: list[tuple[np.ndarray, ...]] = [  # masks by word, lengths, images: of short references, of long ones
            (found.mask[:, used].astype(np.int32), found.length[used], used % max(len(some), 1)),
            (found.long_mask.view(np.int64).reshape(rows, len(owner)), found.long_length, owner),
        ]
        # The last row is of words that no reference has, and past the end.
        lanes = [tuple(map(self._there, (np.pad(mask, ((0, 1), (0, 0))), *of))) for mask, *of in both if mask.shape[1]]
        return lambda first, last: self._folded(images, few, row, lanes, first, last)

    def _folded(
        self, images: np.ndarray, few: np.ndarray, row: Tensor, lanes: list[tuple[Tensor, ...]], first: int, last: int
    ) -> Tensor:
        out = torch.zeros(last - first, len(few), device=self.device)
        best, recall, total = torch.zeros_like(out), torch.zeros_like(out), torch.zeros_like(out, dtype=torch.int64)
        n, beta2 = self.lengths[first:last, None], self.fitted.beta**2
        for mask, length, owner in lanes:
            common = self._common(mask, row, first, last)
            into = owner.expand(common.shape)
            best.scatter_reduce_(1, into, common, "amax")
            recall.scatter_reduce_(1, into, common / length, "amax")
            total.index_add_(1, owner, _whole((1 + beta2) * common / (n + beta2 * length)))
        if self.fitted.mean:
            sizes = np.diff(self.fitted.ref_ptr)[images[few]].astype(np.float32)
            f = (total / (self._there(sizes) * STEPS)).float()
        else:
            f = (1 + beta2) * best * recall / (n * recall + beta2 * best).clamp(min=1e-30)
            f = torch.where(f > float(ONE), 1.0, f)
        return self._with_others(images, few, f.clamp(max=1), first, last)

    def _common(self, mask: Tensor, local: Tensor, first: int, last: int) -> Tensor:
        """Length of the longest common subsequence of each caption and lane, float32 [captions, lanes]."""
        ptr = self.fitted.texts.ptr[first : last + 1]
        sizes, rows = np.diff(ptr), np.arange(last - first)
        words = np.full((len(rows), int(sizes.max(initial=0))), self.fitted.n_vocabulary)
        row = np.repeat(rows, sizes)
        words[row, np.arange(len(row)) - (ptr[:-1] - ptr[0])[row]] = self.fitted.texts.word[ptr[0] : ptr[-1]]
        steps = local[self._there(words)].T
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
        out[self._there(few)] = f.T
        values = np.empty((len(others), last - first), np.float32)
        self.fitted.filler(images[others], first)(first, last, values)
        out[self._there(others)] = self._there(values)
        return out
