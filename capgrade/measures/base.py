"""What a measure is: fitted on the captions of a split, it scores images against all captions."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    get_type_hints,
)

import numpy as np

from capgrade.schemas.block import ParamsBlock, Positive
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import part_of_work

if TYPE_CHECKING:
    from capgrade.measures.corpus import Corpus
    from capgrade.schemas.captions import Captions

CHUNK = 16384  # captions scored at a time: a row of an image's sums stays in a core's cache
_IMAGES = 1024  # whose references are gathered together, where single captions are scored

Sets = tuple[np.ndarray, np.ndarray, bool]  # the fields of `OfReferences`
P = TypeVar("P")
Scorer = Callable[[str], np.ndarray]  # a caption's relevance to every image, float32 [n_images]
# Scores caption rows first..last into the first columns of `out`.
Fill = Callable[[int, int, np.ndarray], None]


# How the values of an image's references are combined, in the words of a dataset's card.
OVER_REFERENCES = {
    "max": "the largest over the references",
    "mean": "the mean over the references",
    "first": "the first reference",
}


class ImagePairs(NamedTuple):
    """Captions to score with images' references, pair by pair, as kernels take them."""

    images: np.ndarray  # int64 [pairs]
    captions: np.ndarray  # int64 [pairs]: rows of a table of captions
    ref_ptr: np.ndarray  # int64 [images + 1]
    # int64: the references of image i are rows refs[ref_ptr[i] : ref_ptr[i + 1]] of another table
    refs: np.ndarray
    # Whether a caption is not among its own references; the two tables are then one.
    leave_out: bool = False


