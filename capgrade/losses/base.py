"""What a loss sees of a batch, as a ScoredBatch or as tensors, what losses share, and the batch of
all processes on each (`gather`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor

from capgrade.schemas.errors import InputError

# An option that a formula divides or scales by.
Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LossForm = Literal["paper", "authors"]


@dataclass(frozen=True)
class ScoredBatch:
    """B images and C captions scored against each other, with the pairs that a loss sums over.

    `in_order`: pair i is row i and column i, and `own` may name further captions of an image. So
    are the trainer's batches, gathered over its processes, and so is a square batch whose `own`
    holds the whole diagonal. Otherwise the pairs are the True cells of `own`, in row order: an
    image may have several captions, and what belongs to nothing is a candidate only. What nobody
    asked for is None. Raises InputError when shapes do not fit each other, and for a batch without
    pairs.
    """

    scores: Tensor  # float [B, C], similarity of image i and caption j
    own: Tensor  # bool [B, C], caption j is one of image i's
    # float [B, C], of caption j to image i, or to what `train.relevance_of` names of the image.
    relevance: Tensor | None = None
    known: Tensor | None = None  # bool [B, C], where `relevance` is known; None: everywhere
    # float [B, C], how many pairs a known one of shards stands for; None: 1.
    weights: Tensor | None = None
    # float [P, D], a vector for the image of each pair, of models that give one.
    images: Tensor | None = None
    captions: Tensor | None = None  # float [P, D]
    image_logits: Tensor | None = None  # float [P, K], of models with a classifier
    caption_logits: Tensor | None = None
    labels: Tensor | None = None  # int64 [P], the class of each pair: its image
    # Scores of parts of the model by name, float [B, C].
    more: Mapping[str, Tensor] = field(default_factory=dict)
    # Losses that the model makes itself by name, scalars.
    own_losses: Mapping[str, Tensor] = field(default_factory=dict)
    in_order: bool | None = None  # None: read from `own`, which waits for the device
    # Each loss adds int64 [2] on the device: how many hinges are active, and how many there are.
    hinges: list[Tensor] | None = None

    def __post_init__(self) -> None:
        self._fit(("own", "relevance", "known", "weights"), tuple(self.scores.shape))
        pairs = len(self.at[0])
        for names in (("images", "captions"), ("image_logits", "caption_logits")):
            first = getattr(self, names[0])
            self._fit(names, (pairs, None if first is None else first.shape[-1]))
        self._fit(("labels",), (pairs,))
        if not pairs:
            raise InputError(
                "a batch without pairs", remedy="mark each image's own captions in `own`"
            )

    def count_hinges(self, costs: Tensor, among: Tensor | None = None) -> Tensor:
        """The costs of hinges, unchanged, after counting them into `hinges`. `among`, bool of their
        shape, says which of them are hinges; the others are 0."""
        if self.hinges is not None:
            active = costs.detach().count_nonzero()
            number = (
                torch.full_like(active, costs.numel()) if among is None else among.count_nonzero()
            )
            self.hinges.append(torch.stack([active, number]))
        return costs

    def _fit(self, names: tuple[str, ...], shape: tuple[int | None, ...]) -> None:
        for name in names:
            tensor = getattr(self, name)
            if tensor is not None and tuple(tensor.shape) != shape:
                size = (
                    f"{shape[0]} pairs"
                    if len(self.scores) == shape[0]
                    else f"the {list(self.scores.shape)} scores"
                )
                problem = (
                    f"{name} of a batch is {list(tensor.shape)}, and {list(shape)} fits {size}"
                )
                raise InputError(
                    problem, remedy="give one row for each image, one column for each caption"
                )

    @cached_property
    def diagonal(self) -> bool:
        """Whether pair i is row i and column i."""
        rows, columns = self.scores.shape
        if self.in_order is None:
            return rows == columns and bool(self.own.diagonal().all())
        return self.in_order

    @cached_property
    def at(self) -> tuple[Tensor, Tensor]:
        """Rows and columns of the pairs, int64 [P] each."""
        if self.diagonal:
            number = torch.arange(len(self.scores), device=self.scores.device)
            return number, number
        pairs = self.own.nonzero()
        return pairs[:, 0], pairs[:, 1]


# The first argument of a loss; a ScoredBatch brings the other tensors.
ScoreMatrix = Tensor | ScoredBatch


def batch_of(
    name: str,
    scores: ScoreMatrix,
    relevance: Tensor | None = None,
    own: Tensor | None = None,
    known: Tensor | None = None,
    weights: Tensor | None = None,
    counts: bool = False,
) -> ScoredBatch:
    """The batch that a loss was given; `counts` says that it is a mean or sum over all candidates.

    InputError for tensors that are none, do not fit or lie elsewhere, for `known` without the
    weights of a loss that counts, and for rows or columns of this process alone among those of
    several.
    """
    tensors = {"relevance": relevance, "own": own, "known": known, "weights": weights}
    if isinstance(scores, ScoredBatch):
        for key, value in tensors.items():
            if value is not None:
                problem = f"loss '{name}' of a ScoredBatch is given {key} too"
                raise InputError(problem, remedy="put it into the batch")
        return scores
    for key, value in {"scores": scores, **tensors}.items():
        if value is not None:
            _check(key, value, scores)
    if counts and relevance is not None and known is not None and weights is None:
        problem = (
            f"loss '{name}' counts how many pairs each known one stands for, and weights are not"
            " given"
        )
        raise InputError(
            problem, remedy="give those of labels.block(...), or known.float() to count each once"
        )
    pairs, labels = _pairs(scores, own), None if relevance is None else relevance.detach()
    if labels is not None and known is not None:  # unknown cells may hold anything, NaN too
        labels = labels.where(known | pairs, 0)
        weights = None if weights is None else weights.detach().where(known, 0)
    return ScoredBatch(
        scores, pairs, labels, known, weights, in_order=None if own is not None else True
    )


def _check(name: str, value: Tensor, scores: Tensor) -> None:
    """InputError for what is no tensor of the right kind beside the scores."""
    if not isinstance(value, Tensor):
        problem = f"{name} is {type(value).__name__}, not a torch tensor"
        raise InputError(
            problem, remedy="torch.from_numpy(...), or labels.block(..., device=scores.device)"
        )
    if value.ndim != 2 or value.shape != scores.shape:
        raise InputError(
            f"{name} is {list(value.shape)}, scores {list(scores.shape)}",
            remedy="give matrices [B, C]",
        )
    if value.device != scores.device:
        raise InputError(
            f"{name} is on {value.device}, scores on {scores.device}",
            remedy=f"{name}.to(scores.device)",
        )
    if (value.dtype == torch.bool) != (name in ("own", "known")) or value.is_complex():
        wanted = "bool" if name in ("own", "known") else "real"
        raise InputError(f"{name} is {value.dtype}", remedy=f"give {wanted} values")


def _pairs(scores: Tensor, own: Tensor | None) -> Tensor:
    """Which captions are whose. InputError where nothing says so, and where one side is of this
    process alone and the other of all: then just this process's share of the other side, the
    `rank`-th, belongs to something. On the first process that may be a batch with further negatives
    behind its pairs, so the other processes stop the run."""
    rows, columns = scores.shape
    if own is None:
        if rows == columns:
            return torch.eye(rows, dtype=torch.bool, device=scores.device)
        problem = f"{rows} images and {columns} captions, and nothing says which belong together"
        raise InputError(problem, remedy="give own, bool [B, C]")
    if (
        rows != columns
        and dist.is_available()
        and dist.is_initialized()
        and (rank := dist.get_rank())
    ):
        for axis, what in ((0, "captions"), (1, "images")):
            share, rest = divmod(own.shape[1 - axis], world := dist.get_world_size())
            if not rest and share:
                used = own.any(dim=axis)
                if bool(used[rank * share :][:share].all()) and int(used.sum()) == share:
                    problem = (
                        f"{share * world} {what}, and only those of process {rank} of {world}"
                        " belong to something"
                    )
                    raise InputError(
                        problem, remedy="give both sides of all processes: capgrade.losses.gather"
                    )
    return own


@dataclass(frozen=True)
class Direction:
    """One direction of a batch: P queries in rows, one for each pair, over N candidates; `at` is
    the own one."""

    at: Tensor  # int64 [P]
    scores: Tensor  # float32 [P, N]
    own: Tensor  # bool [P, N]
    relevance: Tensor  # [P, N]; scores where the batch has none
    known: Tensor  # bool [P, N]
    weights: Tensor  # [P, N]

    @property
    def counts(self) -> Tensor:
        """float [P, N]: what each candidate counts in a mean over candidates, 0 where its relevance
        is not known. With the weights of shards such a mean is expected to be that over all
        candidates."""
        return self.weights.float() * self.known

    def paired(self, values: Tensor) -> Tensor:
        """The values of the pairs, [P], from values [P, N]."""
        return values.gather(1, self.at[:, None])[:, 0]

    @property
    def itself(self) -> Tensor:
        """bool [P, N]: True at the pair's own candidate."""
        return torch.zeros_like(self.own).scatter(1, self.at[:, None], True)


