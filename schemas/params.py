"""params.yaml as typed models, one frozen model per block. Unknown keys and wrong values are
refused with one error."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from capgrade.schemas.block import (
    QUOTED,
    AnyDevice,
    Finite,
    MeasureDevice,
    Natural,
    ParamsBlock,
    Positive,
    Precision,
    Share,
    Tokenizer,
)
from capgrade.schemas.errors import InputError, choose_from, nearest
from capgrade.schemas.licences import OTHER, SPDX, UNKNOWN_LICENCE
from capgrade.schemas.lines import read_text
from capgrade.schemas.natures import (
    DatasetAt,
    Extent,
    How,
    ModelAt,
    PartOf,
    PicturesAt,
    Place,
    Scratch,
    Split,
    Where,
    WhereOrName,
    nature_of,
    of_parts,
)
from capgrade.schemas.reading import reason_of

_Source = Literal[
    "scenes",
    "coco",
    "karpathy",
    "flickr",
    "precomp",
    "tsv",
    "csv",
    "jsonl",
    "hub",
    "webdataset",
    "memory",
]
_SEVERAL = ("coco", "karpathy", "tsv", "csv", "jsonl", "webdataset")  # take more than one input
WITH_COLUMNS = ("tsv", "csv", "jsonl", "hub", "webdataset")


def _share_or_count(value: float) -> float:
    if value >= 1 and not value.is_integer():
        raise ValueError("give a share below 1, or a whole number of images")
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


LanguageTag = Annotated[str, Field(pattern=r"^[A-Za-z]{2,}(-[A-Za-z0-9]+)*$")]
SplitSize = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_share_or_count)]
# The best epoch by sums of recall or NCS at 1, 5 and 10, both directions, or by NDCG@25 with the
# gain rel or 2^rel - 1.
BestBy = Literal["rsum", "ndcg", "ndcg_exp", "ncs", "ncs_ordered"]
# the papers' values by name; params.yaml adds others
PRESETS = Path(__file__).with_name("presets.yaml")


class Columns(ParamsBlock):
    """Names of the columns of a table or Hugging Face dataset that hold each field; of tars, the
    keys of KEY.json."""

    # None: "image_id"; a Hugging Face dataset without an id has "<split>-<row>"
    image_id: str | None = None
    caption_id: str | None = None  # None: "caption_id" where it exists, else "<image_id>#<k>"
    caption: str | None = None  # None: "caption", a text or a list of texts; of tars, KEY.txt
    split: str | None = None  # None: "split" where it exists, else the split asked for
    image_file: str | None = None  # None: "image_file", "file_name" or "filename" where it exists


class ScenesParams(ParamsBlock):
    """The embedded world: how many scenes per split, how large, and the seed of everything."""

    train: Natural = 1000
    val: Natural = 200
    test: Natural = 300
    captions_per_image: Positive = 5
    size: Annotated[int, Field(ge=64, le=1024)] = 224  # pixels, square
    seed: Natural = 0


class CaptionsParams(ParamsBlock):
    """`capgrade captions`: where captions come from and how they are tokenised."""

    source: _Source = "scenes"
    # a file, a folder, a list of them or, for `hub`, a dataset id
    input: DatasetAt | tuple[DatasetAt, ...] | None = None
    split: str | None = None  # keep this split; or the name of the split where the source has none
    config: str | None = None  # of a Hugging Face dataset that has several
    revision: str | None = None  # of a dataset on the hub: a commit makes the run repeatable
    split_lists: dict[str, Where] = {}  # split -> file of image ids (Flickr)
    # splits of a source that has none: a share, or so many images; the rest is train
    divide: dict[str, SplitSize] = {}
    columns: Columns = Columns()
    tokenizer: Tokenizer = "ptb_py"
    empty: Literal["refuse", "drop"] = "refuse"
    scenes: ScenesParams = ScenesParams()

    @model_validator(mode="after")
    def _fits_the_source(self) -> CaptionsParams:
        """Everything that the source needs is given, and nothing that it would ignore."""
        if self.source not in ("scenes", "memory") and not self.input:
            raise ValueError(f"source {self.source} needs an input, captions.input or --input")
        if self.source == "scenes" and (self.input or self.split):
            given = self.input or self.split
            raise ValueError(
                f"source scenes takes no input or split, here '{given}'; name a source, as"
                " --source csv"
            )
        if self.split_lists and self.source != "flickr":
            raise ValueError(f"source {self.source} takes no split lists, flickr does")
        if self.divide and (self.source == "scenes" or self.split):
            raise ValueError(
                "captions.divide makes splits: leave out"
                f" captions.{'split' if self.split else 'source'}"
            )
        if self.columns != Columns() and self.source not in WITH_COLUMNS:
            raise ValueError(
                f"source {self.source} takes no columns; tsv, csv, jsonl, hub and webdataset do"
            )
        if self.source == "webdataset" and self.columns != Columns(caption=self.columns.caption):
            raise ValueError(
                "source webdataset takes the column caption alone: a key of KEY.json instead of"
                " KEY.txt"
            )
        if len(self.inputs) > 1 and self.source not in _SEVERAL:
            raise ValueError(
                f"source {self.source} takes one input; {', '.join(_SEVERAL)} take several"
            )
        return self

    @property
    def inputs(self) -> tuple[str, ...]:
        """What is read, one after the other."""
        return (self.input,) if isinstance(self.input, str) else self.input or ()


class RelevanceParams(ParamsBlock):
    """`capgrade relevance`: the dense matrix of each measure for an evaluation split."""

    split: Split | None = None
    measures: Annotated[tuple[str, ...], Field(min_length=1)] = ("cider", "rouge_l", "sbert")
    dtype: Literal["float32", "float16"] = "float32"
    device: How[MeasureDevice] = "cpu"  # of blocks; on a GPU values differ by up to 1e-5
    block_images: How[Positive] = 64  # images that a worker scores together
    # URL that workers on other machines exchange files by; None: they see --out
    exchange: How[str | None] = None


class WindowsParams(ParamsBlock):
    """Stratified sample: `per_window` captions from each window of `width`, shifted by `stride`.

    Both are shares of the measure's range. The default gives Sentence-BERT, on [-1, 1], the windows
    of BCLS: width 0.2, stride 0.1.
    """

    width: Share = 0.1
    stride: Annotated[float, Field(ge=1e-4, le=1)] = 0.05
    per_window: Natural = 4
    # the share of the captions, drawn for each image, that windows draw from
    among: Share | Literal["all"] = "all"


class Sampling(ParamsBlock):
    """Which captions each image keeps, beside its own.

    >>> Sampling(top=8, uniform=16).windows.per_window
    4
    """

    top: Natural = 64  # captions of highest relevance, by each measure
    windows: WindowsParams = WindowsParams()
    uniform: Natural = 64  # captions drawn uniformly
    seed: Natural = 0

    @model_validator(mode="after")
    def _a_chance_for_every_pair(self) -> Self:
        """Without a chance a pair is never kept, and no weight of others makes up for it."""
        windows = self.windows
        if self.uniform == 0 and (windows.per_window == 0 or windows.stride > windows.width):
            why = (
                "no windows"
                if windows.per_window == 0
                else f"stride {windows.stride} above width {windows.width}"
            )
            raise ValueError(
                f"uniform 0 with {why} leaves pairs without a chance, and sums of weights fall"
                " short; set shards.uniform to 1 or more, or windows that cover the range"
            )
        return self


class ShardsParams(Sampling):
    """`capgrade shards`: the sampled subset of captions that each training image keeps."""

    split: Split | None = None
    measures: Annotated[tuple[str, ...], Field(min_length=1)] = ("cider", "rouge_l", "sbert")
    # of blocks; on a GPU values differ by up to 1e-5, and pairs at edges of windows
    device: How[MeasureDevice] = "cpu"
    target_mb: Extent[Positive] = 64  # size of a shard, about
    block_images: How[Positive] = 64  # images that a worker scores together
    # URL that workers on other machines exchange files by; None: they see --out
    exchange: How[str | None] = None


class FeaturesParams(ParamsBlock):
    """Features that others made: a format of `capgrade regions import`, its file or folder, and how
    they are stored."""

    format: str
    # or one alone
    input: Annotated[tuple[Where, ...], BeforeValidator(_listed), Field(min_length=1)]
    # of npy: a text file of image ids for each input
    ids: Annotated[tuple[Where, ...], BeforeValidator(_listed)] = ()
    # of tsv and lxmert; None: told by the values
    input_dtype: Literal["float16", "float32", "float64"] | None = None
    dtype: Literal["float16", "float32"] = "float32"


class RegionsParams(ParamsBlock):
    """`capgrade regions`: pictures or features, the detector, the boxes it keeps, how it runs and
    what is stored."""

    images: PicturesAt | None = None  # pictures, as --images takes them
    features: FeaturesParams | None = None  # instead of pictures and a detector
    image_column: str | None = None  # of Parquet files or a dataset that has several of pictures
    # the column of ids there; None: image_id, else the picture's path or row
    image_id: Extent[str | None] = None
    # or bottom_up, detectron2, patches; asked for where the pictures are no scenes
    detector: str = "scenes"
    # a checkpoint, or "random": seeded, for tests of speed and limits
    weights: WhereOrName | None = None
    config: WhereOrName | None = None  # of detectron2: a file, or a name of its model zoo
    # of patches: efficientnet-lite2, or a vision transformer or convolutional network of
    # transformers, its folder or hub id
    model: ModelAt | None = None
    # of patches: a regions folder whose boxes are pooled over, instead of a grid
    boxes_of: Where | None = None
    seed: Natural = 0  # of random weights
    # N, or MIN-MAX
    boxes: Annotated[str, BeforeValidator(str), Field(pattern=r"^[1-9]\d*(-[1-9]\d*)?$")] = "36"
    # airsplay: MAX regressed boxes, as LXMERT's features
    selection: Literal["bottom_up", "airsplay"] = "bottom_up"
    # a box that passes counts towards MIN and MAX
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.2
    nms_threshold: Share = 0.3  # of the suppression within each class
    proposals: Positive | None = None  # None: as many as the checkpoint was made with
    # of convolutions and products; None: bf16 on a GPU, else float32
    precision: Precision | None = None
    device: How[AnyDevice] = "auto"
    batch: Positive = 8  # pictures of one size at a time
    workers: How[Natural] = 2  # processes that decode and resize; 0: none beside the model's
    # pictures that are missing or damaged; skip: left out and counted
    unreadable: Extent[Literal["fail", "skip"]] = "fail"
    # with captions: of these splits, such as val+test; None: all
    split: Extent[Split | None] = None
    dtype: Literal["float16", "float32"] = "float16"
    target_mb: Positive = 64  # a shard at most, about; what a stop can lose

    @model_validator(mode="after")
    def _fewest_first(self) -> RegionsParams:
        if self.box_range[0] > self.box_range[1]:
            raise ValueError(f"boxes {self.boxes}: write MIN-MAX, the smaller first")
        return self

    @property
    def pictures(self) -> Path | None:
        """Where the pictures lie."""
        return None if self.images is None else Path(self.images)

    @property
    def box_range(self) -> tuple[int, int]:
        """The fewest and the most boxes an image keeps."""
        low, _, high = self.boxes.partition("-")
        return int(low), int(high or low)

    def result(self) -> dict[str, Any]:
        """What a picture's features depend on, beside the picture and the detector's files."""
        return of_parts(self)


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
    model: ModelParams = ModelParams()
    loss: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)] = ({"name": "triplet"},)
    measure: str = "sbert"  # relevance, where a loss asks for it
    relevance: Literal["exact", "shards"] = "exact"  # computed for each batch, or looked up
    # what a looked-up pair gets that was not sampled
    unknown: Literal["estimate", "mask", "bound"] = "estimate"
    # to all captions of the image, or to the paired one
    relevance_of: Literal["image_set", "caption"] = "image_set"
    split: Split = "train"
    validation: Split | None = "val"  # None: no validation, the last epoch is kept
    images: Share = 1.0  # share of the images of the split
    captions_per_image: Positive | None = None  # None: all
    # so many models, each trained without one part of the images; for the measure `trained`
    folds: Annotated[int, Field(ge=2)] | None = None
    fold: Natural | None = None  # the model without this part alone; None: all of them
    batch_size: Annotated[int, Field(ge=2)] = 128
    # seeded: with captions sampled as relevant to others
    composition: Literal["random", "seeded"] = "random"
    unique_images: bool = False  # no image twice in a batch
    # false: the pairs that are left over at the end of an epoch make a smaller batch
    drop_last: bool = True
    min_count: Positive = 1  # of a word in the training captions
    epochs: Extent[Positive] = 20
    lr: Annotated[float, Field(gt=0)] = 5e-4
    encoder_lr: Annotated[float, Field(gt=0)] | None = None  # of a pretrained encoder; None: lr
    # of its rate, from each layer to the one below; None: one rate for all
    layer_decay: Share | None = None
    accumulate: Positive = 1  # batches whose mean gradient makes a step
    # decay of averaged weights, which are validated and kept
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    init: Where | None = None  # a run's folder: its weights to start from, and its vocabulary
    init_strict: bool = True  # false: weights that do not match start afresh, and are named
    decay_after: tuple[Positive, ...] = ()  # epochs after which the rate falls to a tenth
    warmup: Natural = 0  # steps of linear rise
    weight_decay: Annotated[float, Field(ge=0)] = 0.0  # AdamW's; 0: Adam
    # epochs in which triplets of the hardest negative sum over all negatives
    all_negatives_first: Natural = 0
    clip: Annotated[float, Field(gt=0)] | None = 2.0  # norm of the gradient
    precision: Precision = "float32"  # of products; tf32: on a GPU
    # the first so many of the validation split, where it has more; None: all
    validation_images: Positive | None = None
    # validate in folds of so many images and average: 1000 is COCO 1K
    validation_fold: Positive | None = None
    best_by: BestBy = "rsum"
    also_best_by: BestBy | None = None  # the best epoch by this one too, beside the other
    patience: Extent[Positive | None] = None  # epochs without a better validation
    unreadable: Extent[Literal["fail", "skip"]] = "fail"  # of pictures, as regions.unreadable
    workers: How[Natural] = 1  # threads that read batches ahead; 0: none
    seed: Natural = 0
    device: How[AnyDevice] = "auto"

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


class EvaluateParams(ParamsBlock):
    """`capgrade evaluate`: what stands for the images, and which metrics at which depths."""

    split: Split | None = None
    # this caption of each image stands for the image and leaves the gallery
    stand_in: Natural | None = None
    k: tuple[Positive, ...] = (1, 5, 10)
    p: Positive = 25  # depth of NDCG
    m: tuple[Positive, ...] = (5, 10)  # sizes of the extension set of semantic recall
    fold: tuple[Positive, ...] = ()  # also average over folds of so many images: 1000 is COCO 1K
    metric: tuple[str, ...] = ()  # these instead of the whole set
    # measure -> value over which a pair is right: relevant_recall@K, relevant_r@K, relevant_map@r
    above: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    ties: Literal["expected", "reference"] = "expected"
    samples: Natural = 1000  # bootstrap draws of the intervals; 0: none
    seed: Natural = 0
    instances: Where | None = None  # COCO's instances json, for PMRP
    # people's scores of pairs, as agree.judgements, to compare the model's scores with
    judgements: tuple[WhereOrName, ...] = ()
    # with --run: score a TERN or TERAN by this alignment (MrSw, MwSr, ...), not by its own
    pooling: str | None = None
    # with --run: the best epoch by train.also_best_by; None: by train.best_by
    best_by: BestBy | None = None
    unreadable: Literal["fail", "skip"] = "fail"  # with --run on pictures, as regions.unreadable
    # with --run: similarity of another model; only what it ranks first is scored
    coarse: Where | None = None
    coarse_top: Positive = 100  # captions per image and images per caption that `coarse` keeps
    test: Literal["permutation", "bootstrap"] = "permutation"  # of --compare with two evaluations


class PublishParams(ParamsBlock):
    """`capgrade publish`: what the dataset card says that the data cannot."""

    name: str = "capgrade-scenes"
    # the tag it is published under
    version: Annotated[str, Field(pattern=r"^\w(\.?[\w-])*$", max_length=64)] = "1.0.0"
    license: str | None = None  # required to publish
    license_name: str | None = None  # of a licence the hub has no identifier for, `license: other`
    license_link: str | None = None
    # Of the captions, as the hub names it, or several: [en, de]; None: en where they are English,
    # else required.
    language: LanguageTag | tuple[LanguageTag, ...] | None = None
    description: str = ""
    authors: tuple[str, ...] = ()
    # YYYY-MM-DD
    date: Annotated[str, BeforeValidator(str), Field(pattern=r"^\d{4}-\d\d-\d\d$")] | None = None
    citation: str = ""
    repository: str | None = None  # USER/NAME on the hub, for the examples of the card
    # own pairs also without the caption among its references, where the shards have that
    left_out: bool = True
    # mteb: a retrieval benchmark, with grades of one measure
    layout: Literal["pairs", "mteb"] = "pairs"
    measure: str | None = None  # of mteb's grades; None: the only one
    # of mteb: names of rising thresholds; how many a value reaches is its grade
    grades: dict[str, Finite] = {}

    @property
    def languages(self) -> tuple[str, ...]:
        """Those given."""
        return (self.language,) if isinstance(self.language, str) else self.language or ()

    @model_validator(mode="after")
    def _a_licence_the_hub_knows(self) -> PublishParams:
        if self.license not in (None, OTHER, UNKNOWN_LICENCE, *SPDX):
            close = nearest(self.license, [OTHER, *SPDX], cutoff=0.4)
            raise ValueError(
                f"licence '{self.license}' is unknown to the hub; near it:"
                f" {', '.join([*close, OTHER])}"
            )
        if self.license == OTHER and not (self.license_name and self.license_link):
            raise ValueError("licence 'other' needs publish.license_name and publish.license_link")
        return self

    @model_validator(mode="after")
    def _grades_that_rise(self) -> PublishParams:
        edges = list(self.grades.values())
        if edges != sorted(set(edges)):
            raise ValueError(f"the thresholds of publish.grades do not rise: {edges}")
        return self


class JudgedColumns(ParamsBlock):
    """Names of the columns of a table of judged texts."""

    candidate: str | None = None  # None: candidate, cand or mt
    references: str | None = None  # None: references or refs
    score: str | None = None  # None: score or human_score


class AgreeParams(ParamsBlock):
    """`capgrade agree`: the judgements and how they are read."""

    # as --judgements takes them; null in a params.yaml: there are none
    judgements: WhereOrName | None = None
    # score from which a person accepts a pair; None: 3 of 5, or half of the shares of yes
    accept: float | None = None
    # LOW..HIGH, where the file does not say
    scale: Annotated[str, Field(pattern=r"^\S+\.\.\S+$")] | None = None
    # random: any pair was as likely to be judged; None: chosen
    sampling: Literal["random", "chosen"] | None = None
    columns: JudgedColumns = JudgedColumns()


class AlignParams(ParamsBlock):
    """`capgrade search --words` in the pipeline: the run of `runs` whose words are drawn."""

    run: str | None = None  # a TERAN's; null in a params.yaml: none is drawn


class ScoreParams(ParamsBlock):
    """`capgrade score`: tokenizer of the captions, and the bootstrap of intervals and p-values."""

    tokenizer: str = "ptb_py"  # as pycocoevalcap; or another of docs/captions.md
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95  # of the intervals
    samples: Positive = 1000  # bootstrap draws
    seed: Natural = 0


class ExploreParams(ParamsBlock):
    """`capgrade explore`: what the page shows beside the labels, and how pairs to rate are chosen
    (--sample)."""

    # for uploaded pictures: scenes or bottom_up, with the settings of `regions`
    detector: str | None = None
    judgements: WhereOrName | None = None  # people's scores, as `agree` reads them
    host: How[str] = "127.0.0.1"  # address to listen on; the default is this machine only
    port: How[Annotated[int, Field(ge=0, le=65535)]] = 7860  # 0 takes a free one
    count: Positive = 100  # --sample: pairs; with --run, missed queries of ten pairs each
    # --sample --run: whose misses: i2t of images, t2i of captions
    direction: Literal["i2t", "t2i"] = "i2t"
    gallery: Positive | None = None  # --sample --run: search the first so many images alone
    seed: Natural = 0  # --sample: of the drawing and of each reviewer's order
    # --sample: so many best of each label and similarity, unsure and random pairs
    pool: Positive | None = None
    similarity: tuple[Where, ...] = ()  # models' similarity matrices: on the pages, or of a pool


class JudgeParams(ParamsBlock):
    """`capgrade judge`: what is asked, how fast, and at what price."""

    # YAML files of what is asked, or names of those that come with capgrade; of several each is a
    # row of the table
    prompt: Annotated[tuple[WhereOrName, ...], BeforeValidator(_listed)] = ()
    parallel: How[Annotated[int, Field(ge=1, le=256)]] = 4  # requests at a time
    # most requests per minute
    per_minute: How[Annotated[float, Field(ge=0.01)] | None] = None
    price_in: Annotated[float, Field(ge=0)] = 0.0  # of a million tokens sent
    price_out: Annotated[float, Field(ge=0)] = 0.0  # of a million tokens answered
    retries: How[Natural] = 2  # of a connection that fails; what is answered is never asked again
    timeout: How[Annotated[float, Field(ge=0.1)]] = 60.0  # seconds that a whole answer may take
    device: How[MeasureDevice] = "cpu"  # of a model in this process


class BenchParams(ParamsBlock):
    """`capgrade bench NAME`: sizes and inputs of the benchmarks, named in brackets."""

    split: str | None = None
    out: Scratch | None = None  # folder to write (corpus)
    images: Positive | None = None  # to make (corpus)
    vectors: bool = False  # also vectors.npy, stand-ins for sentence embeddings (corpus)
    embeddings: Where | None = None  # such a vectors.npy, if encoding would take too long (shards)
    # random pairs of the peer beside own ones; METEOR's: one an image (relevance, gates)
    pairs: Natural = 20_000
    flickr: Where | None = None  # captions folder of Flickr30K's train split (gates)


def with_preset(
    train: dict[str, Any], more: dict[str, Any], file: Path | None = None
) -> dict[str, Any]:
    """The block `train` upon the preset it names, which may stand upon another (`base`); mappings
    are merged, lists and values replaced. InputError for an unknown preset, listing the known ones,
    and for a circle."""
    known = {**shipped_presets(), **more}
    layers, name = [train], train.get("preset")
    while name is not None:
        name = str(name)
        if not isinstance(known.get(name), dict):
            raise InputError(
                f"unknown preset '{name}'",
                file=file,
                remedy=choose_from(name, sorted(known), "capgrade list presets"),
            )
        if len(layers) > len(known):
            raise InputError(
                f"preset '{name}' stands upon itself", file=file, remedy="mend its base"
            )
        layers.append(known[name])
        name = known[name].get("base")
    found: dict[str, Any] = {}
    for layer in reversed(layers):
        found = merged(found, {key: value for key, value in layer.items() if key != "base"})
    return found


@cache
def shipped_presets() -> dict[str, Any]:
    """The presets that come with capgrade, by name, as they stand in the file."""
    return yaml.safe_load(PRESETS.read_text(encoding="utf-8"))


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` upon `below`: mappings are merged, lists and values replaced."""
    both = {**below, **above}
    for key, value in above.items():
        if isinstance(value, dict | None) and isinstance(below.get(key), dict):
            both[key] = merged(below[key], value or {})
    return both


