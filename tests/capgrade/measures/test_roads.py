"""One value by every road: dense relevance, shards, labels, `score`, rewards, a typed caption,
pycocoevalcap's code."""

import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import capgrade
from capgrade import Labels
from capgrade import coco as ours
from capgrade.measures import choose
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.captions import write_records
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.pipelines.stages.shards import ShardsParams, WindowsParams
from capgrade.schemas.arrow import ArrowFile
from capgrade.schemas.captions import Caption, Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.own_pairs import read_own_pairs
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.shards import read_shards
from capgrade.text.tokens import tokenize
from capgrade.trainer.data.relevance import ExactRelevance

WHITE = [
    "\xa0",
    "\u2003",
    "\u3000",
    "\u202f",
    "\x1c",
    "\x1f",
    "\x85",
    "\x0b",
    "\u2028",
    "\u200b",
    "\ufeff",
    "\t",
]
PIECES = [
    "a",
    "a",
    "the",
    "dog",
    "dog",
    "dogs",
    "runs",
    "running",
    "puppy",
    "two men",
    "on",
    "red",
    "3 1/2",
    "3 1/2",
    "4 1/2",
    "555 123 4567",
    "555-123-4567",
    "<a href='x'>",
    "<b class=y>",  # PTB: a token each
    "3\xa01/2",
    "dog\xa0runs",
    "a\u3000dog",
    "\u2003dog",
    "dog\x1cruns",
    "dog\x85runs",
    "dog\u200bruns",
    *WHITE,
    "一只狗",
    "狗 跑",
    "собака",
    "бежит",
    "कुत्ता",
    "كلب",
    "สุนัข",
    "Straße",
    "é",
    "😀",
    "ΣΑΣ",
    "(",
    ")",
    "n't",
    "don't",
    "dog's",
    "...",
    ".",
    "-",
    "u.s.",
    "&",
    "|",
]
TEXT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map(" ".join)
TOKENIZERS = ("ptb_py", "lower_split", "word_unigram", "characters")
COUNTED = ("cider", "rouge_l", "bleu")
PARAMS = MeasuresParams()


@st.composite
def corpora(draw: st.DrawFn) -> list[list[str]]:
    """Reference sets of 1 to 6 images, of 1 to 4 captions each: of few texts, so that some are
    equal."""
    texts = draw(st.lists(TEXT, min_size=1, max_size=8))
    return draw(
        st.lists(st.lists(st.sampled_from(texts), min_size=1, max_size=4), min_size=1, max_size=6)
    )


NUMBERS = [
    ["We ate 3 1/2 pies", "call 555 123 4567 now"],
    ["a 3 1/2 lb dog"],
    ["call 555 123 4567 now please", "dog"],
]
ALIKE = [["dog runs"], ["dog runs"], ["dog runs", "dog runs"]]  # every idf is 0


@dataclass(frozen=True)
class Corpus:
    """Captions as the stage reads them: those without a token are dropped, and images without
    captions."""

    folder: Path
    sets: list[list[str]]
    lines: list[list[str]]  # tokens with a space between, as pycocoevalcap takes them
    captions: Captions

    @property
    def texts(self) -> list[str]:
        return [text for own in self.sets for text in own]

    def measures(self, *names: str) -> list[str]:
        """Those that can be fitted: document frequencies of one image are refused."""
        return [name for name in names if name != "cider" or self.captions.n_images > 1]


