"""CIDEr-D, ROUGE-L, Sentence-BERT and dual encoders on a GPU: blocks by torch, within 1e-5 of the
CPU's kernels.

The same fitted arrays go to the device once a worker, and the same kernels fold an image's
references. The device does the rest: the product, the updates of postings, the steps of the
subsequences. Other measures, and captions left out of their own references, stay with the
processor. A value does not depend on the block that it is in: products have one shape, and
what a device may add in any order are whole numbers.
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
from capgrade.measures.image_text import REFCLIPSCORE, FittedImageText, combine_cosines
from capgrade.measures.products import ONE
from capgrade.measures.rouge import ROUGE_ONE, FittedRougeL, lanes_of
from capgrade.measures.sbert import FittedSbert

_LONGEST = 64  # tokens of a reference that one number's bits hold
_QUERIES, TARGETS = 512, 2048  # of a product
_STEPS = 2.0**40  # of whole numbers, between 0 and 1
F = TypeVar("F", FittedCider, FittedRougeL, FittedSbert, FittedImageText)


def on_device(fitted: Fitted, device: str) -> Fitted:
    """The measure with its blocks on `device`, "cuda" or "cuda:1".

    Itself for "cpu", and where it has no such form. InputError when there is no such device.
    """
    return fitted if device == "cpu" else fitted.on_device(device_of(device))


class _OnDevice(Fitted, Generic[F]):
    """A fitted measure and a device. A subclass says how images' values are made there."""

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
        """A function that scores caption rows first..last: float32 [images, captions]."""

    def _to_device(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=self.device)


class SbertOnDevice(_OnDevice[FittedSbert]):
    """A product in float32, folded over an image's references."""

    def __init__(self, fitted: FittedSbert, device: torch.device) -> None:
        super().__init__(fitted, device)
        self.embeddings = self._to_device(np.asarray(fitted.embeddings))

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        cosines_of = self._cosines(images)
        return lambda first, last: cosines_of(self.embeddings[first:last])

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.tensor(images, captions).cpu().numpy()

    def tensor(self, images: np.ndarray, captions: np.ndarray) -> Tensor:
        """Cosines of any caption rows, float32 [len(images), len(captions)], on the device."""
        return self._cosines(images)(self.embeddings[self._to_device(captions)])

    def _cosines(self, images: np.ndarray) -> Callable[[Tensor], Tensor]:
        """A function from vectors of captions to their cosines with these images."""
        vectors, start = self.fitted.queries(images)
        queries = self._to_device(vectors)
        owner = self._to_device(np.repeat(np.arange(len(images)), np.diff(start)))

        def cosines_of(targets: Tensor) -> Tensor:
            cosines = _product(queries, targets)
            folded = cosines.new_full((len(images), len(targets)), -1.0)
            folded.scatter_reduce_(0, owner[:, None].expand(cosines.shape), cosines, "amax")
            return torch.where(folded > float(ONE), 1.0, folded)

        return cosines_of


class ImageTextOnDevice(_OnDevice[FittedImageText]):
    """The product with pictures, and that with the references of RefCLIPScore."""

    def __init__(self, fitted: FittedImageText, device: torch.device) -> None:
        super().__init__(fitted, device)
        self.embeddings = self._to_device(np.asarray(fitted.embeddings))
        self.of_pictures = SbertOnDevice(fitted.of_pictures, device)
        self.of_references = (
            SbertOnDevice(fitted.of_references, device) if fitted.form == REFCLIPSCORE else None
        )

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        picture_cosines = self.of_pictures._cosines(images)
        reference_cosines = (
            None if self.of_references is None else self.of_references._values(images)
        )

        def values(first: int, last: int) -> Tensor:
            references = None if reference_cosines is None else reference_cosines(first, last)
            pictures = picture_cosines(self.embeddings[first:last])
            combined: Tensor = combine_cosines(self.fitted.form, pictures, references)
            return combined

        return values


