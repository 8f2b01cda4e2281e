"""A loss that is no longer a number: the run stops, and what it stopped at is kept."""

from __future__ import annotations

import json
from pathlib import Path

from torch import Tensor

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
from capgrade.trainer.data.pairs import Batch
from capgrade.trainer.fit.history import History
from capgrade.trainer.fit.names import UNFIT


def stop_at_nan(loss: Tensor, batch: Batch, captions: Captions, history: History, out: Path) -> None:
    """InputError when the loss is NaN or infinite; the batch's image and caption ids go to unfit_batch.json."""
    if loss.isfinite():
        return
    rows = batch.caption_rows.tolist()
    ids = {"captions": [captions.caption_ids[r] for r in rows]}
    ids["images"] = [captions.image_ids[i] for i in batch.image_numbers.tolist()]
    found = {"step": len(history.steps), "epoch": history.epoch + 1, "loss": str(loss.item()), **ids}
    write_text(out / UNFIT, json.dumps(found, indent=2) + "\n")
    problem = f"the loss is {loss.item()} at step {found['step']}, epoch {found['epoch']}"
    remedy = "lower train.lr or the weight of a loss; the batch is in this file"
    raise InputError(problem, file=out / UNFIT, remedy=remedy)
