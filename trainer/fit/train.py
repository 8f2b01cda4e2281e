"""Stage `train`: from captions, region features and sampled relevance to a retrieval model."""

import json
import math
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from capgrade.devices import autocast, precision_of
from capgrade.losses import ScoredBatch, gather
from capgrade.losses.declared import ACTIVE
from capgrade.measures.params import MeasuresParams
from capgrade.metrics.catalogue import RECALL, SUMMED, find_metric
from capgrade.metrics.directions import add_up, directions_of, means_of
from capgrade.processes import (
    Process,
    average_gradients,
    broadcast_from_first,
    join_processes,
    run_on_first,
)
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    atomic,
    package_version,
    parse_manifest,
    write_json,
    write_text,
)
from capgrade.schemas.natures import recorded
from capgrade.schemas.output import output_folder, refuse_foreign, run_key
from capgrade.schemas.progress import progress
from capgrade.schemas.say import if_silent, tell
from capgrade.trainer.data.images import images_of_model
from capgrade.trainer.data.pairs import Batch, SplitPairs, prefetch
from capgrade.trainer.data.relevance import BatchRelevance
from capgrade.trainer.fit import CONFIG, IMAGES, STATE, SUMMARY, UNFIT, VOCABULARY
from capgrade.trainer.fit.checkpoint import (
    AFRESH,
    History,
    Parts,
    best_files,
    find_state,
    finish_run,
    require_model,
    save_model,
)
from capgrade.trainer.fit.optimiser import make_optimiser, make_schedule
from capgrade.trainer.fit.setup import Data, Setup, choose_validation, prepare
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.search.encode import compute_scores, encode_split
from capgrade.trainer.stages.train import TRAIN, TrainParams

_GRADED = ("ndcg@25", "asp", "kendall_tau_b")
# Other metrics that `train.best_by` may name.
_BY_NAME = {
    "ndcg_exp": ("ndcg_exp@25",),
    **{name: tuple(f"{name}@{k}" for k in SUMMED) for name in ("ncs", "ncs_ordered")},
}


def train(
    captions: Path,
    out: Path,
    params: TrainParams,
    measures: MeasuresParams,
    *,
    regions: Path | None = None,
    shards: Path | None = None,
) -> dict[str, Any]:
    """Train a model; write the best one (`load_run`), steps.csv, epochs.csv and summary.json, which
    is returned.

    Unless `params.restart`, a stopped run goes on after its last epoch, and a finished one
    where it is to have more epochs. With `torchrun` or `accelerate launch` each process encodes
    a part of a batch. InputError for data that do not fit together, a missing device or too
    little memory, a loss or weight that is no number, fewer epochs than are done, and an `out`
    of another stage or run.

    With `folds` and no `fold` it writes as many runs, `out`/fold-0 and so on, and returns their
    summaries by these names."""
    if params.folds is not None and params.fold is None:
        names = {f"fold-{k}": k for k in range(params.folds)}
        return {
            name: train(
                captions,
                out / name,
                params.model_copy(update={"fold": k}),
                measures,
                regions=regions,
                shards=shards,
            )
            for name, k in names.items()
        }
    regions, images = images_of_model(params.model.name, regions, params.images, "train.images")
    if images is None:
        params = params.model_copy(update={"images": None})
    data = Data(captions, regions, shards)
    process = Process.current()
    device = process.device(params.device)
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    with join_processes(process, backend) as wait, precision_of(params.precision, device):
        if process.rank == 0:  # `output_folder` checks this too, but after all data are read.
            refuse_foreign(out, TRAIN.name)
        torch.manual_seed(params.seed)  # All processes have one seed, to draw the same negatives.
        with if_silent(f"{params.model.name}: reading {captions}"):
            params = choose_validation(data, params)
            setup = prepare(data, params, measures)
        for size in (params.batch_size, *setup.plan.rests):
            process.part(size)  # A batch that cannot be shared is refused before the first step.
        # The work of a run that has ended serves none that is to end sooner.
        whole = {"epochs": params.epochs, "patience": params.patience}
        made_of = setup.run.made_of
        with output_folder(out, TRAIN.name, made_of, whole=whole, afresh=params.restart) as folder:
            wait()  # The first process makes the folder.
            try:
                summary = _train(setup, out, folder, params, device, process)
            except torch.OutOfMemoryError as error:
                remedy = "lower train.batch_size, or set train.precision=bf16"
                raise InputError(f"{device} is out of memory", file=out, remedy=remedy) from error
            wait()
        return summary