def require_tensors(batch: ScoredBatch, *names: str) -> list[Tensor]:
    """These tensors of a batch. InputError for one it lacks: the trainer gives what the model
    has."""
    tensors = []
    for name in names:
        tensors.append(getattr(batch, name))
        if tensors[-1] is None:
            of_model = "choose a model that gives it: single_stream gives vectors and logits"
            remedy = "give it: labels.block(...), float [B, C]" if name == "relevance" else of_model
            raise InputError(f"a loss asks for `{name}`, which this batch lacks", remedy=remedy)
    return tensors


def require_all_known(batch: ScoredBatch, loss: str) -> Tensor:
    """Relevance [B, B] for the authors' forms, which have no place for an unknown one; InputError
    for sampled ones."""
    (relevance,) = require_tensors(batch, "relevance")
    if batch.known is not None:
        problem = f"loss '{loss}', form authors, needs the relevance of every pair"
        raise InputError(
            problem, remedy="set train.relevance=exact or train.unknown=estimate, or form: paper"
        )
    if not batch.diagonal:
        problem = (
            f"loss '{loss}', form authors, is written for square batches in which pair i is row i"
            " and column i"
        )
        raise InputError(
            problem,
            remedy="give one caption for each image, in the order of the images, or form: paper",
        )
    return relevance