_MOST_VALUES = 1_000_000  # of a YAML file; a few lines of aliases may stand for more


class _Loader(yaml.SafeLoader):
    """Of a key that stands twice in a mapping, YAML would keep the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names = [
            key.value
            for key, _ in node.value
            if isinstance(key, yaml.ScalarNode) and key.value != "<<"
        ]
        if twice := [name for k, name in enumerate(names) if name in names[:k]]:
            raise yaml.YAMLError(
                f"'{twice[0]}' stands twice in one block, in line {node.start_mark.line + 1} or"
                " below"
            )
        return node

    def construct_scalar(self, node: Any) -> Any:
        """JSON writes a sign beyond 16 bits as the two halves that UTF-16 has of it; YAML would
        keep them apart."""
        return super().construct_scalar(node).encode("utf-16", "surrogatepass").decode("utf-16")


def read_yaml(path: Path) -> dict:
    """The mapping in a YAML file. InputError for another file."""
    tree = _parsed(read_text(path), file=path) or {}
    if not isinstance(tree, dict):
        raise InputError(
            "not a mapping of names to values",
            file=path,
            remedy="begin it with a block, such as shards:",
        )
    return tree


def _parsed(text: str, what: str = "", file: Path | None = None) -> Any:
    try:
        tree = yaml.load(text, _Loader)
        if _count_values(tree, {}) > _MOST_VALUES:
            raise ValueError(f"it stands for more than {_MOST_VALUES:,} values")
    except Exception as error:  # a date that no calendar has, a tag of another type, no end
        raise InputError(
            f"{what}not valid YAML: {reason_of(error)}", file=file, remedy=QUOTED
        ) from error
    return tree


def _count_values(tree: Any, counts: dict[int, int]) -> int:
    """How many values a tree has when its aliases are written out; `counts` are those of parts that
    are counted already."""
    if not isinstance(tree, dict | list):
        return 1
    if id(tree) not in counts:
        counts[id(tree)] = 1  # while its parts are counted, as it may contain itself
        parts = [*tree, *tree.values()] if isinstance(tree, dict) else tree
        counts[id(tree)] = 1 + sum(_count_values(part, counts) for part in parts)
    return counts[id(tree)]


def override(tree: dict, given: str) -> None:
    """Set one value of a tree of blocks, as `--set a.b.c=VALUE`. InputError for something else."""
    key, equals, text = given.partition("=")
    if not equals:
        raise InputError(
            f"'{given}' is not KEY=VALUE", remedy="write --set measures.sbert.references=mean"
        )
    put(tree, key, _parsed(text, f"'{given}' is "))


def put(tree: dict, key: str, value: Any) -> None:
    """Set one value of a tree of blocks, by its key a.b.c. InputError where a block should stand
    and a value does."""
    *parents, last = key.split(".")
    for parent in parents:
        if tree.get(parent) is None:
            tree[parent] = {}
        tree = tree[parent]
        if not isinstance(tree, dict):
            raise InputError(f"'{key}': '{parent}' is a value, not a block")
    tree[last] = value