@contextmanager
def written(sets: Sequence[Sequence[str]], tokenizer: str) -> Iterator[Corpus]:
    kept = [[text for text in own if tokenize(tokenizer, [text])[0]] for own in sets]
    kept = [own for own in kept if own]
    assume(kept)
    texts = [(i, k, text) for i, own in enumerate(kept) for k, text in enumerate(own)]
    params = CaptionsParams(source="jsonl", input="-", tokenizer=tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        write_records(
            Path(folder) / "captions",
            [Caption(f"i{i}", f"{i} {k}", "x", t, "", 0) for i, k, t in texts],
            params,
        )
        lines = [[" ".join(tokens) for tokens in tokenize(tokenizer, own)] for own in kept]
        yield Corpus(Path(folder), kept, lines, read_captions(Path(folder) / "captions"))


def by_score(corpus: Corpus, name: str, **options: Any) -> np.ndarray:
    """`capgrade.score` of every caption with every image's reference set: float64 [images,
    captions]."""
    asked, tokenizer = {"bleu": "bleu_4"}.get(name, name), corpus.captions.tokenizer
    candidates = [corpus.texts] * len(corpus.sets)
    found = capgrade.score(
        candidates, corpus.sets, [asked], tokenizer=tokenizer, **options
    ).sentences[asked]
    return found.reshape(len(corpus.sets), -1)


def by_class(corpus: Corpus, name: str, scorers: Any) -> np.ndarray:
    """By pycocoevalcap's class, or ours of its name, a caption of all after the other: float64
    [images, captions]."""
    gts = dict(enumerate(corpus.lines))
    columns = []
    for line in (line for own in corpus.lines for line in own):
        res = {i: [line] for i in gts}
        if name == "bleu":
            columns.append(scorers[name].compute_score(gts, res, verbose=0)[1][3])
        else:
            columns.append(scorers[name].compute_score(gts, res)[1])
    return np.array(columns).T


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    return {"cider": Cider(), "rouge_l": Rouge(), "bleu": Bleu(4)}


def close(found: np.ndarray, wanted: np.ndarray, name: str, where: str) -> None:
    np.testing.assert_allclose(
        found, wanted, atol=1e-5 if name == "cider" else 1e-6, rtol=0, err_msg=f"{name} {where}"
    )


@settings(max_examples=60, deadline=None)
@given(sets=corpora(), tokenizer=st.sampled_from(TOKENIZERS))
@example(sets=NUMBERS, tokenizer="ptb_py")
@example(sets=ALIKE, tokenizer="ptb_py")
def test_relevance_is_what_pycocoevalcap_computes(
    theirs: dict[str, Any], sets: list, tokenizer: str
) -> None:
    """And `score`, its classes here, a reward, and a caption that is typed."""
    with written(sets, tokenizer) as corpus:
        captions, frequencies = corpus.captions, capgrade.Frequencies.of(corpus.sets, tokenizer)
        mine = {"cider": ours.Cider(), "rouge_l": ours.Rouge(), "bleu": ours.Bleu(4)}
        for name in corpus.measures(*COUNTED):
            wanted = by_class(corpus, name, theirs)
            measure = choose([name], PARAMS)[name]
            fitted = measure.fit(captions)
            everything = np.arange(captions.n_captions)
            dense = fitted.score(np.arange(captions.n_images))
            close(dense, wanted, name, "relevance")
            close(
                fitted.score(np.arange(captions.n_images), everything[::-1])[:, ::-1],
                wanted,
                name,
                "some captions",
            )
            close(by_score(corpus, name), wanted, name, "score")
            close(by_class(corpus, name, mine), wanted, name, "class")
            typed = measure.unseen(fitted, captions)
            if typed is not None:
                close(
                    np.stack([typed(text) for text in corpus.texts], axis=1), wanted, name, "typed"
                )
            if name == "cider":
                reward = capgrade.CiderReward(frequencies, tokenizer=tokenizer)
                close(
                    reward([corpus.texts] * len(corpus.sets), corpus.sets), wanted, name, "reward"
                )
                close(
                    by_score(corpus, name, frequencies=frequencies),
                    wanted,
                    name,
                    "score by frequencies",
                )


@settings(max_examples=40, deadline=None)
@given(sets=corpora(), tokenizer=st.sampled_from(TOKENIZERS))
@example(sets=NUMBERS, tokenizer="ptb_py")
def test_frequencies_are_the_same_however_counted(sets: list, tokenizer: str) -> None:
    """Of texts, of a captions folder, and of a file that either wrote; as pycocoevalcap counts
    them."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    with written(sets, tokenizer) as corpus:
        scorer = CiderScorer()
        for own in corpus.lines:
            scorer += (own[0], own)
        scorer.compute_doc_freq()
        wanted = {
            " ".join(ngram): int(images) for ngram, images in scorer.document_frequency.items()
        }
        capgrade.Frequencies.of(corpus.sets, tokenizer).write(corpus.folder / "of.arrow")
        capgrade.Frequencies.of_captions(corpus.captions).write(corpus.folder / "command.arrow")
        capgrade.Frequencies.read(corpus.folder / "captions", tokenizer).write(
            corpus.folder / "folder.arrow"
        )
        capgrade.Frequencies.read(corpus.folder / "of.arrow", tokenizer).write(
            corpus.folder / "again.arrow"
        )
        for file in ("of.arrow", "command.arrow", "folder.arrow", "again.arrow"):
            assert counted(corpus.folder / file) == wanted, file


def test_frequencies_of_words_with_no_break_spaces_are_refused(tmp_path: Path) -> None:
    """As files from before such a token was several words have them: its words would count as
    unseen."""
    words, keys = ["a", "3\xa01/2"], np.array([-1 << 32, -1 << 32 | 1, 1])
    capgrade.Frequencies(
        words, keys, np.array([2, 1, 1]), 2, "", "captions x tokenizer ptb_py"
    ).write(tmp_path / "df.arrow")
    with pytest.raises(
        InputError,
        match="no-break spaces inside.*-> count them again: capgrade frequencies",
    ):
        capgrade.Frequencies.read(tmp_path / "df.arrow")


def counted(path: Path) -> dict[str, int]:
    table = ArrowFile(path).read_all()
    return dict(zip(table["ngram"].to_pylist(), table["images"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def vectors() -> Iterator[None]:
    """A unit vector for each text in place of Sentence-BERT's."""

    def embed(texts: Sequence[str], *_: Any, **__: Any) -> np.ndarray:
        rows = [
            np.random.default_rng(zlib.crc32(text.encode())).standard_normal(8) for text in texts
        ]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("capgrade.measures.sbert.fitted.embed", embed)
        patch.setattr("capgrade.measures.sbert.fitted.load_encoder", lambda *_: None)
        patch.setattr("capgrade.measures.sbert.fitted.encode", lambda _, texts: embed(texts))
        yield


@settings(max_examples=5, deadline=None)
@given(sets=corpora(), tokenizer=st.sampled_from(TOKENIZERS), among=st.sampled_from(["all", 0.5]))
@example(sets=NUMBERS, tokenizer="ptb_py", among="all")
def test_files_hold_what_score_computes(
    vectors: None, sets: list, tokenizer: str, among: Any
) -> None:
    """Dense relevance, sampled shards and the same made exact, read as labels; Sentence-BERT from
    given vectors."""
    with written(sets, tokenizer) as corpus:
        folder, captions = corpus.folder / "captions", corpus.captions
        names = tuple(corpus.measures(*COUNTED, "meteor", "scene_graph", "sbert"))
        sampled = ShardsParams(
            measures=names, top=1, uniform=1, windows=WindowsParams(per_window=1, among=among)
        )
        relevance(
            folder,
            corpus.folder / "relevance",
            RelevanceParams(measures=names, block_images=2),
            PARAMS,
        )
        for step in ({"part": "1/1"}, {"join": True}):
            params = sampled.model_copy(update=step)
            shards(folder, corpus.folder / "shards", params, PARAMS)
        dense, kept = (
            Labels.load(corpus.folder / kind, captions=folder) for kind in ("relevance", "shards")
        )
        for name in names:
            block = captions.image_ids, captions.caption_ids, name
            wanted = by_score(corpus, name)
            matrix, known, _ = dense.block(*block)
            assert known.all()
            close(matrix, wanted, name, "dense")
            values, known, _ = kept.block(*block)
            assert known[captions.owner, np.arange(captions.n_captions)].all()
            assert np.array_equal(values[known], matrix[known]), name
            close(capgrade.exact(kept, name).block(*block)[0], wanted, name, "exact")


# The best value is that of three orders of n-grams, where one caption alone has four.
FOUR_ORDERS = [["a two men"], ["a two men"] * 3, ["a two men"] * 3, ["a a a a"]]
BOTH = {"both": {"cider": 0.1, "rouge_l": -0.5, "sbert": 1.0}}


@settings(max_examples=10, deadline=None)
@given(
    sets=corpora(), tokenizer=st.sampled_from(TOKENIZERS), among=st.sampled_from(["all", 0.5]), top=st.integers(0, 3),
    blocks=st.tuples(st.integers(1, 6), st.integers(1, 6)), left_out=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
@example(
    sets=FOUR_ORDERS, tokenizer="ptb_py", among="all", top=0, blocks=(1, 1), left_out=False, seed=0
)
def test_a_pair_has_one_value(
    vectors: None,
    sets: list,
    tokenizer: str,
    among: Any,
    top: int,
    blocks: tuple[int, int],
    left_out: bool,
    seed: int,
) -> None:
    """Of relevance, shards, `grade`, exact labels and the trainer's batches to the bit, whatever the
    blocks; of own captions without themselves too."""
    names = (*COUNTED, "tfidf_cosine", "scene_graph", "sbert", "both")
    with written(sets, tokenizer) as corpus:
        captions, folder = corpus.captions, corpus.folder / "captions"
        assume(captions.n_images > 1)
        left_out &= min(map(len, corpus.sets)) > 1
        own_too = {"self_reference": "left_out" if left_out else "included"}
        parameters: dict = dict.fromkeys(names[:-1], own_too) | {"mixtures": BOTH}
        params = MeasuresParams.model_validate(parameters)
        dense = RelevanceParams(measures=names, block_images=blocks[0])
        windows = WindowsParams(per_window=1, among=among)
        sampled = ShardsParams(
            measures=names, top=top, uniform=2, windows=windows, block_images=blocks[1]
        )
        relevance(folder, corpus.folder / "relevance", dense, params)
        shards(folder, corpus.folder / "shards", sampled, params)
        found = read_shards(corpus.folder / "shards")
        own = read_own_pairs(corpus.folder / "relevance")
        rows = [row for batch in found.batches() for row in batch.to_pylist()]
        for name in names:
            matrix = read_relevance(corpus.folder / "relevance" / f"{name}.arrow").matrix()
            for row in rows:
                assert np.array_equal(
                    np.float32(row[name]), matrix[row["image"], row["captions"]]
                ), name
            np.testing.assert_array_equal(
                found.left_out(name), own[f"{name}_left_out"], err_msg=name
            )
        random, kept = np.random.default_rng(seed), Labels.load(found.folder, captions=folder)
        images, some = (
            random.integers(0, size, random.integers(1, 2 * size))
            for size in (captions.n_images, captions.n_captions)
        )
        graded = capgrade.grade(folder, measures=names, parameters=parameters)
        for name in names:
            matrix = read_relevance(corpus.folder / "relevance" / f"{name}.arrow").matrix()
            batches = ExactRelevance(choose([name], params)[name], captions)
            roads = {
                "exact labels": capgrade.exact(kept, name).block(images, some),
                "grade": graded.block(images, some, name),
                "the trainer": batches.block(images, some),
            }
            for road, block in roads.items():
                assert np.array_equal(block.relevance, matrix[np.ix_(images, some)]), (name, road)


@settings(max_examples=12, deadline=None)
@given(sets=corpora(), tokenizer=st.sampled_from(TOKENIZERS))
@example(sets=NUMBERS, tokenizer="ptb_py")
def test_an_own_caption_left_out_is_scored_with_the_others(
    vectors: None, sets: list, tokenizer: str
) -> None:
    """Own pairs without the caption among its references, and with `self_reference: left_out`,
    against `score`."""
    with written(sets, tokenizer) as corpus:
        captions, frequencies = corpus.captions, capgrade.Frequencies.of(corpus.sets, tokenizer)
        others = [own[:k] + own[k + 1 :] for own in corpus.sets for k in range(len(own))]
        some = np.flatnonzero([len(one) for one in others])
        assume(len(some))
        for name in corpus.measures(*COUNTED, "meteor", "scene_graph", "sbert"):
            asked = {"bleu": "bleu_4"}.get(name, name)
            wanted = capgrade.score(
                [corpus.texts[k] for k in some],
                [others[k] for k in some],
                [asked],
                tokenizer=tokenizer,
                frequencies=frequencies,
            ).sentences[asked]
            found = np.empty(captions.n_captions, np.float32)
            fitted = choose([name], PARAMS)[name].fit(captions)
            found[captions.refs] = fitted.own_left_out(np.arange(captions.n_images))
            assert np.isnan(np.delete(found, some)).all()
            close(found[some], wanted, name, "own pairs")
            if len(some) == captions.n_captions:
                params = MeasuresParams.model_validate({name: {"self_reference": "left_out"}})
                matrix = (
                    choose([name], params)[name].fit(captions).score(np.arange(captions.n_images))
                )
                close(matrix[captions.owner, some], wanted, name, "left out")


@pytest.fixture(scope="module")
def jar() -> Iterator[dict[str, Any]]:
    if shutil.which("java") is None:
        pytest.skip("no Java to run METEOR's jar")
    from pycocoevalcap.meteor.meteor import Meteor

    with pytest.MonkeyPatch.context() as patch:
        # pycocoevalcap writes UTF-8 in any locale
        patch.setenv("JAVA_TOOL_OPTIONS", "-Dfile.encoding=UTF-8")
        yield {"meteor": Meteor()}


@settings(max_examples=10, deadline=None)
@given(sets=corpora(), tokenizer=st.sampled_from(TOKENIZERS))
@example(sets=NUMBERS, tokenizer="ptb_py")
def test_meteor_is_what_its_jar_computes(jar: dict[str, Any], sets: list, tokenizer: str) -> None:
    """Dense relevance, `score` and the class of pycocoevalcap's name."""
    with written(sets, tokenizer) as corpus:
        wanted = by_class(corpus, "meteor", jar)
        fitted = choose(["meteor"], PARAMS)["meteor"].fit(corpus.captions)
        close(fitted.score(np.arange(corpus.captions.n_images)), wanted, "meteor", "relevance")
        close(by_score(corpus, "meteor"), wanted, "meteor", "score")
        close(by_class(corpus, "meteor", {"meteor": ours.Meteor()}), wanted, "meteor", "class")