class Fitted(Protocol):
    """A measure fitted on captions: everything a worker needs, as plain arrays.

    `pairs` is its definition in double precision. `score` gives the value that labels have: by a
    `filler` where a measure has one, which is faster and within 1e-6 of the measure's range, else
    by `pairs`. A value depends on the pair and on what was fitted, not on the images and captions
    beside it. Images and captions are int64 numbers of the fitted captions.
    """

    @property
    def has_blocks(self) -> bool:
        """Whether chunks are computed otherwise than by `pairs`. If not, few pairs cost less."""
        return type(self).filler is not Fitted.filler or type(self).chunks is not Fitted.chunks

    def own_left_out(self, images: np.ndarray) -> np.ndarray:
        """Relevance of each own caption of these images, itself not among the references: float32
        [own captions].

        Image after image, in the order of `refs`; NaN where the image has no other caption. Only of
        measures that declare `leaves_out`.
        """
        raise TypeError(f"{type(self).__name__} cannot leave captions out of their references")

    @property
    @abstractmethod
    def columns(self) -> int:
        """How many captions it was fitted on."""

    @abstractmethod
    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """Relevance of captions to images' reference sets, pair by pair: float32 [n]."""

    def on_device(self, device: Any) -> Fitted:
        """The same with rectangles made on a `torch.device`; itself where it has no such form."""
        return self

    @property
    def cells_on_device(self) -> bool:
        """Whether what `on_device` returns has a method `tensor`: `cells` as a tensor there."""
        return False

    def scored(self, images: np.ndarray) -> np.ndarray | None:
        """Of a measure of some pairs those of these images that it scores; None: every pair.

        int64 [scored pairs], rising: the image's place in `images` x `columns` + the caption.
        `pairs` has their values, and `chunks` raises InputError. It is so where `Measure.partial`
        is.
        """
        return None

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """A function that fills rectangles of these images, float32 [len(images), captions].

        It is called for one chunk after the other, from caption row `start` on.
        """

        def fill(first: int, last: int, out: np.ndarray) -> None:
            out[:, : last - first] = self.pairwise(images, np.arange(first, last))

        return fill

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """Values of single captions, the same as in chunks: float32 [len(images), len(captions)].

        Captions come in any order, and may come twice.
        """
        if self.has_blocks:
            return self.score(images)[:, captions]
        return self.pairwise(images, captions)

    def pairwise(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """`pairs` of all of these images and captions: float32 [len(images), len(captions)]."""
        pairs = np.repeat(images, len(captions)), np.tile(captions, len(images))
        return self.pairs(*pairs).reshape(len(images), len(captions))

    def chunks(self, images: np.ndarray, start: int, stop: int, out: np.ndarray) -> Iterator[None]:
        """Score caption rows start..stop, CHUNK of them at each step of the iteration.

        A step fills the first columns of `out`, float32 [len(images), CHUNK]. `start` is a multiple
        of CHUNK; `stop` is one too, or the number of captions.
        """
        fill = self.filler(images, start)
        for first in range(start, stop, CHUNK):
            last = min(first + CHUNK, stop)
            fill(first, last, out)
            self._put_left_out(images, np.arange(first, last), out)
            yield

    def _put_left_out(self, images: np.ndarray, captions: np.ndarray, out: np.ndarray) -> None:
        """Put the values of own pairs into `out` where captions are left out of their references.

        `out` is float32 [len(images), captions or more].
        """
        if getattr(self, "leave_out", False):
            refs, ptr = self.refs, self.ref_ptr  # type: ignore[attr-defined]
            owner = np.empty(self.columns, np.int64)
            owner[refs] = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
            row, column = np.nonzero(images[:, None] == owner[captions])
            out[row, column] = self.pairs(images[row], captions[column])

    def score(self, images: np.ndarray, captions: np.ndarray | None = None) -> np.ndarray:
        """Relevance of these captions, or of all: float32 [len(images), captions]."""
        if captions is not None:
            out = np.empty((len(images), len(captions)), np.float32)
            for start in range(0, len(images) if len(captions) else 0, _IMAGES):
                block = images[start : start + _IMAGES]
                out[start : start + _IMAGES] = self.cells(block, captions)
                self._put_left_out(block, captions, out[start : start + _IMAGES])
            return out
        out = np.empty((len(images), self.columns), np.float32)
        part = np.empty((len(images), CHUNK), np.float32)
        chunks = self.chunks(images, 0, self.columns, part)
        for start in range(0, self.columns, CHUNK):
            with part_of_work(min(CHUNK, self.columns - start), self.columns):
                next(chunks)
            out[:, start : start + CHUNK] = part[:, : self.columns - start]
        return out


@dataclasses.dataclass(frozen=True)
class Scored:
    """One score of candidates: `sentences`, float64 [candidates].

    `statistics`, float64 [candidates, k], are summed, and `of` makes corpus scores [n] of sums [n,
    k].
    """

    sentences: np.ndarray
    statistics: np.ndarray
    of: Callable[[np.ndarray], np.ndarray]

    @property
    def corpus(self) -> float:
        """The score of all candidates together."""
        return float(self.of(self.statistics.sum(axis=0, keepdims=True))[0])


def _mean_of(sums: np.ndarray) -> np.ndarray:
    """Means from sums float64 [n, 2]: of values, and of ones."""
    return sums[:, 0] / sums[:, 1]


def mean_score(values: np.ndarray) -> Scored:
    """Scores of candidates, whose mean is the score of the corpus."""
    values = np.asarray(values, np.float64)
    return Scored(values, np.stack([values, np.ones_like(values)], axis=1), _mean_of)


class NoParams(ParamsBlock):
    """The parameters of a measure that takes none."""


class Shortlist(ParamsBlock):
    """Parameters of a measure that scores what another one ranks first."""

    of: str = "sbert"
    """the measure that ranks: any that scores every pair, or a mixture"""
    top: Positive = 50
    """so many captions of an image are scored, the first by `of`, and its own"""


class Measure(ABC, Generic[P]):
    """A relevance measure with its parameters. Its class declares all that is known of it.

    A package brings a measure by an entry point of the group `capgrade.measures`.
    """

    name: str  # in options, files and columns
    low: float  # bounds of its values
    high: float
    parameters: ClassVar[type[ParamsBlock]] = NoParams
    # Its block of `measures` in params.yaml, None for one that is called as the measure.
    block: ClassVar[str | None] = None
    # Values of that block which this form of a measure decides, as the mean of `sbert_mean`.
    fixed: ClassVar[Mapping[str, Any]] = {}
    # The parameter that says where the images' pictures are, of a measure that looks at them.
    pictures: ClassVar[str | None] = None
    modules: ClassVar[tuple[str, ...]] = ()  # packages of an extra that it needs
    # Whether it is so fast that somebody may wait while it scores an image's pairs.
    at_once: ClassVar[bool] = True
    # Whether it has `Fitted.own_left_out`: captions without themselves among the references.
    leaves_out: bool = True

    def __init__(self, params: P | None = None) -> None:
        given: Any = self.parameters() if params is None else params
        self.params: P = given.model_copy(update=self.fixed)

    @abstractmethod
    def fit(self, captions: Captions) -> Fitted:
        """Prepare the captions of a split. InputError when they do not suit the parameters."""

    def partial(self, captions: Captions) -> bool:
        """Whether it scores some pairs of a split alone, as `Fitted.scored` says.

        The others are unknown.
        """
        return False

    def meaning(self) -> str:
        """What a value is, in a line for a dataset's card: the docstring's first paragraph."""
        return " ".join((type(self).__doc__ or self.name).partition("\n\n")[0].split())

    def files(self) -> dict[str, str]:
        """SHA-256 of every file that it reads. InputError when one is missing.

        Keys are the parameter that names a file, or the file's name.
        """
        return {}

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        """Its scores by name, for `capgrade.score`: of candidates with their images' references.

        A measure that scores no candidates leaves this as it is.
        """
        raise NotImplementedError(f"{self.name} scores no candidates")

    def of_candidates(self, corpus: Corpus) -> np.ndarray:
        """Its value of each candidate with its image's references, float64 [candidates]."""
        return self.of_corpus(corpus)[self.name].sentences

    @property
    def depends_on_corpus(self) -> bool:
        """Whether a candidate's value depends on other candidates' references, too."""
        return False

    @property
    def scores_candidates(self) -> bool:
        """Whether it has `of_corpus`."""
        return type(self).of_corpus is not Measure.of_corpus

    def unseen(self, fitted: Any, captions: Captions) -> Scorer | None:
        """A scorer of captions that are not among the fitted ones; None where there is none.

        A caption is scored as if it were one more row, with the document frequencies and words of
        the fitted captions. So with `self_reference: included` it equals `fitted.score` on a fitted
        caption, within 1e-6 of the range. The scorer raises InputError for a caption without words.
        """
        return None


class State(Fitted):
    """A fitted measure that any number of workers can open from one folder."""

    kinds: ClassVar[dict[str, type[State]]] = {}  # those imported so far, by their `kind`

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        State.kinds[cls.kind()] = cls

    @classmethod
    def kind(cls) -> str:
        """Module and class. It stands beside saved files, so that `state_of` finds the class."""
        return f"{cls.__module__}:{cls.__qualname__}"

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write all that `load` needs."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote."""


def state_of(kind: str) -> type[State]:
    """The class that `State.kind` names; a worker may have imported none of its measure yet."""
    if kind not in State.kinds:
        import_module(kind.partition(":")[0])
    return State.kinds[kind]


@dataclasses.dataclass(frozen=True)
class ArrayState(State):
    """A frozen dataclass of arrays, numbers, named tuples of these, and other states.

    Arrays are `.npy` files, opened by memory map, so workers share their pages; nothing is pickled.
    """

    def save(self, folder: Path) -> None:
        """Write each array as `.npy`, each state as a folder, and all else as `scalars.json`.

        What a named tuple holds is called `field.name`.
        """
        folder.mkdir(parents=True, exist_ok=True)
        scalars, kinds = {}, {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            parts = {field.name: value}
            if isinstance(value, tuple):
                parts = {f"{field.name}.{name}": item for name, item in value._asdict().items()}  # type: ignore[attr-defined]
            for name, item in parts.items():
                if isinstance(item, np.ndarray):
                    np.save(folder / f"{name}.npy", item, allow_pickle=False)
                elif isinstance(item, State):
                    item.save(folder / name)
                    kinds[name] = item.kind()
                else:
                    scalars[name] = item
        (folder / "scalars.json").write_text(json.dumps(scalars), encoding="utf-8")
        (folder / "states.json").write_text(json.dumps(kinds), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote; arrays are opened by memory map, copy on write."""
        saved = json.loads((folder / "scalars.json").read_text(encoding="utf-8"))
        kinds = json.loads((folder / "states.json").read_text(encoding="utf-8"))
        for name, kind in kinds.items():
            saved[name] = state_of(kind).load(folder / name)
        # Copy on write, as numba would compile kernels once more for read-only arrays.
        for path in sorted(folder.glob("*.npy")):
            saved[path.stem] = np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
        values: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}  # of named tuples
        for name, value in saved.items():
            field, _, part = name.partition(".")
            if part:
                parts.setdefault(field, {})[part] = value
            else:
                values[field] = value
        kind_of = get_type_hints(cls)
        for field, of_tuple in parts.items():
            values[field] = kind_of[field](**of_tuple)
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class OfReferences(ArrayState):
    """A fitted measure of captions with reference sets, which are captions too."""

    ref_ptr: np.ndarray  # int64 [n_images + 1]
    # int64 [n_captions]: the references of image i are rows refs[ref_ptr[i] : ref_ptr[i + 1]]
    refs: np.ndarray
    leave_out: bool  # a caption is not among its own references

    @property
    def columns(self) -> int:
        return len(self.refs)

    def own_left_out(self, images: np.ndarray) -> np.ndarray:
        rows, captions = own_pairs(self.ref_ptr, self.refs, images)
        others = np.flatnonzero(np.bincount(rows, minlength=len(images))[rows] > 1)
        values = np.full(len(captions), np.nan, np.float32)
        without = dataclasses.replace(self, leave_out=True)
        values[others] = without.pairs(images[rows[others]], captions[others])
        return values

    def regroup(self, ref_ptr: np.ndarray, refs: np.ndarray) -> Self:
        """The same captions under other reference sets, int64 `ref_ptr` [images + 1] into `refs`
        [references]; a caption among its references is counted."""
        return dataclasses.replace(self, ref_ptr=ref_ptr, refs=refs, leave_out=False)


@dataclasses.dataclass(frozen=True)
class OfPictures(OfReferences):
    """A fitted measure of captions with images' pictures."""

    measure: ClassVar[str]  # its name

    def regroup(self, ref_ptr: np.ndarray, refs: np.ndarray) -> Self:
        """Other references of the same images. InputError for captions in the place of images."""
        if len(ref_ptr) != len(self.ref_ptr):
            problem = (
                f"{self.measure} compares captions with pictures, not captions with each other"
            )
            raise InputError(problem, remedy=f"leave {self.measure} out, or take sbert")
        return super().regroup(ref_ptr, refs)


def own_pairs(
    ref_ptr: np.ndarray, refs: np.ndarray, images: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of one of these images with one of its own captions.

    Returns the image's row in `images` and the caption, int64 each.
    """
    sizes = ref_ptr[images + 1] - ref_ptr[images]
    rows = np.repeat(np.arange(len(images)), sizes)
    captions = [refs[ref_ptr[i] : ref_ptr[i + 1]] for i in images]
    return rows, np.concatenate(captions) if captions else np.empty(0, np.int64)


def sets_of(
    ref_ptr: np.ndarray, refs: np.ndarray, images: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The reference sets of these images alone, in their order: `ref_ptr` and `refs`."""
    rows, own = own_pairs(ref_ptr, refs, images)
    return np.searchsorted(rows, np.arange(len(images) + 1)), own


def reference_sets(self_reference: str, captions: Captions) -> Sets:
    """The fields of `OfReferences`. InputError where a set is left without a caption."""
    leave_out, lonely = self_reference == "left_out", np.flatnonzero(np.diff(captions.ref_ptr) < 2)
    if leave_out and len(lonely):
        first = captions.image_ids[lonely[0]]
        problem = f"{len(lonely)} image(s) have one caption, '{first}' the first: "
        problem += "with self_reference left_out no reference remains"
        raise InputError(problem, remedy="set self_reference to included, or drop these images")
    return captions.ref_ptr, captions.refs, leave_out