@dataclass(frozen=True)
class _TrainingRun:
    """The model that a process trains, its optimiser, and its data."""

    folder: Path
    params: TrainParams
    setup: Setup
    device: torch.device
    process: Process
    model: RetrievalModel
    optimiser: Optimizer
    schedule: LRScheduler
    average: AveragedModel | None  # weights averaged by `train.ema`; its buffers are the model's
    kept: RetrievalModel  # what is validated and written: the averaged model with `train.ema`
    parts: Parts  # of the run's state
    history: History


def _train(
    setup: Setup,
    out: Path,
    folder: Path,
    params: TrainParams,
    device: torch.device,
    process: Process,
) -> dict[str, Any]:
    finished, state, key = None, None, run_key(setup.run.made_of)
    if not params.restart:
        finished, state = run_on_first(find_state, folder, out, key)
    history = History(out, folder, key, state)
    # `is_finished` comes before any change, because it raises an error for too many epochs.
    if history.is_finished(params) and finished is not None:
        return finished
    model = setup.model.to(device)
    optimiser = make_optimiser(model, params)
    steps_an_epoch = -(-setup.plan.batches_an_epoch // params.accumulate)
    schedule = make_schedule(optimiser, params, steps_an_epoch)
    average, kept = None, model
    if params.ema is not None:
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(params.ema))
        average.update_parameters(model)  # The mean starts as the weights before the first step.
        kept = cast(RetrievalModel, average.module)
    parts = {"model": model, "optimiser": optimiser, "schedule": schedule, "average": average}
    history.restore(parts, device)
    for module in (model, average):
        if module is not None:
            broadcast_from_first(module.state_dict().values())
    run = _TrainingRun(
        folder,
        params,
        setup,
        device,
        process,
        model,
        optimiser,
        schedule,
        average,
        kept,
        parts,
        history,
    )
    run_on_first(_open_folder, run, out)
    pairs_an_epoch = setup.plan.pairs_an_epoch
    with progress("training", params.epochs * pairs_an_epoch, "pairs") as advance:
        advance(history.epoch * pairs_an_epoch)
        while not history.is_finished(params):
            metrics = _train_epoch(run, advance)
            history.epochs.append({"epoch": history.epoch + 1, **metrics})
            run_on_first(_save_epoch, run)
    summary = history.summary(params)
    if "shards" in setup.inputs:  # Whoever compares runs needs to know their labels.
        labels = {"measure": params.measure, "sha256": setup.inputs["shards"]}
        if params.relevance == "shards":
            labels["unknown"] = params.unknown
        summary["labels"] = labels
    if setup.not_initial is not None:
        summary["not_initialised"] = setup.not_initial
    run_on_first(finish_run, folder, summary)
    return summary


def _open_folder(run: _TrainingRun, out: Path) -> None:
    """Write the vocabulary and the configuration, after a copy of the files of a finished run in
    `out` that goes on. Say what is trained, in a line."""
    folder, setup, history = run.folder, run.setup, run.history
    if history.epoch:
        tell(f"{out}: goes on after epoch {history.epoch}")
    if history.epoch and not (folder / STATE).is_file():
        names = parse_manifest(out / MANIFEST, AFRESH)["files"].keys() - {SUMMARY}
        # The state is copied last, because to `find_state` it means that all files are there.
        for name in sorted(names, key=STATE.__eq__):
            with atomic(folder / name) as temporary:
                shutil.copyfile(out / name, temporary)
    setup.tokens.save(folder / VOCABULARY)
    captions = setup.pairs.captions
    learnt = np.unique(captions.owner[setup.pairs.rows])
    write_text(folder / IMAGES, "".join(f"{captions.image_ids[i]}\n" for i in learnt))
    config = {
        "params": recorded(run.params),
        "model": asdict(setup.config),
        "inputs": setup.inputs,
        "feature_dim": setup.feature_dim,
        "package": package_version(),
    }
    write_json(folder / CONFIG, config)
    for best_by, name in best_files(run.params).items():
        if history.epoch and not history.best_is_last(best_by):
            require_model(folder / name)
    # The run may have been stopped between the writing of its state and of its model.
    _save_best(run)
    if history.is_finished(run.params):
        return
    weights = sum(weight.numel() for weight in run.model.parameters())
    size = f"{weights:,} weights, {setup.plan.pairs_an_epoch:,} pairs an epoch"
    epochs = f"epochs {history.epoch + 1} to {run.params.epochs}"
    tell(f"{run.params.model.name}: {size}, {epochs}, on {run.device}")