def _product(queries: Tensor, targets: Tensor) -> Tensor:
    """float32 [queries, targets] from unit vectors, in tiles of one shape.

    The order in which a device sums, and so the last bits, may depend on the shape.
    """
    out = queries.new_empty(len(queries), len(targets))
    for row in range(0, len(queries), _QUERIES):
        tile_queries = _padded(queries[row : row + _QUERIES], _QUERIES)
        for column in range(0, len(targets), TARGETS):
            tile = out[row : row + _QUERIES, column : column + TARGETS]
            product = tile_queries @ _padded(targets[column : column + TARGETS], TARGETS).T
            tile.copy_(product[: tile.shape[0], : tile.shape[1]])
    return out


def _padded(vectors: Tensor, rows: int) -> Tensor:
    return torch.nn.functional.pad(vectors, (0, 0, 0, rows - len(vectors)))


def _to_steps(values: Tensor) -> Tensor:
    """Values of 0 to a few thousand as int64 steps, whose sum is the same in any order."""
    return (values.double() * _STEPS).round().long()


class CiderOnDevice(_OnDevice[FittedCider]):
    """Adds up every posting of an image's terms in the chunk, frequent n-grams like others."""

    def __init__(self, fitted: FittedCider, device: torch.device) -> None:
        super().__init__(fitted, device)
        postings, (_, *ranked) = fitted.postings, fitted.ranked
        term = np.repeat(np.arange(len(postings.ptr) - 1), np.diff(postings.ptr))
        self.key = self._to_device(term * self.columns + postings.rank)  # ascending
        self.post_rank = self._to_device(postings.rank.astype(np.int64))
        self.rank, self.class_of_rank = (self._to_device(a.astype(np.int64)) for a in ranked[:2])
        self.norm_of_rank = self._to_device(np.asarray(ranked[2]))

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        folded, _, _ = self.fitted.fold(images, 0)
        start, used = folded.start[:-1], folded.used
        rows = np.concatenate([np.arange(a, a + n) for a, n in zip(start, used, strict=True)])
        owner = self._to_device(np.repeat(np.arange(len(images)), used))
        table = self._to_device(folded.table[rows])
        beginning = self._to_device(folded.term[rows]) * self.columns
        order = self._to_device(folded.order[rows].astype(np.int64))

        def values(first: int, last: int) -> Tensor:
            begin = torch.searchsorted(self.key, beginning + first)
            size = torch.searchsorted(self.key, beginning + last) - begin
            row = torch.repeat_interleave(size)
            at = torch.arange(len(row), device=row.device) - (size.cumsum(0) - size - begin)[row]
            rank = self.post_rank[at]
            gain = table[row, self.class_of_rank[rank]] * self.norm_of_rank[order[row], rank]
            sums = torch.zeros(len(images), last - first, dtype=torch.int64, device=row.device)
            sums.view(-1).index_add_(0, owner[row] * (last - first) + rank - first, _to_steps(gain))
            score, full = sums[:, self.rank[first:last] - first] / _STEPS, self.fitted.full
            return torch.where(score > full * (1 - 1e-6), full, score).float()

        return values


