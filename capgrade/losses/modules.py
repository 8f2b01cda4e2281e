"""Losses as modules: options are kept, a temperature and a bias learned; and graded ones in the
loops of open_clip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from capgrade.losses.base import ScoredBatch, ScoreMatrix, gather
from capgrade.losses.declared import LOSSES, convert_options
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.labels import Ids, Labels, Unknown

OF_OPEN_CLIP = {
    "local_loss",
    "gather_with_grad",
    "cache_labels",
    "rank",
    "use_horovod",
    "dist_impl",
}


class LossModule(torch.nn.Module):
    """A loss with its options kept: those of `LEARNED` as parameters, unless `learn` is False, a
    temperature as its logarithm. Options, given by name, and arguments are those of the function,
    InputError too."""

    NAME: ClassVar[str]
    LEARNED: ClassVar[tuple[str, ...]] = ("temperature",)

    def __init__(self, *unnamed: Any, **options: Any) -> None:
        super().__init__()
        if unnamed:
            problem = f"{type(self).__name__}({unnamed[0]!r}): an option without its name"
            raise InputError(problem, remedy=f"write {next(iter(LOSSES[self.NAME].defaults))}=...")
        learn = options.pop("learn", True) if self.LEARNED else False
        self.options = {**LOSSES[self.NAME].defaults, **convert_options(self.NAME, options)}
        start = {name: torch.tensor(float(self.options.pop(name))) for name in self.LEARNED}
        if "temperature" in start:
            self.log_temperature = torch.nn.Parameter(
                start.pop("temperature").log(), requires_grad=learn
            )
        for name, value in start.items():
            self.register_parameter(name, torch.nn.Parameter(value, requires_grad=learn))

    @property
    def temperature(self) -> Tensor:
        return self.log_temperature.exp()

    def forward(
        self, scores: ScoreMatrix, *labels: Tensor | None, **named: Tensor | None
    ) -> Tensor:
        """What follows the scores is as the function has it: relevance, own, known, ..."""
        learned = {name: getattr(self, name) for name in self.LEARNED}
        return LOSSES[self.NAME].function(scores, *labels, **named, **self.options, **learned)


class Sam(LossModule):
    """`sam`, nothing learned: `Sam(tau=3.0)(scores, relevance, own=None, known=None)`.

    >>> Sam(tau=1.0)(torch.eye(2), torch.eye(2)).shape
    torch.Size([])
    """

    NAME, LEARNED = "sam", ()


class InfoNCE(LossModule):
    """`info_nce` with a temperature that is learned: `InfoNCE(temperature=0.07)(scores, own=None)`.

    >>> [name for name, _ in InfoNCE().named_parameters()]
    ['log_temperature']
    """

    NAME = "info_nce"


class SoftInfoNCE(LossModule):
    """`soft_info_nce` with a temperature that is learned; the targets' `softness` is not.

    >>> SoftInfoNCE(softness=0.2)(torch.eye(2), torch.eye(2)).requires_grad
    True
    """

    NAME = "soft_info_nce"


class Sigmoid(LossModule):
    """`sigmoid` with a temperature and a bias that are learned, as SigLIP has them.

    >>> sorted(name for name, _ in Sigmoid().named_parameters())
    ['bias', 'log_temperature']
    """

    NAME, LEARNED = "sigmoid", ("temperature", "bias")


class GradedClipLoss(torch.nn.Module):
    """open_clip's `ClipLoss` with the targets of `soft_info_nce`, whose option `softness` it takes;
    the logits have the model's own scale.

    labels: with captions, whose ids or rows are the keys of pairs: the image of a pair is that of
    its caption. measure and unknown: as of `Labels.block`. What open_clip gives its own loss may be
    given too. On several processes the loss is that of the whole batch, with the gradients of
    ClipLoss's `gather_with_grad`; on each process it is the mean of what `local_loss` has on all.
    With targets of 1 for own pairs, 0 for others, and a softness of 0.05 it is ClipLoss.

    >>> loss = GradedClipLoss(Labels.load("dataset"), "sbert", softness=0.1)
    >>> images, texts = torch.nn.functional.normalize(torch.rand(2, 4, 8), dim=2)
    >>> loss(images, texts, torch.tensor(100.0), keys=[0, 5, 10, 15], output_dict=True).keys()
    dict_keys(['contrastive_loss'])
    """

    NAME = "soft_info_nce"
    # Options that the model's logits have already, so that the loss must not apply them again.
    LOGITS: ClassVar[dict[str, float]] = {"temperature": 1.0}

    def __init__(
        self,
        labels: Labels,
        measure: str | None = None,
        *,
        unknown: Unknown = "mask",
        world_size: int = 1,
        **options: Any,
    ) -> None:
        super().__init__()
        if options.get("use_horovod"):
            raise InputError(
                "vectors are gathered by torch.distributed", remedy="train without horovod"
            )
        own = {name: value for name, value in options.items() if name not in OF_OPEN_CLIP}
        if of_model := own.keys() & self.LOGITS.keys():
            raise InputError(
                f"the {min(of_model)} is the model's",
                remedy="leave it out: the logits have it already",
            )
        self.options = {**convert_options(self.NAME, own), **self.LOGITS}
        self.labels, self.measure, self.unknown = labels, labels.choose_measure(measure), unknown
        self.world_size, self.owner = world_size, torch.from_numpy(labels.owner)
        # The captions of the batches that `keyed` gave last.
        self._rows = torch.empty(0, dtype=torch.int64)
        self._fetched = 0  # how many of them came since the loss was last called
        self._asked = False  # in this epoch

    def keyed(self, batches: Any) -> KeyedBatches:
        """A loader for open_clip's loop, of one whose batches hold the captions' keys beside them:
        (images, texts, keys), or for open_clip 4 {"image": ..., "text": ..., "keys": ...}. It takes
        the keys out and tells them to the loss; so batches may be accumulated (`--accum-freq`)."""
        return KeyedBatches(batches, self)

    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        logit_bias: Tensor | None = None,
        output_dict: bool = False,
        *,
        keys: Ids | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """float32 scalar, of features [B, D] of pairs; `keys` are their captions, by default those
        of the last B pairs that `keyed` gave. InputError without keys, for a loop that fetches
        batches before it needs them, and where world_size processes have not been started."""
        if self.world_size > 1 and not (
            dist.is_initialized() and dist.get_world_size() == self.world_size
        ):
            raise InputError(
                f"no {self.world_size} processes", remedy="start them: torch.distributed"
            )
        self._asked = True
        if keys is None:
            # It is 0 where accumulation calls the loss again for the same pairs.
            if self._fetched not in (0, len(image_features)):
                problem = (
                    f"{self._fetched} pairs were fetched before the loss of {len(image_features)}"
                )
                raise InputError(
                    problem, remedy="fetch a batch when the one before is learnt from, or give keys"
                )
            self._rows, self._fetched = self._rows[-len(image_features) :], 0
            rows = self._rows
        else:
            rows, self._fetched = torch.from_numpy(self.labels.rows_of_captions(keys)), 0
        if len(rows) != len(image_features):
            problem = f"{len(image_features)} pairs, and the captions of {len(rows)} are known"
            raise InputError(
                problem, remedy="train on loss.keyed(loader) of (images, texts, keys), or give keys"
            )
        images, texts, device = gather(image_features), gather(text_features), image_features.device
        rows = gather(rows.to(device)).cpu()
        owner = self.owner[rows]
        logits = logit_scale * images @ texts.T
        if logit_bias is not None:
            logits = logits + logit_bias
        block = self.labels.block(owner, rows, self.measure, device, self.unknown)
        own = (owner[:, None] == owner[None, :]).to(device)
        batch = ScoredBatch(logits, own, *block, in_order=True)
        loss = LOSSES[self.NAME].function(batch, **self.options)
        return {"contrastive_loss": loss} if output_dict else loss


class GradedSigLipLoss(GradedClipLoss):
    """open_clip's `SigLipLoss` with the targets of `sigmoid`, whose options `low` and `high` it
    takes; the rest as `GradedClipLoss`. On each process it is the mean of what SigLipLoss has on
    all.

    >>> loss = GradedSigLipLoss(Labels.load("dataset"), "cider", high=10.0)
    >>> images, texts = torch.nn.functional.normalize(torch.rand(2, 4, 8), dim=2)
    >>> loss(images, texts, torch.tensor(10.0), torch.tensor(-10.0), keys=[0, 5, 10, 15]).shape
    torch.Size([])
    """

    NAME = "sigmoid"
    LOGITS: ClassVar[dict[str, float]] = {"temperature": 1.0, "bias": 0.0}


def _apart(batch: Any) -> tuple[list[Any] | dict[str, Any], Ids]:
    """What the loop is given, and the keys."""
    if not isinstance(batch, Mapping):
        *given, keys = batch
        return given, keys
    if "keys" not in batch:
        problem = f"a batch of {', '.join(map(str, batch))} has no keys"
        remedy = 'add the ids of its captions to each batch, as "keys"'
        raise InputError(problem, remedy=remedy)
    return {name: value for name, value in batch.items() if name != "keys"}, batch["keys"]


@dataclass
class KeyedBatches:
    """What `GradedClipLoss.keyed` gives; its other attributes are those of the loader.

    InputError at the end of an epoch whose batches were fetched while the loss was never asked: the
    loop then learns by a loss of its own.
    """

    loader: Any
    loss: GradedClipLoss

    def __iter__(self) -> Iterator[list[Any] | dict[str, Any]]:
        self.loss._fetched = 0  # what an epoch leaves over is not learnt from
        self.loss._asked, fetched = False, 0
        for found in self.loader:
            batch, keys = _apart(found)
            fetched += 1
            rows = torch.from_numpy(self.loss.labels.rows_of_captions(keys))
            self.loss._rows = torch.cat([self.loss._rows, rows])
            self.loss._fetched += len(rows)
            yield batch
        if fetched and not self.loss._asked:
            problem = f"{fetched} batches were fetched, and this loss was never asked"
            remedy = "hand it to the loop: CLIPTask(model, loss=loss) of open_clip 4,"
            remedy += " main.create_loss = lambda args: loss before"
            raise InputError(problem, remedy=remedy)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not there yet, while a copy is made
            raise AttributeError(name)
        return getattr(self.loader, name)