def _train_epoch(run: _TrainingRun, advance: Callable[[int], None]) -> dict[str, float]:
    """Train an epoch; returns the first process's mean loss and validation."""
    plan, history = run.setup.plan, run.history
    is_first = history.epoch < run.params.all_negatives_first
    terms = run.setup.first_loss if is_first else run.setup.loss
    run.model.train()
    total = 0.0
    rows, accumulate = plan.epoch(history.epoch), run.params.accumulate
    collate = partial(run.setup.pairs.collate, process=run.process)
    for number, batch in enumerate(prefetch(collate, rows, run.params.workers)):
        first = number - number % accumulate
        n_accumulated = min(accumulate, len(rows) - first)  # An epoch may end with fewer.
        with autocast(run.params.precision, run.device):
            scored = scored_batch(run.model, batch, run.setup.relevance, run.setup.loss.needs)
        loss = terms(scored)
        value = loss.item()
        if not math.isfinite(value):
            raise _loss_error(value, batch, run)
        total += value
        (loss if n_accumulated == 1 else loss * (1 / n_accumulated)).backward()
        history.steps.append((history.epoch, value, float(run.schedule.get_last_lr()[0])))
        if number + 1 == first + n_accumulated:
            _update_weights(run)
        advance(len(rows[number]))
    hinges = terms.active_hinges()
    if not all(weights.isfinite().all() for weights in run.kept.parameters()):
        problem = f"a weight is NaN or infinite after epoch {history.epoch + 1}"
        raise InputError(problem, file=run.folder, remedy="lower train.lr or the weight of a loss")
    # Each process has the running statistics of its own parts of batches.
    broadcast_from_first([*run.model.buffers(), *run.kept.buffers()])
    options = run.params.validation_fold, (run.params.best_by, run.params.also_best_by)
    metrics = validate(run.kept, run.setup.validation, run.setup.validation_relevance, *options)
    # All processes go by what the first one found.
    return run_on_first(dict, {"loss": total / len(rows), **hinges, **metrics})


def validate(
    model: RetrievalModel,
    pairs: SplitPairs | None,
    relevance: np.ndarray | None,
    fold: int | None = None,
    best_by: Collection[str | None] = (),
) -> dict[str, float]:
    """rsum (0 to 600), and with relevance [n_images, n_captions] the means over both directions of
    NDCG@25, ASP and tau-b, and what `best_by` names: ndcg_exp (a mean), ncs and ncs_ordered (0 to
    600). Empty without a split. The model's mode is kept.

    With `fold`, the mean over folds of so many images in their order; pairs across folds are not
    scored.
    """
    if pairs is None:
        return {}
    named = [] if relevance is None else [name for name in _BY_NAME if name in best_by]
    graded = () if relevance is None else _GRADED
    chosen = [*RECALL, *graded, *(metric for name in named for metric in _BY_NAME[name])]
    metrics = [find_metric(name) for name in chosen]
    was_training, folds = model.training, []
    images, captions = encode_split(model.eval(), pairs)
    owner, size = pairs.captions.owner, fold or pairs.captions.n_images
    for first in range(0, pairs.captions.n_images, size):
        columns = np.flatnonzero((owner >= first) & (owner < first + size))
        matrix = compute_scores(
            model, images[first : first + size], captions[torch.from_numpy(columns)]
        )
        labels = None if relevance is None else relevance[first : first + size, columns]
        directions = directions_of(
            matrix, {} if labels is None else {"": labels}, owner=owner[columns] - first
        )
        means = means_of(directions, metrics)
        values = {"rsum": add_up(means)["rsum"]}
        for metric in graded:
            mean = np.mean([one[metric] for one in means.values()])
            values[metric.split("@")[0]] = float(mean)
        for name in named:
            parts = [one[metric] for one in means.values() for metric in _BY_NAME[name]]
            is_sum = len(_BY_NAME[name]) > 1
            values[name] = 100 * float(np.sum(parts)) if is_sum else float(np.mean(parts))
        folds.append(values)
    model.train(was_training)
    return {name: float(np.mean([values[name] for values in folds])) for name in folds[0]}