class RougeOnDevice(_OnDevice[FittedRougeL]):
    """The bit-parallel steps of `rouge`, a caption a row and a reference a column.

    All captions of a chunk take a step together; those that have ended are not changed. Images with
    a reference of more than 64 tokens, which one number cannot hold, stay with the processor.
    """

    def __init__(self, fitted: FittedRougeL, device: torch.device) -> None:
        super().__init__(fitted, device)
        lengths = np.diff(fitted.texts.ptr)
        self.longest = np.maximum.reduceat(lengths[fitted.refs], fitted.ref_ptr[:-1])
        self.ones = self._to_device(np.bitwise_count(np.arange(1 << 16)).astype(np.float32))
        self.lengths = self._to_device(lengths.astype(np.float32))

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        short_rows = np.flatnonzero(self.longest[images] <= _LONGEST)
        short, fitted = images[short_rows], self.fitted
        form = fitted.form(short)._replace(width=len(short))
        host = lanes_of(short, fitted.ref_ptr, fitted.refs, fitted.texts, form)
        used, rows, owner = np.flatnonzero(host.length), len(host.mask), host.long_image
        row = self._to_device(np.append(np.where(host.row < 0, rows, host.row), rows))
        # Masks by word, lengths and images, of short references and of long ones.
        both: list[tuple[np.ndarray, ...]] = [
            (host.mask[:, used].astype(np.int32), host.length[used], used % max(len(short), 1)),
            (host.long_mask.view(np.int64).reshape(rows, len(owner)), host.long_length, owner),
        ]
        # The last row is of words that no reference has, and past the end.
        lanes = [
            tuple(map(self._to_device, (np.pad(mask, ((0, 1), (0, 0))), *of)))
            for mask, *of in both
            if mask.shape[1]
        ]
        return lambda first, last: self._folded(images, short_rows, row, lanes, first, last)

    def _folded(
        self,
        images: np.ndarray,
        short_rows: np.ndarray,
        row: Tensor,
        lanes: list[tuple[Tensor, ...]],
        first: int,
        last: int,
    ) -> Tensor:
        out = torch.zeros(last - first, len(short_rows), device=self.device)
        best = torch.zeros_like(out)
        recall = torch.zeros_like(out)
        total = torch.zeros_like(out, dtype=torch.int64)
        n, beta2 = self.lengths[first:last, None], self.fitted.beta**2
        for mask, length, owner in lanes:
            common = self._common(mask, row, first, last)
            column = owner.expand(common.shape)
            best.scatter_reduce_(1, column, common, "amax")
            recall.scatter_reduce_(1, column, common / length, "amax")
            total.index_add_(1, owner, _to_steps((1 + beta2) * common / (n + beta2 * length)))
        if self.fitted.mean:
            sizes = np.diff(self.fitted.ref_ptr)[images[short_rows]].astype(np.float32)
            f = (total / (self._to_device(sizes) * _STEPS)).float()
        else:
            f = (1 + beta2) * best * recall / (n * recall + beta2 * best).clamp(min=1e-30)
            f = torch.where(f > float(ROUGE_ONE), 1.0, f)
        return self._with_others(images, short_rows, f.clamp(max=1), first, last)

    def _common(self, mask: Tensor, local: Tensor, first: int, last: int) -> Tensor:
        """float32 [captions, lanes]: length of the longest common subsequence."""
        ptr = self.fitted.texts.ptr[first : last + 1]
        sizes, rows = np.diff(ptr), np.arange(last - first)
        words = np.full((len(rows), int(sizes.max(initial=0))), self.fitted.n_vocabulary)
        row = np.repeat(rows, sizes)
        words[row, np.arange(len(row)) - (ptr[:-1] - ptr[0])[row]] = self.fitted.texts.word[
            ptr[0] : ptr[-1]
        ]
        steps = local[self._to_device(words)].T
        state = torch.full((len(rows), mask.shape[1]), -1, dtype=mask.dtype, device=self.device)
        for step in steps:
            shared = state & mask[step.long()]
            state = (state + shared) | (state - shared)
        zeros = ~state
        quarters = range(0, torch.iinfo(mask.dtype).bits, 16)
        return sum(
            (self.ones[(zeros >> shift & 0xFFFF).long()] for shift in quarters),
            torch.zeros((), device=self.device),
        )

    def _with_others(
        self, images: np.ndarray, short_rows: np.ndarray, f: Tensor, first: int, last: int
    ) -> Tensor:
        if len(short_rows) == len(images):
            return f.T
        others = np.setdiff1d(np.arange(len(images)), short_rows)
        out = torch.empty(len(images), last - first, device=self.device)
        out[self._to_device(short_rows)] = f.T
        values = np.empty((len(others), last - first), np.float32)
        self.fitted.filler(images[others], first)(first, last, values)
        out[self._to_device(others)] = self._to_device(values)
        return out
