"""All that a run needs, read and checked before the first step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.labels import Labels
from capgrade.labels.batches import BatchPlan
from capgrade.losses import LOSSES, LossTerms
from capgrade.measures import choose, file_digests, names_of, parts_of
from capgrade.measures.catalogue import packages_of
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.captions import Captions, read_captions, splits_of
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import MANIFEST, digest, found_digests
from capgrade.schemas.natures import of_parts
from capgrade.schemas.run import StageRun
from capgrade.schemas.say import tell
from capgrade.trainer.data.images import (
    ImageStore,
    find_images,
    image_digest,
    open_images,
    tell_left_out,
)
from capgrade.trainer.data.pairs import (
    SplitPairs,
    fold_of,
    require_region_count,
    sample_rows,
)
from capgrade.trainer.data.relevance import (
    BatchRelevance,
    ExactRelevance,
    LookedUp,
    find_neighbours,
    learnt_from,
    own_spread,
)
from capgrade.trainer.data.text import Tokens, Vocabulary, make_tokens
from capgrade.trainer.fit import MODEL, VOCABULARY
from capgrade.trainer.fit.checkpoint import copy_weights, model_inputs
from capgrade.trainer.models import configure, model_of
from capgrade.trainer.models.base import Config, RetrievalModel
from capgrade.trainer.stages.train import TRAIN, TrainParams

_VALIDATION = TrainParams().validation  # the default split


@dataclass(frozen=True)
class Data:
    """The folders a run reads."""

    captions: Path
    regions: Path | None = None
    shards: Path | None = None  # labels: shards, dense or published, or USER/NAME of the hub


@dataclass(frozen=True)
class Setup:
    """A run before its first step."""

    model: RetrievalModel
    config: Config
    tokens: Tokens
    feature_dim: int
    pairs: SplitPairs
    plan: BatchPlan
    loss: LossTerms
    first_loss: LossTerms  # the loss in the epochs of `all_negatives_first`
    relevance: BatchRelevance | None  # of training pairs, where a loss needs it
    validation: SplitPairs | None
    validation_relevance: np.ndarray | None  # [n_images, n_captions]
    inputs: dict[str, str]
    run: StageRun[TrainParams]
    not_initial: list[str] | None  # weights that `train.init` does not have; None without it


def choose_validation(data: Data, params: TrainParams) -> TrainParams:
    """The parameters with a validation split that the captions have: in place of the default `val`
    their `dev`, as SCAN and Flickr8k call it, with a note. InputError for another split that they
    do not have."""
    splits = splits_of(data.captions)
    if params.validation is None or params.validation in splits or "+" in params.validation:
        return params
    if params.validation == _VALIDATION and "dev" in splits:
        tell("validation split: dev, as there is no val")
        return params.model_copy(update={"validation": "dev"})
    problem = f"no split '{params.validation}' to validate on"
    near = choose_from(params.validation, splits)
    remedy = f"--set train.validation=NAME, {near}; null trains without"
    raise InputError(problem, file=data.captions, remedy=remedy)


def prepare(data: Data, params: TrainParams, measures: MeasuresParams) -> Setup:
    """Read the data, check them and build the model, whose weights are drawn by torch's generator.

    Raises InputError for data that do not fit together, for too few data, and for unknown names.
    """
    # Options that are "auto" get their values below, and no need depends on them.
    plain = [{key: value for key, value in term.items() if value != "auto"} for term in params.loss]
    data = _drop_unread_shards(data, params, LossTerms(plain).needs)
    captions = read_captions(data.captions, params.split)
    rows = sample_rows(captions, params.share, params.captions_per_image, params.seed)
    if params.folds is not None and params.fold is not None:
        kept = fold_of(captions.image_ids, params.folds) != params.fold
        rows = rows[kept[captions.owner[rows]]]
    images = None if params.images is None else Path(params.images)
    store = open_images(
        params.model.name, params.model.options, data.regions, images, params.unreadable
    )
    dim = store.metadata["dim"]
    loss, first_loss = _make_losses(params, measures, captions, rows)
    config = configure(params.model.name, params.model.options, dim, captions.n_images)
    start = None if params.init is None else Path(params.init)
    learnt = rows[find_images(captions, store, rows).numbers[captions.owner[rows]] >= 0]
    tokens = make_tokens(config, captions, params.min_count, learnt, start)
    pairs = SplitPairs(captions, store, tokens.encode(captions), rows)
    require_region_count(config, pairs)
    tell_left_out(captions, rows, pairs.left_out)
    shards, relevance = None, None
    inputs = {"captions": digest(data.captions / MANIFEST)}
    if data.shards is not None:
        labels = Labels.load(
            data.shards, measures=[params.measure], split=captions.split, captions=data.captions
        )
        labels.table.require_rows_of(captions, labels.file)
        shards = LookedUp(labels, params.measure, params.unknown)
        inputs["shards"] = digest(Path(labels.file) / MANIFEST)
    if "relevance" in loss.needs:
        relevance = _make_relevance(params, measures, captions, rows, shards)
        loss.check_scale(params.measure, *relevance.span)
    split, kept, held_out = None, np.empty(0, np.int64), None
    if params.validation is not None:
        split = read_captions(data.captions, params.validation)
        kept = _validation_rows(params, split, store)
        held_out = learnt_from(split, kept)
    computed = _validation_measures(params, measures, shards, split)
    inputs |= image_digest(store, [captions] if held_out is None else [captions, held_out])
    inputs |= {**file_digests(choose(computed, measures).values()), **model_inputs(config)}
    if start is not None:  # The vocabulary says which words the weights of `init` belong to.
        inputs |= found_digests(init=start / MODEL, init_vocabulary=start / VOCABULARY)
    model = model_of(params.model.name)(config, dim, tokens.size)
    if isinstance(tokens, Vocabulary):
        training_tokens = [pairs.tokens[row] for row in pairs.rows]
        model.learn_words(tokens.words, training_tokens, captions.owner[pairs.rows])
    not_initial = None if start is None else copy_weights(model, start / MODEL, params.init_strict)
    neighbours = (
        find_neighbours(captions, pairs.rows, shards) if params.composition == "seeded" else None
    )
    batches = params.batch_size, params.seed, neighbours, params.unique_images, params.drop_last
    plan = BatchPlan(captions.owner, pairs.rows, *batches)
    validation = None if held_out is None else SplitPairs(held_out, store, tokens.encode(held_out))
    dense = None
    if split is not None and held_out is not None and computed:
        dense = _validation_relevance(params, measures, split, kept, held_out)
    return Setup(
        model=model,
        config=config,
        tokens=tokens,
        feature_dim=dim,
        pairs=pairs,
        plan=plan,
        loss=loss,
        first_loss=first_loss,
        relevance=relevance,
        validation=validation,
        validation_relevance=dense,
        inputs=inputs,
        # An epoch is a part of a run. The weights of `init` are among the inputs.
        run=StageRun(
            stage=TRAIN,
            params=params,
            inputs=inputs,
            of_parts={"measures": measures.used(computed, of_parts)},
            packages=packages_of(parts_of(computed, measures)),
        ),
        not_initial=not_initial,
    )


def _make_losses(
    params: TrainParams, measures: MeasuresParams, captions: Captions, rows: np.ndarray
) -> tuple[LossTerms, LossTerms]:
    """The loss, and that of the epochs of `all_negatives_first`: with all negatives for triplets of
    the hardest negative. InputError for such epochs without such a triplet."""
    terms, first_terms, spread = list[Mapping[str, Any]](), list[Mapping[str, Any]](), None
    for term in params.loss:
        if term.get("alpha") == "auto":
            if spread is None:
                learnt = learnt_from(captions, rows)
                measure = choose([params.measure], measures)[params.measure]
                spread = own_spread(measure.fit(learnt), learnt)
            term = {**term, "alpha": spread}
        options = {**LOSSES["triplet"].defaults, **term}
        is_hardest = term.get("name") == "triplet" and options["negatives"] == "hard"
        terms.append(term)
        first_terms.append({**term, "negatives": "sum"} if is_hardest else term)
    loss = LossTerms(terms)
    if params.all_negatives_first and first_terms == terms:
        problem = f"train.all_negatives_first is {params.all_negatives_first}"
        problem += ", and no triplet of the hardest negative is in train.loss"
        raise InputError(problem, remedy="set train.all_negatives_first=0, or add {name: triplet}")
    return loss, LossTerms(first_terms)


def _validation_rows(params: TrainParams, split: Captions, store: ImageStore) -> np.ndarray:
    """The caption rows, int64, of the images that validation uses. InputError where their number
    makes no folds."""
    images = find_images(split, store)
    tell_left_out(split, np.arange(split.n_captions), images.left_out)
    kept = np.flatnonzero(images.numbers[split.owner] >= 0)
    numbers = np.unique(split.owner[kept])
    if params.validation_images is not None:
        # The authors' loaders take 1,000 of COCO's 5,000 images.
        numbers = numbers[: params.validation_images]
        kept = kept[np.isin(split.owner[kept], numbers)]
    if (fold := params.validation_fold) and len(numbers) % fold:
        problem = f"train.validation_fold {fold} does not divide the {len(numbers)} images"
        problem += " of the validation split"
        raise InputError(problem, remedy="use a divisor, such as 1000 of 5000, or leave it out")
    return kept


def _validation_measures(
    params: TrainParams,
    measures: MeasuresParams,
    shards: LookedUp | None,
    held_out: Captions | None,
) -> list[str]:
    """The measure whose relevance validation uses. There is none, with a note, where only labels
    have its values, or it scores some pairs alone: then InputError where the best epoch is chosen
    by more than recall."""
    known = params.measure in names_of(measures)
    if known and held_out is not None:
        measure = choose([params.measure], measures)[params.measure]
        known = not measure.partial(held_out)
    if shards is None or known:
        return [params.measure]
    if held_out is not None:
        for key in ("best_by", "also_best_by"):
            if getattr(params, key) not in (None, "rsum"):
                problem = f"train.{key} is {getattr(params, key)}"
                problem += f", and {params.measure} is known in the labels alone"
                remedy = f"set train.{key}=rsum"
                remedy += ", or give its values for all splits: measures.imported"
                raise InputError(problem, file=shards.labels.file, remedy=remedy)
        tell(f"validation: recall alone, as {params.measure} is known in the labels alone")
    return []


def _drop_unread_shards(data: Data, params: TrainParams, needed: set[str]) -> Data:
    """The data without shards that this run does not read, with a note. InputError where relevance
    is looked up and there are no shards."""
    looked_up = params.relevance == "shards" and "relevance" in needed
    if data.shards is None and looked_up:
        problem = "relevance is to be looked up, and there are no shards"
        raise InputError(problem, remedy="give --shards")
    if data.shards is None or looked_up or params.composition == "seeded":
        return data
    reason = "batches are random and relevance is not looked up"
    reason += "; train.relevance=shards would, with a graded loss"
    tell(f"{data.shards}: these labels are not read: {reason}")
    return replace(data, shards=None)


def _make_relevance(
    params: TrainParams,
    measures: MeasuresParams,
    captions: Captions,
    rows: np.ndarray,
    shards: LookedUp | None,
) -> BatchRelevance:
    """The relevance of the training captions `rows`. InputError where its values depend on other
    captions of the split too."""
    all_rows = len(rows) == captions.n_captions
    if params.relevance == "exact" and (all_rows or params.measure not in measures.imported):
        between = params.relevance_of == "caption"
        measure = choose([params.measure], measures)[params.measure]
        return ExactRelevance(measure, captions, rows, between)
    if not all_rows:
        problem = "relevance by all captions of the split"
        problem += f", where {len(rows)} of {captions.n_captions} are learnt from"
        remedy = "set train.relevance=exact with a measure of ours, or learn from all captions"
        raise InputError(problem, remedy=remedy)
    assert shards is not None
    # An empty block estimates the value of unknown pairs, or raises its error, before training.
    nothing = np.empty(0, np.int64)
    shards.block(nothing, nothing)
    return shards


def _validation_relevance(
    params: TrainParams,
    measures: MeasuresParams,
    split: Captions,
    kept: np.ndarray,
    held_out: Captions,
) -> np.ndarray:
    """Relevance float32 [n_images, n_captions] of the validation captions by the same measure,
    which is fitted on them; an imported matrix is of the whole split."""
    measure = choose([params.measure], measures)[params.measure]
    if params.measure in measures.imported:
        return measure.fit(split).score(np.unique(split.owner[kept]), kept)
    return measure.fit(held_out).score(np.arange(held_out.n_images))
