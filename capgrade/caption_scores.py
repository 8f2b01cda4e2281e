"""`capgrade.CaptionScores`: scores of captions gathered batch by batch, for validation loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from capgrade.measures.scores.frequencies import Frequencies
from capgrade.measures.scores.given import Captions, given
from capgrade.measures.scores.measures import DEFAULT
from capgrade.schemas.errors import InputError
from capgrade.scoring import Scores, score


class CaptionScores:
    """`update` with each batch, `compute` at the end, `reset` before the next epoch: as torchmetrics' metrics.

    measures, tokenizer, frequencies: as of `capgrade.score`. Several processes: `merge_state` what the others gathered
    (`torch.distributed.all_gather_object` carries the object as it is).

    >>> meter = CaptionScores(measures=["rouge_l"])
    >>> meter.update(["a dog runs"], [["a dog is running", "the dog runs fast"]])
    >>> meter.update(["two men talk"], [["two men are talking"]])
    >>> round(meter.compute().corpus["rouge_l"], 4)
    0.5571
    """

    def __init__(
        self,
        measures: Sequence[str] = DEFAULT,
        *,
        tokenizer: str = "ptb_py",
        frequencies: Frequencies | str | Path | None = None,
    ) -> None:
        self.measures, self.tokenizer, self.frequencies = measures, tokenizer, frequencies
        self.reset()

    def reset(self) -> None:
        """Forget every batch."""
        self._ids: list[object] = []  # None of a list's images, which are numbered at the end
        self._candidates: list[str | Sequence[str]] = []
        self._references: list[str | Sequence[str]] = []

    def update(self, candidates: Captions, references: Captions) -> None:
        """Add a batch: two dicts (id -> captions), or two lists in one order.

        InputError as of `capgrade.score`, and for an id of an earlier batch; a batch with an error is not added.
        """
        given(candidates, references)
        if isinstance(candidates, Mapping) and isinstance(references, Mapping):
            new = list(candidates)
            self._add(new, [candidates[i] for i in new], [references[i] for i in new])
        else:
            self._add([None] * len(candidates), list(candidates), list(references))

    def merge_state(self, other: CaptionScores) -> None:
        """Add what another has gathered; images of lists, which have no ids, are numbered through.

        InputError for an id that both have; then nothing is added.
        """
        self._add(other._ids, other._candidates, other._references)

    def _add(self, ids: list, candidates: list, references: list) -> None:
        known = set(self._ids)
        again = [image for image in ids if image is not None and image in known]
        if again:
            raise InputError(f"image {again[0]!r} was in an earlier batch", remedy="reset() before another epoch")
        self._ids += ids
        self._candidates += candidates
        self._references += references

    def compute(self) -> Scores:
        """Scores of everything since `reset`. InputError where nothing was added, or an id is the number of an image
        that was given in a list."""
        ids = [k if image is None else image for k, image in enumerate(self._ids)]
        if len(set(ids)) < len(ids):
            remedy = "give dicts everywhere, or lists everywhere"
            raise InputError("an id is also the number of an image in a list", remedy=remedy)
        candidates = dict(zip(ids, self._candidates, strict=True))
        references = dict(zip(ids, self._references, strict=True))
        return score(candidates, references, self.measures, tokenizer=self.tokenizer, frequencies=self.frequencies)
