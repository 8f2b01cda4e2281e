"""Everything a run needs, read and checked before the first step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.labels import Labels
from capgrade.labels.batches import BatchPlan
from capgrade.losses import LOSSES, LossTerms
from capgrade.measures import choose, names_of, read_by
from capgrade.measures.params import MeasuresParams
from capgrade.pretrained import fingerprint
from capgrade.schemas.captions import Captions, read_captions, splits_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, digest
from capgrade.schemas.inputs import file_digest, found_digests
from capgrade.schemas.output import run_key
from capgrade.schemas.params import TrainParams
from capgrade.schemas.say import tell
from capgrade.trainer.data.batches import partners, rows_of_share
from capgrade.trainer.data.images import find_images, image_digest, open_images, tell_left_out
from capgrade.trainer.data.pairs import Pairs, require_count
from capgrade.trainer.data.relevance import (
    BatchRelevance,
    ExactRelevance,
    LookedUp,
    learnt_from,
    own_spread,
)
from capgrade.trainer.data.text import Tokens, Vocabulary, make_tokens
from capgrade.trainer.fit import MODEL, VOCABULARY
from capgrade.trainer.fit.checkpoint import start_from
from capgrade.trainer.models import configure, model_of
from capgrade.trainer.models.base import Config, RetrievalModel
from capgrade.trainer.models.cvse import XAVIER
from capgrade.trainer.models.text_encoder import ENGLISH

# of what a stopped run keeps, to be raised too when training gives other values of the same
# parameters
_FORMAT = 5
_VALIDATION = TrainParams().validation  # where no other is named


@dataclass(frozen=True)
class Data:
    """The folders a run reads."""

    captions: Path
    regions: Path | None = None
    # labels made before: shards, dense or published, or USER/NAME of the hub
    shards: Path | None = None
    images: Path | None = None  # pictures, of a model that reads them


@dataclass(frozen=True)
class Setup:
    """A run before its first step."""

    model: RetrievalModel
    config: Config
    tokens: Tokens
    feature_dim: int
    pairs: Pairs
    plan: BatchPlan
    loss: LossTerms
    first_loss: LossTerms  # in the epochs of `all_negatives_first`
    relevance: BatchRelevance | None  # of training pairs, where a loss asks for it
    validation: Pairs | None
    validation_relevance: np.ndarray | None  # [n_images, n_captions]
    inputs: dict[str, str]
    made_of: dict[str, Any]  # everything the result depends on
    not_initial: list[str] | None  # weights that `train.init` did not give; None without it

    @property
    def key(self) -> str:
        return run_key(self.made_of)


def with_validation(data: Data, params: TrainParams) -> TrainParams:
    """The parameters with the split that is there to validate on: where captions have no `val`,
    their `dev`, as SCAN's and Flickr8k's have, which is said. InputError when neither is there and
    none was named."""
    known = splits_of(data.captions)
    if params.validation is None or params.validation in known or "+" in params.validation:
        return params
    if params.validation == _VALIDATION and "dev" in known:
        tell("validation split: dev, as there is no val")
        return params.model_copy(update={"validation": "dev"})
    problem = f"no split '{params.validation}' to validate on"
    remedy = f"choose with --set train.validation=NAME from: {', '.join(known)}; "
    remedy += "--set train.validation=null trains without"
    raise InputError(problem, file=data.captions, remedy=remedy)


def prepare(data: Data, params: TrainParams, measures: MeasuresParams) -> Setup:
    """Read, check and build; the model's weights follow from torch's generator.

    Raises InputError for data that do not fit together, for too little of them, and for unknown
    names.
    """
    # learnt later
    plain = [{key: value for key, value in term.items() if value != "auto"} for term in params.loss]
    data = _without_unread(data, params, LossTerms(plain).needs)
    captions = read_captions(data.captions, params.split)
    rows = rows_of_share(captions, params.images, params.captions_per_image, params.seed)
    store = open_images(
        params.model.name, params.model.options, data.regions, data.images, params.unreadable
    )
    dim = store.metadata["dim"]
    terms: list[Mapping[str, Any]] = list(params.loss)
    if any(term.get("alpha") == "auto" for term in terms):
        known = learnt_from(captions, rows)
        alpha = {
            "alpha": own_spread(
                choose([params.measure], measures)[params.measure].fit(known), known
            )
        }
        terms = [{**term, **alpha} if term.get("alpha") == "auto" else term for term in terms]
    loss, first_loss = LossTerms(terms), LossTerms(_first_terms(terms, params.all_negatives_first))
    config = configure(params.model.name, params.model.options, dim, captions.n_images)
    start = None if params.init is None else Path(params.init)
    learnt = rows[find_images(captions, store, rows).numbers[captions.owner[rows]] >= 0]
    tokens = make_tokens(config, captions, params.min_count, learnt, start)
    pairs = Pairs(captions, store, tokens.encode(captions), rows)
    require_count(config, pairs)
    tell_left_out(captions, rows, pairs.left_out)
    shards = _shards(data, params, captions)
    relevance = (
        _relevance(params, measures, captions, rows, shards) if "relevance" in loss.needs else None
    )
    if relevance is not None:
        loss.check_scale(params.measure, *relevance.span)
    split = None if params.validation is None else read_captions(data.captions, params.validation)
    held_out, kept = split, np.empty(0, np.int64)
    if split is not None:
        found = find_images(split, store)
        tell_left_out(split, np.arange(split.n_captions), found.left_out)
        kept = np.flatnonzero(found.numbers[split.owner] >= 0)
        if params.validation_images is not None:  # the authors' loaders take 1,000 of COCO's 5,000
            kept = kept[
                np.isin(split.owner[kept], np.unique(split.owner[kept])[: params.validation_images])
            ]
        held_out = learnt_from(split, kept)
    if held_out is not None and (fold := params.validation_fold) and held_out.n_images % fold:
        problem = (
            f"train.validation_fold {fold} does not divide the {held_out.n_images} images of the"
            " validation split"
        )
        raise InputError(problem, remedy="use a divisor, such as 1000 of 5000, or leave it out")
    computed = _computed(params, measures, shards, held_out)
    folders = {
        "captions": data.captions,
        **({} if shards is None else {"shards": Path(shards.labels.file)}),
    }
    inputs = {name: digest(folder / MANIFEST) for name, folder in folders.items()}
    inputs |= image_digest(store, [captions] if held_out is None else [captions, held_out])
    inputs |= {**read_by(computed, measures), **model_inputs(config)}
    if start is not None:  # the weights, and the words that their numbers mean
        inputs |= found_digests(init=start / MODEL, init_vocabulary=start / VOCABULARY)
    model = model_of(params.model.name)(config, dim, tokens.size)
    if isinstance(tokens, Vocabulary):
        model.learn_words(
            tokens.words, [pairs.tokens[row] for row in pairs.rows], captions.owner[pairs.rows]
        )
    not_initial = None if start is None else start_from(model, start / MODEL, params.init_strict)
    beside = partners(pairs, shards) if params.composition == "seeded" else None
    batches = params.batch_size, params.seed, beside, params.unique_images, params.drop_last
    plan = BatchPlan(captions.owner, pairs.rows, *batches)
    validation = None if held_out is None else Pairs(held_out, store, tokens.encode(held_out))
    dense = None
    if split is not None and held_out is not None and computed:
        dense = _dense(params, measures, split, kept, held_out)
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
        made_of=_made_of(params, measures.used(computed), inputs),
        not_initial=not_initial,
    )


def _computed(
    params: TrainParams,
    measures: MeasuresParams,
    shards: LookedUp | None,
    held_out: Captions | None,
) -> list[str]:
    """The measure, but where labels alone know it: then validation has recall alone, which is said.
    InputError where the best epoch is to be found by more."""
    if shards is None or params.measure in names_of(measures):
        return [params.measure]
    if held_out is not None:
        for key in ("best_by", "also_best_by"):
            if getattr(params, key) not in (None, "rsum"):
                problem = (
                    f"train.{key} is {getattr(params, key)}, and {params.measure} is known in the"
                    " labels alone"
                )
                remedy = (
                    f"set train.{key}=rsum, or give its values for all splits: measures.imported"
                )
                raise InputError(problem, file=shards.labels.file, remedy=remedy)
        tell(f"validation: recall alone, as {params.measure} is known in the labels alone")
    return []


def _made_of(
    params: TrainParams, measures: dict[str, Any], inputs: dict[str, str]
) -> dict[str, Any]:
    """What the result depends on, epoch for epoch: not where it is computed, nor how long it goes
    on."""
    passing = {"device", "workers", "epochs", "patience", "unreadable"}
    # its weights are among the inputs
    lasting = params.model_dump(mode="json", exclude=passing | {"init"})
    return {"format": _FORMAT, "train": lasting, "measures": measures, "inputs": inputs}


def model_inputs(config: Config) -> dict[str, str]:
    """Digests of what a model reads: its pretrained text encoder or dual encoder, its own list of
    stop words, and word vectors that someone else learned."""
    models = {name: getattr(config, name, None) for name in ("text_model", "pretrained")}
    files = {name: getattr(config, name, None) for name in ("stop_words", "words")}
    known = {name: fingerprint(path) for name, path in models.items() if path is not None}
    return known | {
        key: file_digest(Path(path))
        for key, path in files.items()
        if path not in (None, ENGLISH, XAVIER)
    }


def _without_unread(data: Data, params: TrainParams, needed: set[str]) -> Data:
    """The data without shards that this run does not read, which is said. InputError where it looks
    up relevance and there are none."""
    looked_up = params.relevance == "shards" and "relevance" in needed
    if data.shards is None and looked_up:
        raise InputError(
            "relevance is to be looked up, and there are no shards", remedy="give --shards"
        )
    if data.shards is None or looked_up or params.composition == "seeded":
        return data
    why = (
        "batches are random and relevance is not looked up; train.relevance=shards would, with a"
        " graded loss"
    )
    tell(f"{data.shards}: these labels are not read: {why}")
    return replace(data, shards=None)


def _shards(data: Data, params: TrainParams, captions: Captions) -> LookedUp | None:
    """The shards that were given."""
    if data.shards is None:
        return None
    labels = Labels.load(
        data.shards, measures=[params.measure], split=captions.split, captions=data.captions
    )
    return LookedUp(labels, params.measure, params.unknown)


def _relevance(
    params: TrainParams,
    measures: MeasuresParams,
    captions: Captions,
    rows: np.ndarray,
    shards: LookedUp | None,
) -> BatchRelevance:
    """Labels of the captions that are learnt from, `rows`. InputError where the source knows of
    others too."""
    whole = len(rows) == captions.n_captions
    if params.relevance == "exact" and (whole or params.measure not in measures.imported):
        between = params.relevance_of == "caption"
        return ExactRelevance(
            choose([params.measure], measures)[params.measure], captions, rows, between
        )
    if not whole:
        problem = (
            f"relevance by all captions of the split, where {len(rows)} of {captions.n_captions}"
            " are learnt from"
        )
        raise InputError(
            problem,
            remedy="set train.relevance=exact with a measure of ours, or learn from all captions",
        )
    assert shards is not None
    nothing = np.empty(0, np.int64)
    shards.block(nothing, nothing)  # what stands for unknown pairs is estimated now, or refused
    return shards


def _dense(
    params: TrainParams,
    measures: MeasuresParams,
    split: Captions,
    kept: np.ndarray,
    held_out: Captions,
) -> np.ndarray:
    """float32 [n_images, n_captions]: relevance of what is validated on by the same measure, which
    knows of nothing else, but for a matrix that someone else computed: that is of the whole split.
    """
    measure = choose([params.measure], measures)[params.measure]
    if params.measure in measures.imported:
        return measure.fit(split).score(np.unique(split.owner[kept]), kept)
    return measure.fit(held_out).score(np.arange(held_out.n_images))


def _first_terms(terms: Sequence[Mapping[str, Any]], epochs: int) -> list[Mapping[str, Any]]:
    """Triplets of the hardest negative over all of them. InputError when epochs of that are asked
    for, and no term is such a triplet."""
    first = [
        (
            {**term, "negatives": "sum"}
            if term.get("name") == "triplet"
            and {**LOSSES["triplet"].defaults, **term}["negatives"] == "hard"
            else term
        )
        for term in terms
    ]
    if epochs and first == list(terms):
        problem = (
            f"train.all_negatives_first is {epochs}, and no triplet of the hardest negative is in"
            " train.loss"
        )
        raise InputError(problem, remedy="set train.all_negatives_first=0, or add {name: triplet}")
    return first