def scored_batch(
    model: RetrievalModel, batch: Batch, relevance: BatchRelevance | None, needs: set[str]
) -> ScoredBatch:
    """Scores [B, B] of a batch that is gathered from all processes, and the labels in `needs`."""
    device = next(model.parameters()).device
    texts = batch.texts.to(device)
    images, captions = model(batch.images.to(device), texts)
    own = model.own_losses(images, captions, texts) if "own_losses" in needs else {}
    for name, loss in own.items():
        # All processes have parts of one size, so that the mean of means is the mean over pairs.
        own[name] = gather(loss[None]).mean()
    images, captions = images.map(gather), captions.map(gather)
    owner = torch.from_numpy(batch.image_numbers).to(device)
    labels: dict[str, Any] = {}
    if relevance is not None:
        block = relevance.block(batch.image_numbers, batch.caption_rows)._asdict()
        for name, values in block.items():
            if values is not None:
                labels[name] = torch.from_numpy(values).to(device)
    if needs & {"vectors", "logits"}:
        labels |= model.loss_tensors(images, captions)
    return ScoredBatch(
        model.scores(images, captions),
        owner[:, None] == owner,
        labels=owner,
        more=model.more_scores(images, captions),
        own_losses=own,
        in_order=True,
        **labels,
    )


def _loss_error(loss: float, batch: Batch, run: _TrainingRun) -> InputError:
    """The error for a loss that is NaN or infinite. It writes the batch's image and caption ids to
    unfit_batch.json."""
    captions, history, file = run.setup.pairs.captions, run.history, run.folder / UNFIT
    ids = {"captions": [captions.caption_ids[r] for r in batch.caption_rows.tolist()]}
    ids["images"] = [captions.image_ids[i] for i in batch.image_numbers.tolist()]
    record = {"step": len(history.steps), "epoch": history.epoch + 1, "loss": str(loss), **ids}
    write_text(file, json.dumps(record, indent=2) + "\n")
    problem = f"the loss is {loss} at step {record['step']}, epoch {record['epoch']}"
    remedy = "lower train.lr or the weight of a loss; the batch is in this file"
    return InputError(problem, file=file, remedy=remedy)


def _update_weights(run: _TrainingRun) -> None:
    average_gradients(run.model.parameters())
    if run.params.clip is not None:
        clip_grad_norm_(run.model.parameters(), run.params.clip)
    run.optimiser.step()
    run.schedule.step()
    run.optimiser.zero_grad(set_to_none=True)
    if run.average is not None:
        run.average.update_parameters(run.model)


def _save_epoch(run: _TrainingRun) -> None:
    # The state comes first: a run that is stopped before it writes its model does so when it goes
    # on.
    run.history.save(run.parts, run.device)
    _save_best(run)
    for line in epoch_lines(run.history.epochs):
        print(line, file=sys.stderr, flush=True)


# What it means that no hinge of a term, or every hinge, was active for two epochs, and which key
# changes it.
IDLE = {
    0: "nothing is learnt from it; see its margin, negatives, tau or alpha in train.loss",
    1: (
        "as near chance, and labels have no say in its gradient; set train.all_negatives_first=1, a"
        " lower train.lr or larger model options"
    ),
}


def epoch_lines(epochs: Sequence[Mapping[str, float]]) -> list[str]:
    """The lines that are printed after the last epoch: its loss, validation and shares of active
    hinges, and once, which terms have had none or all of them active for two epochs."""
    figures, hinges, notes = [], [], []
    for key, value in epochs[-1].items():
        if key == "epoch":
            continue
        if not key.startswith(ACTIVE):
            figures.append(f"{key} {value:.4g}")
            continue
        name = key.removeprefix(ACTIVE)
        hinges.append(f"{value:.1%} of {name}")
        # Shares are compared as they are printed.
        past = [round(epoch.get(key, 0.5), 3) for epoch in epochs[-3:]]
        if past[-1] in IDLE and past[-2:] == 2 * past[-1:] and past[:-2] != past[-1:]:
            note = f"{name} has had {past[-1]:.0%} of active hinges for two epochs"
            notes.append(f"{note}: {IDLE[int(past[-1])]}")
    line = f"epoch {epochs[-1]['epoch']}: {', '.join(figures)}"
    return [f"{line}; active hinges: {', '.join(hinges)}" if hinges else line, *notes]


def _save_best(run: _TrainingRun) -> None:
    """Write the model of the last epoch, if it is the best by a metric of the parameters."""
    for best_by, name in best_files(run.params).items():
        if run.history.best_is_last(best_by):
            save_model(run.folder, run.kept, name)
