"""Stage `train`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from capgrade.schemas.block import AnyDevice, Natural, ParamsBlock, Positive, Precision, Share
from capgrade.schemas.natures import (
    As,
    Extent,
    How,
    ModelAt,
    OneMeasure,
    PartOf,
    PicturesAt,
    Place,
    Split,
    Where,
    WhereOrName,
    nature_of,
)
from capgrade.schemas.stage import Reads, Shown, Stage

# The best epoch by sums of recall or NCS at 1, 5 and 10, both directions, or by NDCG@25 with the
# gain rel or 2^rel - 1.
BestBy = Literal["rsum", "ndcg", "ndcg_exp", "ncs", "ncs_ordered"]


class ModelFiles(ParamsBlock):
    """Those options of the models that name files: their other options stand in trainer/models."""

    text_model: ModelAt | None = None
    sentence_model: ModelAt | None = None
    pretrained: ModelAt | None = None
    words: WhereOrName | None = None
    stop_words: WhereOrName | None = None


# Those that name a pretrained encoder.
ENCODERS = tuple(
    name
    for name, field in ModelFiles.model_fields.items()
    if isinstance(nature := nature_of(field), Place) and nature.name == "model"
)


class ModelParams(ParamsBlock):
    """A model of trainer/models and what its configuration changes."""

    name: str = "vse"
    options: Annotated[dict[str, Any], PartOf(ModelFiles)] = {}


class TrainParams(ParamsBlock):
    """`capgrade train`: data, model, losses and how long. `preset` names where the rest starts
    from."""

    preset: str | None = None
    """model and loss, of `capgrade list presets` or of --params"""
    images: Annotated[PicturesAt | None, As("regions.images")] = None
    """pictures, of a model that reads them; None: those of regions.images"""
    model: ModelParams = ModelParams()
    loss: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)] = ({"name": "triplet"},)
    measure: OneMeasure = "sbert"
    """relevance, where a loss asks for it"""
    relevance: Literal["exact", "shards"] = "exact"
    """computed for each batch, or looked up"""
    unknown: Literal["estimate", "mask", "bound"] = "estimate"
    """what a looked-up pair gets that was not sampled"""
    relevance_of: Literal["image_set", "caption"] = "image_set"
    """to all captions of the image, or to the paired one"""
    split: Split = "train"
    """the split to learn from"""
    validation: Split | None = "val"
    """None: no validation, the last epoch is kept"""
    share: Share = 1.0
    """of the images of the split"""
    captions_per_image: Positive | None = None
    """None: all"""
    folds: Annotated[int, Field(ge=2)] | None = None
    """so many models, each trained without one part of the images; for the measure `trained`"""
    fold: Natural | None = None
    """the model without this part alone; None: all of them"""
    batch_size: Annotated[int, Field(ge=2)] = 128
    """pairs of a step"""
    composition: Literal["random", "seeded"] = "random"
    """seeded: with captions sampled as relevant to others"""
    unique_images: bool = False
    """no image twice in a batch"""
    drop_last: bool = True
    """false: the pairs that are left over at the end of an epoch make a smaller batch"""
    min_count: Positive = 1
    """of a word in the training captions"""
    epochs: Extent[Positive] = 20
    """passes over the data"""
    lr: Annotated[float, Field(gt=0)] = 5e-4
    """learning rate"""
    encoder_lr: Annotated[float, Field(gt=0)] | None = None
    """of a pretrained encoder; None: lr"""
    layer_decay: Share | None = None
    """of its rate, from each layer to the one below; None: one rate for all"""
    accumulate: Positive = 1
    """batches whose mean gradient makes a step"""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """decay of averaged weights, which are validated and kept"""
    init: Where | None = None
    """a run's folder: its weights to start from, and its vocabulary"""
    init_strict: bool = True
    """false: weights that do not match start afresh, and are named"""
    decay_after: tuple[Positive, ...] = ()
    """epochs after which the rate falls to a tenth"""
    warmup: Natural = 0
    """steps of linear rise"""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's; 0: Adam"""
    all_negatives_first: Natural = 0
    """epochs in which triplets of the hardest negative sum over all negatives"""
    clip: Annotated[float, Field(gt=0)] | None = 2.0
    """norm of the gradient"""
    precision: Precision = "float32"
    """of products; tf32: on a GPU"""
    validation_images: Positive | None = None
    """the first so many of the validation split, where it has more; None: all"""
    validation_fold: Positive | None = None
    """validate in folds of so many images and average: 1000 is COCO 1K"""
    best_by: BestBy = "rsum"
    """what chooses the epoch that is kept"""
    also_best_by: BestBy | None = None
    """the best epoch by this one too, beside the other"""
    patience: Extent[Positive | None] = None
    """epochs without a better validation"""
    unreadable: Extent[Literal["fail", "skip"]] = "fail"
    """of pictures, as regions.unreadable"""
    workers: How[Natural] = 1
    """threads that read batches ahead; 0: none"""
    seed: Natural = 0
    """of all that is drawn"""
    device: How[AnyDevice] = "auto"
    """auto: a GPU where there is one"""
    restart: How[bool] = False
    """start afresh in a folder that holds a run"""

    @model_validator(mode="after")
    def _fits_together(self) -> TrainParams:
        if (self.relevance, self.relevance_of) == ("shards", "caption"):
            raise ValueError(
                "shards hold no relevance between captions: set train.relevance_of=image_set, or"
                " exact"
            )
        if self.fold is not None and self.fold >= (self.folds or 0):
            raise ValueError(
                f"train.fold {self.fold} of train.folds {self.folds}: they are numbered from 0"
            )
        if self.also_best_by == self.best_by:
            raise ValueError(
                f"train.also_best_by is {self.best_by} as train.best_by: name another, or leave"
                " it out"
            )
        return self


def _line(summary: Mapping[str, Any], params: TrainParams) -> str:
    if params.folds is None or params.fold is not None:
        return _line_of_run(summary)
    lines = [f"{name}: {_line_of_run(of_fold)}" for name, of_fold in summary.items()]
    return "\n".join([f"{len(summary)} models", *lines])


def _line_of_run(summary: Mapping[str, Any]) -> str:
    scores = dict(summary.get("best", {}))
    best = "not validated"
    if epoch := scores.pop("epoch", None):
        values = (f"{k} {x:.{1 if k == 'rsum' else 3}f}" for k, x in scores.items())
        best = f"epoch {epoch:.0f}, {', '.join(values)}"
    return f"{summary['epochs']} epochs, loss {summary['loss']:.4f}; best: {best}"


TRAIN = Stage(
    name="train",
    about="""Train a retrieval model; a stopped run goes on when run again, a finished one with more
--epochs.

Labels (--shards) are for --relevance shards: a folder of `shards`, `relevance` or `publish`, or
USER/NAME. Several processes: `torchrun --nproc-per-node 2 -m capgrade.pipelines.cli train ...`.""",
    params=TrainParams,
    reads={
        "captions": Reads("captions"),
        "regions": Reads("regions", needed=False),
        "shards": Reads("shards", needed=False),
    },
    function="capgrade.trainer.fit.train:train",
    line=_line,
    example="--preset sam --captions data/captions --regions data/regions --out run",
    format=6,
    unit="epoch",
    modules=("torch",),
    place="runs/${item.run}",
    shown=(
        Shown(
            "epochs.csv",
            "plots/epochs/${item.run}.csv",
            plot={"x": "epoch", "y": "rsum", "title": "Validation rsum, ${item.run}"},
        ),
    ),
    told=("preset", "images", "split", "epochs", "relevance", "restart"),
)