def both_directions(batch: ScoredBatch, *needed: str) -> tuple[Direction, Direction]:
    """Images over captions, and captions over images: the rows (columns) of the pairs. Every
    relevance is known, and counts once, where the batch does not say otherwise. InputError where it
    lacks what is `needed`."""
    require_tensors(batch, *needed)
    rows, columns = batch.at
    ones = torch.ones_like(batch.own)
    known = ones if batch.known is None else batch.known
    weights = ones if batch.weights is None else batch.weights
    relevance = batch.scores if batch.relevance is None else batch.relevance
    cells = [batch.scores.float(), batch.own, relevance, known, weights]
    images, captions = cells, [one.T for one in cells]
    if not batch.diagonal:
        images, captions = [one[rows] for one in images], [one[columns] for one in captions]
    return Direction(columns, *images), Direction(rows, *captions)


def zero_of(batch: ScoredBatch) -> Tensor:
    """A sum of no terms: float32, on the batch's device. NaN where relevance that is known holds
    NaN: comparisons pass over it, and to ask for it would wait for the device."""
    if batch.relevance is None:
        return batch.scores.new_zeros((), dtype=torch.float32)
    known = (
        batch.relevance
        if batch.known is None
        else batch.relevance.where(batch.known | batch.own, 0)
    )
    return 0 * known.detach().sum(dtype=torch.float32)


# PyTorch's own function is private in some versions and deprecated in others.
class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        # A copy, because autograd may give the same gradient to other functions.
        total = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size())[dist.get_rank()]


def gather(x: Tensor) -> Tensor:
    """The rows of all processes of `torch.distributed` on each, [n, ...] -> [world n, ...] in order
    of rank; with one process, or none started, `x` itself. Of any dtype: vectors, masks and the
    numbers of images are gathered alike.

    Every process then computes the same loss of the whole batch. The gradient that flows back into
    `x` is the sum over processes, so the mean over processes of parameters' gradients, as
    DistributedDataParallel takes it, is the gradient of that loss. InputError where processes have
    different numbers of rows, as in a last batch that is not dropped; not checked on a GPU, for
    which it would wait.

    >>> gather(torch.eye(2)).shape
    torch.Size([2, 2])
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return x
    if x.device.type == "cpu":
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(sizes, torch.tensor([len(x)]))
        if len(different := {int(size) for size in sizes}) > 1:
            problem = f"processes have {min(different)} to {max(different)} rows to gather"
            raise InputError(problem, remedy="give each as many: drop the last batch of an epoch")
    if x.dtype == torch.bool:  # no backend gathers bool
        return _Gather.apply(x.to(torch.uint8).contiguous()).bool()
    return _Gather.apply(x.contiguous())
