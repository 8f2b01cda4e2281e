"""Stage: captions, region features and sampled relevance in; a trained retrieval model out."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from capgrade.devices import autocast, precision_of
from capgrade.losses import LossTerms, ScoredBatch, gather
from capgrade.losses.declared import ACTIVE
from capgrade.measures.params import MeasuresParams
from capgrade.processes import Process, together
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, package_version, parse_manifest, write_json, write_text
from capgrade.schemas.output import output_folder, refuse_foreign
from capgrade.schemas.params import TrainParams
from capgrade.schemas.progress import FIRST, progress
from capgrade.schemas.say import tell
from capgrade.trainer.data.batches import prefetched
from capgrade.trainer.data.pairs import Batch
from capgrade.trainer.data.relevance import BatchRelevance
from capgrade.trainer.fit import CONFIG, MODEL, STATE, SUMMARY, UNFIT, VOCABULARY
from capgrade.trainer.fit.checkpoint import (
    AFRESH,
    History,
    Parts,
    also,
    done_epochs,
    finish,
    left,
    save_model,
)
from capgrade.trainer.fit.distributed import (
    device_of_process,
    from_first,
    mean_gradients,
    same_on_all,
)
from capgrade.trainer.fit.optimiser import make_optimiser, make_schedule
from capgrade.trainer.fit.setup import Data, Setup, prepare, with_validation
from capgrade.trainer.fit.validation import validate
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.models.single_stream import SingleStream
from capgrade.trainer.search.encode import to_device

# widths of models that learn from small tables
NARROW = {
    "embed": 256,
    "embed_dim": 256,
    "word": 128,
}
_SMALL, LONG = 20_000, 600.0  # pairs an epoch; seconds


def train(
    data: Data, out: Path, params: TrainParams, measures: MeasuresParams, *, restart: bool = False
) -> dict[str, Any]:
    """Train; write the best model (`load_run`), steps.csv, epochs.csv and summary.json, which is
    returned.

    A run that was stopped goes on after its last finished epoch, and ends as one that was not; so
    does a finished one that is asked for more epochs, and else it is left as it is, unless
    `restart`. Started on several processes by `torchrun` or `accelerate launch`, each encodes its
    part of a batch and all see the whole; of the environment only what torchrun sets is read, and
    the first process alone writes. Raises InputError for data that do not fit together, for a
    device that is not there or has too little memory, when the loss is no longer a number, for
    fewer epochs than are done, for an `out` that another stage wrote, and while another run writes
    to it.
    """
    process = Process.current()
    device = device_of_process(params.device, process)
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    with together(process, backend) as wait, precision_of(params.precision, device):
        if process.rank == 0:  # before anything is read, too
            refuse_foreign(out, "run")
        torch.manual_seed(params.seed)  # the same on every process: all draw the same negatives
        params = with_validation(data, params)
        setup = prepare(data, params, measures)
        for size in (params.batch_size, *setup.plan.rests):
            _part(size, process)
        with output_folder(out, "run", setup.made_of, afresh=restart, done=done_epochs) as folder:
            wait()  # nobody goes on before the folder is ready
            try:
                summary = _train(setup, out, folder, params, restart, device, process)
            except torch.OutOfMemoryError as error:
                remedy = "lower train.batch_size, or set train.precision=bf16"
                raise InputError(f"{device} is out of memory", file=out, remedy=remedy) from error
            wait()
        return summary


@dataclass(frozen=True)
class TrainingRun:
    """What a process trains, and with what."""

    folder: Path
    params: TrainParams
    setup: Setup
    device: torch.device
    process: Process  # which encodes its part of a batch
    model: RetrievalModel
    optimiser: Optimizer
    schedule: LRScheduler
    average: AveragedModel | None  # of `train.ema`; its running statistics are the last ones
    history: History

    @property
    def kept(self) -> RetrievalModel:
        """The model that is validated and written: with averaged weights where there are some."""
        return self.model if self.average is None else cast(RetrievalModel, self.average.module)

    @property
    def parts(self) -> Parts:
        """What a stopped run goes on with."""
        known = {"model": self.model, "optimiser": self.optimiser, "schedule": self.schedule}
        return {**known, "average": self.average}

    @property
    def loss(self) -> LossTerms:
        first = self.history.epoch < self.params.all_negatives_first
        return self.setup.first_loss if first else self.setup.loss


def _train(
    setup: Setup,
    out: Path,
    folder: Path,
    params: TrainParams,
    restart: bool,
    device: torch.device,
    process: Process,
) -> dict[str, Any]:
    state, done = None, None
    if not restart:
        done, state = from_first(lambda: left(folder, out, setup.key))
    history = History(out, folder, setup.key, state)
    if (
        history.over(params) and done is not None
    ):  # asked before anything is changed: it may have too many epochs
        return done
    model = setup.model.to(device)
    optimiser = make_optimiser(model, params)
    schedule = make_schedule(
        optimiser, params, -(-setup.plan.batches_an_epoch // params.accumulate)
    )
    same_on_all(model.state_dict().values())
    average = (
        None
        if params.ema is None
        else AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(params.ema))
    )
    if average is not None:
        average.update_parameters(model)  # the mean starts as the weights before the first step
    run = TrainingRun(
        folder, params, setup, device, process, model, optimiser, schedule, average, history
    )
    history.restore(run.parts, device)
    same_on_all([*model.state_dict().values(), *(average.state_dict().values() if average else ())])
    from_first(lambda: _open(run, out))
    an_epoch = setup.plan.pairs_an_epoch
    if process.rank == 0:
        _tell_of(run)
    with progress("training", params.epochs * an_epoch, "pairs") as advance:
        advance(history.epoch * an_epoch)
        while not history.over(params):
            history.epochs.append({"epoch": history.epoch + 1, **_epoch(run, advance)})
            from_first(lambda: _keep(run))
    summary = history.summary(params)
    if "shards" in setup.inputs:  # what labels it read, for whoever compares runs
        labels = {"measure": params.measure, "sha256": setup.inputs["shards"]}
        summary["labels"] = labels | (
            {"unknown": params.unknown} if params.relevance == "shards" else {}
        )
    if setup.not_initial is not None:
        summary["not_initialised"] = setup.not_initial
    from_first(lambda: finish(folder, summary))
    return summary


def _tell_of(run: TrainingRun) -> None:
    """What is trained, in a line."""
    weights = sum(weight.numel() for weight in run.model.parameters())
    size = f"{weights:,} weights, {run.setup.plan.pairs_an_epoch:,} pairs an epoch"
    tell(
        f"{run.params.model.name}: {size}, epochs {run.history.epoch + 1} to {run.params.epochs},"
        f" on {run.device}"
    )


def slow_remedy(run: TrainingRun, pairs: int, seconds: float) -> str | None:
    """What makes a run faster that has trained so many pairs in its first seconds: smaller widths,
    where a processor would take more than LONG for a small table. None for other runs."""
    left = (run.params.epochs * run.setup.plan.pairs_an_epoch - pairs) * seconds / pairs
    wide = {
        name: width
        for name, width in NARROW.items()
        if getattr(run.setup.config, name, 0) > 2 * width
    }
    if (
        run.device.type != "cpu"
        or run.setup.plan.pairs_an_epoch > _SMALL
        or left < LONG
        or not wide
    ):
        return None
    sets = " ".join(f"--set train.model.options.{name}={width}" for name, width in wide.items())
    return (
        f"about {left / 60:.0f} min left on this processor; a small table may do with small widths:"
        f" {sets}"
    )


def _open(run: TrainingRun, out: Path) -> None:
    """The folder as it is while a run trains: one that goes on from a finished one in `out` begins
    with a copy of its files. Then what it is, and the digests of what it reads."""
    folder, setup, history = run.folder, run.setup, run.history
    if history.epoch:
        tell(f"{out}: goes on after epoch {history.epoch}")
    if history.epoch and not (folder / STATE).is_file():
        names = parse_manifest(out / MANIFEST, AFRESH)["files"].keys() - {SUMMARY}
        for name in sorted(names, key=STATE.__eq__):  # the state last
            shutil.copyfile(out / name, folder / name)
    setup.tokens.save(folder / VOCABULARY)
    config = {
        "params": run.params.model_dump(mode="json"),
        "model": asdict(setup.config),
        "inputs": setup.inputs,
    }
    write_json(
        folder / CONFIG, {**config, "feature_dim": setup.feature_dim, "package": package_version()}
    )
    last = history.best_is_last(run.params.best_by)
    if history.epoch and not last and not (folder / MODEL).is_file():
        raise InputError(
            "the model of the best epoch is missing", file=folder / MODEL, remedy=AFRESH
        )
    # the run may have been stopped after its state was written and before its model was
    _save_best(run)


def _epoch(run: TrainingRun, advance: Callable[[int], None]) -> dict[str, float]:
    """Train an epoch; its mean loss, validation and pairs per second, as the first process has
    them."""
    plan, history = run.setup.plan, run.history
    run.model.train()
    start, trained, first_epoch = time.perf_counter(), 0, not history.epoch
    rows = plan.epoch(history.epoch)
    pairs, accumulate = run.setup.pairs, run.params.accumulate
    made = prefetched(
        lambda some: pairs.collate(some, _part(len(some), run.process)), rows, run.params.workers
    )
    for at, batch in enumerate(made):
        first = at - at % accumulate
        together = min(accumulate, len(rows) - first)  # fewer at the end of an epoch
        with autocast(run.params.precision, run.device):
            scored = scored_batch(run.model, batch, run.setup.relevance, run.setup.loss.needs)
        loss = run.loss(scored)
        if not loss.isfinite():
            raise _unfit(loss.item(), batch, run)
        (loss if together == 1 else loss * (1 / together)).backward()
        history.steps.append((history.epoch, loss.item(), float(run.schedule.get_last_lr()[0])))
        if at + 1 == first + together:
            _step(run)
        advance(len(rows[at]))
        trained += len(rows[at])
        spent = time.perf_counter() - start
        if first_epoch and run.process.rank == 0 and spent > FIRST:
            first_epoch = False  # it is said once
            if said := slow_remedy(run, trained, spent):
                tell(said)
    rate = plan.pairs_an_epoch / (time.perf_counter() - start)
    hinges = run.loss.active_hinges()
    if not all(weights.isfinite().all() for weights in run.kept.parameters()):
        problem = f"a weight is NaN or infinite after epoch {history.epoch + 1}"
        raise InputError(problem, file=run.folder, remedy="lower train.lr or the weight of a loss")
    # each process's statistics are of its part of batches
    same_on_all([*run.model.buffers(), *run.kept.buffers()])
    asked = run.params.validation_fold, (run.params.best_by, run.params.also_best_by)
    metrics = validate(run.kept, run.setup.validation, run.setup.validation_relevance, *asked)
    mean = sum(loss for _, loss, _ in history.steps[-len(rows) :]) / len(rows)
    return from_first(lambda: {"loss": mean, **hinges, **metrics, "pairs_per_s": rate})


def scored_batch(
    model: RetrievalModel, batch: Batch, relevance: BatchRelevance | None, needs: set[str]
) -> ScoredBatch:
    """Scores of the gathered batch [B, B] and the labels in `needs`."""
    device = next(model.parameters()).device
    texts = to_device(batch.texts, device)
    images, captions = model(to_device(batch.images, device), texts)
    own = model.own_losses(images, captions, texts) if "own_losses" in needs else {}
    # means over parts of one size
    own = {name: gather(loss[None]).mean() for name, loss in own.items()}
    images, captions = images.map(gather), captions.map(gather)
    owner = torch.from_numpy(batch.image_numbers).to(device)
    labels = (
        {}
        if relevance is None
        else relevance.block(batch.image_numbers, batch.caption_rows)._asdict()
    )
    seen: dict[str, Any] = {
        name: torch.from_numpy(x).to(device) for name, x in labels.items() if x is not None
    }
    if "vectors" in needs:
        vector = (
            (lambda side: side.sets[0][:, 0])
            if isinstance(model, SingleStream)
            else (lambda side: side.vector)
        )
        seen |= {"images": vector(images), "captions": vector(captions)}
    if isinstance(model, SingleStream) and "logits" in needs:
        seen |= {"image_logits": model.classify(images), "caption_logits": model.classify(captions)}
    return ScoredBatch(
        model.scores(images, captions),
        owner[:, None] == owner,
        labels=owner,
        more=model.more_scores(images, captions),
        own_losses=own,
        in_order=True,
        **seen,
    )


def _unfit(loss: float, batch: Batch, run: TrainingRun) -> InputError:
    """Of a loss that is NaN or infinite; the batch's image and caption ids go to
    unfit_batch.json."""
    captions, history, file = run.setup.pairs.captions, run.history, run.folder / UNFIT
    ids = {"captions": [captions.caption_ids[r] for r in batch.caption_rows.tolist()]}
    ids["images"] = [captions.image_ids[i] for i in batch.image_numbers.tolist()]
    record = {"step": len(history.steps), "epoch": history.epoch + 1, "loss": str(loss), **ids}
    write_text(file, json.dumps(record, indent=2) + "\n")
    problem = f"the loss is {loss} at step {record['step']}, epoch {record['epoch']}"
    return InputError(
        problem,
        file=file,
        remedy="lower train.lr or the weight of a loss; the batch is in this file",
    )


def _step(run: TrainingRun) -> None:
    mean_gradients(run.model.parameters())
    if run.params.clip is not None:
        clip_grad_norm_(run.model.parameters(), run.params.clip)
    run.optimiser.step()
    run.schedule.step()
    run.optimiser.zero_grad(set_to_none=True)
    if run.average is not None:
        run.average.update_parameters(run.model)


def _keep(run: TrainingRun) -> None:
    """The state first: a run that is stopped before its model is written makes that good when it
    goes on."""
    run.history.save(run.parts, run.device)
    _save_best(run)
    for line in epoch_lines(run.history.epochs):
        print(line, file=sys.stderr, flush=True)


# Of a term that has been inactive, or wholly active, for two epochs: what that means, and which key
# changes it.
IDLE = {
    0: "nothing is learnt from it; see its margin, negatives, tau or alpha in train.loss",
    1: (
        "as near chance, and labels have no say in its gradient; set train.all_negatives_first=1, a"
        " lower train.lr or larger model options"
    ),
}


def epoch_lines(epochs: Sequence[Mapping[str, float]]) -> list[str]:
    """What is printed after the last epoch: its loss, its validation and the shares of active
    hinges; and once, which terms have had none, or all, for two epochs."""
    last, before = epochs[-1], epochs[-3:-1]
    shares = {
        key.removeprefix(ACTIVE): share for key, share in last.items() if key.startswith(ACTIVE)
    }
    others = {
        key: value
        for key, value in last.items()
        if key not in ("epoch", "pairs_per_s") and ACTIVE not in key
    }
    line = f"epoch {last['epoch']}: " + ", ".join(
        f"{key} {value:.4g}" for key, value in others.items()
    )
    hinges = [f"{share:.1%} of {name}" for name, share in shares.items()]
    lines = [f"{line}; active hinges: {', '.join(hinges)}" if hinges else line]
    for name in shares:
        # as they are printed
        past = [round(epoch.get(ACTIVE + name, 0.5), 3) for epoch in (*before, last)]
        if past[-1] in IDLE and past[-2:] == 2 * past[-1:] and past[:-2] != past[-1:]:
            lines.append(
                f"{name} has had {past[-1]:.0%} of active hinges for two epochs:"
                f" {IDLE[int(past[-1])]}"
            )
    return lines


def _save_best(run: TrainingRun) -> None:
    """The model of the last epoch, if it is the best by a measure that one is kept for."""
    wanted = {run.params.best_by: MODEL}
    if run.params.also_best_by:
        wanted[run.params.also_best_by] = also(run.params.also_best_by)
    for best_by, name in wanted.items():
        if run.history.best_is_last(best_by):
            save_model(run.folder, run.kept, name)


def _part(batch: int, process: Process) -> slice:
    """The pairs of a batch that this process encodes. InputError when they cannot be shared out
    evenly."""
    if batch % process.world:
        problem = f"a batch of {batch} for {process.world} processes"
        remedy = f"set a train.batch_size that {process.world} divides, and train.drop_last=true"
        raise InputError(problem, remedy=remedy)
    share = batch // process.world
    return slice(process.rank * share, (process.rank + 1) * share)
