"""Stage: captions, region features and sampled relevance in; a trained retrieval model out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn.utils import clip_grad_norm_

from schemas.errors import InputError
from schemas.files import remove_temporaries
from schemas.output import output_folder
from schemas.params import MeasuresParams, TrainParams
from schemas.progress import progress
from trainer.board import write_epoch
from trainer.checkpoint import finish, finished, load_state, save_config, save_model
from trainer.data import ahead
from trainer.history import History
from trainer.optimiser import make_optimiser, make_schedule
from trainer.scoring import scored_batch
from trainer.setup import Data, prepare
from trainer.unfit import stop_at_nan
from trainer.validation import validate


def train(
    data: Data, out: Path, params: TrainParams, measures: MeasuresParams, *, restart: bool = False
) -> dict[str, Any]:
    """Train; write the best model (`load_run`), steps.csv, epochs.csv and summary.json, which is returned.

    A run that was stopped goes on after its last finished epoch, and ends as one that was not; a finished one is left
    as it is, unless `restart`. Started on several
    processes by `accelerate launch` or `torchrun`, each encodes its part of a batch and all see the whole.
    Raises InputError for data that do not fit together, when the loss is no longer a number, for an `out` that another
    stage wrote, and while another run writes to it.
    """
    with output_folder(out, "run"):
        remove_temporaries(out)
        return _train(data, out, params, measures, restart)


def _train(data: Data, out: Path, params: TrainParams, measures: MeasuresParams, restart: bool) -> dict[str, Any]:
    accelerator = Accelerator(cpu=params.device == "cpu")
    set_seed(params.seed)  # the same on every process: all draw the same negatives
    setup = prepare(data, params, measures)
    plan, batch_size = setup.plan, params.batch_size
    part = _part(batch_size, accelerator.process_index, accelerator.num_processes)
    optimiser = make_optimiser(setup.model, params)
    schedule = make_schedule(optimiser, params, plan.batches_an_epoch)
    done = None if restart else finished(out, setup.key)
    if done is not None:
        return done
    history = History(out, setup.key, None if restart else load_state(out, setup.key))
    scorer = setup.model.to(accelerator.device)
    history.restore(scorer, optimiser, schedule)
    model = accelerator.prepare(torch.compile(scorer) if params.compile else scorer)
    if accelerator.is_main_process and not history.epoch:
        save_config(out, params, setup.config, setup.tokens, setup.feature_dim, setup.inputs)
    with progress("training", params.epochs * plan.batches_an_epoch * batch_size, "pairs") as advance:
        advance(len(history.steps) * batch_size)
        while history.epoch < params.epochs and not history.stale(params.best_by, params.patience):
            scorer.train()
            start = time.perf_counter()
            batches = ahead(lambda rows: plan.pairs.collate(rows, part), plan.epoch(history.epoch), params.workers)
            for batch in batches:
                with torch.autocast(accelerator.device.type, torch.bfloat16, enabled=params.precision == "bf16"):
                    loss = setup.loss(scored_batch(model, scorer, batch, setup.relevance, setup.needs))
                stop_at_nan(loss, batch, plan.pairs.captions, history, out)
                accelerator.backward(loss)
                if params.clip is not None:
                    clip_grad_norm_(scorer.parameters(), params.clip)
                optimiser.step()
                schedule.step()
                optimiser.zero_grad(set_to_none=True)
                history.step(loss.item(), float(schedule.get_last_lr()[0]))
                advance(batch_size)
            rate = plan.batches_an_epoch * batch_size / (time.perf_counter() - start)
            found = validate(scorer, setup.validation, setup.validation_relevance)
            better = history.finish_epoch(found, rate, params.best_by)
            if accelerator.is_main_process:
                if better:
                    save_model(out, scorer)
                history.save(scorer, optimiser, schedule)
                if params.tensorboard:
                    write_epoch(out, history.epochs[-1])
    summary = history.summary(params)
    if accelerator.is_main_process:
        finish(out, summary)
    accelerator.wait_for_everyone()
    return summary


def _part(batch: int, rank: int, world: int) -> slice:
    """The pairs of a batch that this process encodes. InputError when they cannot be shared out evenly."""
    if batch % world:
        raise InputError(f"a batch of {batch} for {world} processes", remedy=f"set a batch_size that {world} divides")
    return slice(rank * (batch // world), (rank + 1) * (batch // world))
