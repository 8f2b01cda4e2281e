"""Cross-encoders as measures, by tiny random ones: the scores of sentence-transformers itself, of
the pairs that another measure ranks first. What was not scored is unknown on every road."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from sentence_transformers import CrossEncoder

import capgrade
from capgrade import Labels
from capgrade.apps.explorer.corpus import read_labels
from capgrade.apps.explorer.plans import plan_most_informative, plan_pool
from capgrade.measures import choose, parts_of
from capgrade.measures.base import state_of
from capgrade.measures.params import MeasuresParams
from capgrade.measures.refit import meaning_of
from capgrade.measures.reranker import fitted as reranker
from capgrade.schemas.arrow import read_arrow
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.own_pairs import read_own_pairs
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.shards import read_shards
from tests.apps.judging.test_cross_encoder import OfColours
from tests.apps.judging.tiny import random_model
from tests.conftest import (
    WORDS,
    call,
    caption_table,
    make_captions,
    random_sets,
    refusal,
    write_captions_folder,
)

SETS = random_sets(12, seed=6, least=2, most=3)
TOP = 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, CrossEncoder]:
    """The folder of a random cross-encoder, and the library's own object of it."""
    folder: Path = tmp_path_factory.mktemp("models") / "tiny"
    return str(folder), random_model(folder, WORDS)


def params_of(folder: str, mixtures: Any = None, **more: Any) -> MeasuresParams:
    block = {"model": folder, "of": "rouge_l", "top": TOP, **more}
    return MeasuresParams.model_validate({"reranker": block, "mixtures": mixtures or {}})


@pytest.fixture(scope="module")
def between(model: tuple[str, CrossEncoder]) -> np.ndarray:
    """float32 [captions, captions]: the library's own scores of a query and a document."""
    texts = make_captions(SETS).texts
    scores = model[1].predict([(query, document) for query in texts for document in texts])
    return scores.reshape(len(texts), len(texts))


def expected(between: np.ndarray, references: str = "max", left_out: bool = False) -> np.ndarray:
    """float64 [n_images, n_captions] by a plain loop."""
    captions = make_captions(SETS)
    out = np.full((captions.n_images, captions.n_captions), np.nan)
    for image in range(captions.n_images):
        for caption in range(captions.n_captions):
            own = [r for r in captions.rows_of(image) if not (left_out and r == caption)]
            if references == "first":
                own = own[:1]
            values = between[own, caption]
            out[image, caption] = values.mean() if references == "mean" else values.max()
    return out


@pytest.fixture(scope="module")
def dense(between: np.ndarray) -> np.ndarray:
    return expected(between)


def scored_pairs(captions: Captions, top: int = TOP) -> np.ndarray:
    """bool [n_images, n_captions]: own captions, and the first by ROUGE-L; a tie goes either way,
    so that the test's captions must have none at the end of the list."""
    values = choose(["rouge_l"], MeasuresParams())["rouge_l"].fit(captions)
    matrix = values.score(np.arange(captions.n_images))
    falling = -np.sort(-matrix, axis=1)
    assert (falling[:, top - 1] > falling[:, top]).all()
    own = captions.owner == np.arange(captions.n_images)[:, None]
    return own | (matrix >= falling[:, top - 1 : top])


class World(NamedTuple):
    """A folder with captions and their shards by the measure, a mixture with it, and ROUGE-L."""

    here: Path
    sets: dict[str, object]

    def line(self, measures: str, **changes: object) -> list[object]:
        """Options of a command, with these parameters besides: `_` stands for a dot."""
        sets = self.sets | {key.replace("_", ".", 1): value for key, value in changes.items()}
        options = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
        return ["--captions", self.here / "captions", "--measures", measures, *options]


@pytest.fixture(scope="module")
def made(model: tuple[str, CrossEncoder], tmp_path_factory: pytest.TempPathFactory) -> World:
    here: Path = tmp_path_factory.mktemp("made")
    write_captions_folder(here / "captions", [caption_table(SETS)])
    sets = {"measures.reranker.model": model[0], "measures.reranker.of": "rouge_l"}
    sets |= {"measures.reranker.top": TOP, "shards.top": 3, "shards.uniform": 8}
    sets |= {"shards.windows.per_window": 2}
    world = World(here, sets | {"measures.mixtures": "{both: {reranker: 0.5, rouge_l: 0.5}}"})
    assert call("shards", *world.line("rouge_l,reranker,both"), "--out", here / "shards") == 0
    return world


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("references", ["max", "mean", "first"])
def test_values_are_the_librarys_own(
    model: tuple[str, CrossEncoder],
    between: np.ndarray,
    references: str,
    left_out: bool,
    tmp_path: Path,
) -> None:
    captions = make_captions(SETS)
    wanted = expected(between, references, left_out)
    sets = {"references": references, "self_reference": "left_out" if left_out else "included"}
    params = params_of(model[0], top=10**6, **sets)  # more than there are: every pair
    measure = choose(["reranker"], params)["reranker"]
    fitted = measure.fit(captions)
    images = np.arange(captions.n_images)
    found = fitted.score(images)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert np.ptp(wanted) > 0.1 and not measure.partial(captions)
    assert fitted.scored(images) is None
    without = expected(between, references, left_out=True)
    own = without[captions.owner, np.arange(captions.n_captions)]
    np.testing.assert_allclose(fitted.own_left_out(images), own, atol=1e-6)
    fitted.save(tmp_path / "fit")  # type: ignore[attr-defined]
    opened = state_of(fitted.kind()).load(tmp_path / "fit")
    np.testing.assert_array_equal(opened.score(images[3:5]), found[3:5])
    pairs = opened.pairs(np.array([9, 2]), np.array([1, 7]))
    np.testing.assert_allclose(pairs, found[[9, 2], [1, 7]], atol=1e-6)


def test_shards_have_what_was_scored_for_certain_and_nothing_else(
    made: World, dense: np.ndarray
) -> None:
    """Every pair that is scored, of weight 1; null elsewhere. Other pairs are as without it."""
    here = made.here
    captions = read_captions(here / "captions")
    wanted, shards = scored_pairs(captions), read_shards(here / "shards")
    assert shards.metadata["reasons"][2::2] == ["top_rouge_l", "scored_reranker", "scored_both"]
    assert call("shards", *made.line("rouge_l"), "--out", here / "alone") == 0
    alone = {
        (row["image"], caption): kept
        for batch in read_shards(here / "alone").batches()
        for row in batch.to_pylist()
        for caption, *kept in zip(row["captions"], row["weight"], row["reasons"], strict=True)
    }
    seen, unknown = np.zeros_like(wanted), 0
    for batch in shards.batches():
        for row in batch.to_pylist():
            image = row["image"]
            for caption, value, mixed, rouge, weight, why in zip(
                *(row[name] for name in ("captions", "reranker", "both", "rouge_l", "weight", "reasons")),
                strict=True,
            ):  # fmt: skip
                known = wanted[image, caption]
                assert (value is not None) == (mixed is not None) == known
                assert bool(why & 16) == bool(why & 64) == known and not why & (32 | 128)
                before = alone.get((image, caption))
                if known:
                    assert weight == 1 and abs(value - dense[image, caption]) < 1e-6
                    assert abs(mixed - (value + rouge) / 2) < 1e-6
                    seen[image, caption] = True
                else:
                    unknown += 1
                    assert before == [weight, why]
            own = row["reranker_left_out"]
            assert len(own) == len(SETS[image]) and None not in own
    assert (seen == wanted).all() and unknown > 100
    assert all(wanted[pair] or pair in alone for pair in zip(*np.nonzero(seen), strict=True))


def test_bytes_depend_on_no_block(made: World) -> None:
    """Nor on parts."""
    line = made.line("rouge_l,reranker,both", shards_block_images=5)
    assert call("shards", *line, "--out", made.here / "blocks") == 0
    for number in (1, 2):
        assert call("shards", *line, "--part", f"{number}/2", "--out", made.here / "parts") == 0
    assert call("shards", *line, "--join", "--out", made.here / "parts") == 0
    whole, blocks, parts = (
        [row for batch in read_shards(made.here / name).batches() for row in batch.to_pylist()]
        for name in ("shards", "blocks", "parts")
    )
    assert whole == blocks == parts


def test_labels_know_what_was_scored(
    made: World, model: tuple[str, CrossEncoder], dense: np.ndarray
) -> None:
    here = made.here
    labels = Labels.load(here / "shards", captions=here / "captions")
    wanted = scored_pairs(labels.table)
    for name in ("reranker", "both"):
        found, known, weights = labels.block(labels.image_ids, range(labels.n_captions), name)
        assert (known == wanted).all() and (weights == wanted).all()
        assert (found[known] > 0).all() and (found[~known] == 0).all()
        for unknown in ("estimate", "bound"):
            with pytest.raises(InputError, match=f"{name} scores some pairs alone"):
                labels.block([0], [0], name, unknown=unknown)  # type: ignore[arg-type]
    rows = labels.block(labels.image_ids, range(labels.n_captions), "rouge_l").known
    assert (rows | wanted == rows).all() and rows.sum() > wanted.sum()
    found = labels.block(labels.image_ids, range(labels.n_captions), "reranker").relevance
    np.testing.assert_allclose(found[wanted], dense[wanted], atol=1e-6)
    low, high = labels.stored.span("reranker")
    assert (low, high) == (found[wanted].min(), found[wanted].max())
    best = labels.neighbours(3, top=1000, measure="reranker")
    assert len(best) == wanted[3].sum() and best[0][1] == found[3].max()
    of_caption = labels.positives(5, above=0, measure="reranker")
    assert {one for one, _ in of_caption} == {f"i{k}" for k in np.flatnonzero(wanted[:, 5])}
    query, _, values = labels.judgements("reranker", "captions")
    assert len(query) == wanted.sum() and not np.isnan(values).any()
    negatives = labels.negatives(1, accepted_below=0.5, measure="reranker")
    images = negatives.anchors, negatives.documents[:, 1:].ravel()
    assert wanted[images].all() and (found[images] < 0.5).all()
    assert len(labels.batches(4, measure="reranker"))
    with pytest.raises(
        InputError, match="scores some pairs alone, .* -> evaluate by a measure of every pair"
    ):
        capgrade.evaluate(dense.astype(np.float32), labels, ["ndcg@5"], measure="reranker")

    with pytest.raises(InputError, match="reranker.model .* is not opened unasked"):
        capgrade.exact(labels, "reranker")
    exact = capgrade.exact(labels, "reranker", model=model[0])
    block = exact.block([4, 1], [30, 2, 11])
    assert block.known.all()
    np.testing.assert_allclose(block.relevance, dense[[[4], [1]], [30, 2, 11]], atol=1e-6)
    with pytest.raises(InputError, match="scores the first 5 of .* and a matrix has all"):
        exact.neighbours(0, top=1)
    mixed = capgrade.exact(labels, "both", model=model[0]).block([4, 1], [30, 2, 11]).relevance
    rouge = capgrade.exact(labels, "rouge_l").block([4, 1], [30, 2, 11]).relevance
    np.testing.assert_allclose(mixed, (block.relevance + rouge) / 2, atol=1e-6)


def test_a_dense_matrix_is_of_every_pair(made: World, dense: np.ndarray, tmp_path: Path) -> None:
    n = dense.shape[1]
    for names in ("reranker", "rouge_l,both"):
        said = refusal("relevance", *made.line(names), "--out", tmp_path / names)
        assert f"reranker scores the first {TOP} of {n} captions of an image, and a matrix" in said
        assert "make shards, which hold what is known; or score every pair: " in said
        assert f"--set measures.reranker.top={n}" in said
    line = made.line("reranker", **{"measures_reranker.top": n})
    assert call("relevance", *line, "--out", tmp_path / "r") == 0
    matrix = read_relevance(tmp_path / "r" / "reranker.arrow").matrix()
    np.testing.assert_allclose(matrix, dense, atol=1e-6)
    assert "reranker_left_out" in read_own_pairs(tmp_path / "r")
    assert call("shards", *line, "--out", tmp_path / "s") == 0  # a measure as any other
    assert "top_reranker" in read_shards(tmp_path / "s").metadata["reasons"]


def test_grade(model: tuple[str, CrossEncoder], dense: np.ndarray) -> None:
    given = {f"i{k}": own for k, own in enumerate(SETS)}
    how: Any = {"measures": "reranker", "tokenizer": "lower_split"}
    how["parameters"] = {"reranker": {"model": model[0], "of": "rouge_l", "top": TOP}}
    with pytest.raises(InputError, match="make shards, which hold what is known"):
        capgrade.grade(given, **how)
    labels = capgrade.grade(given, sample=capgrade.Sampling(top=1, uniform=5), **how)
    block = labels.block(labels.image_ids, range(labels.n_captions))
    assert (block.known == scored_pairs(make_captions(SETS))).all()
    np.testing.assert_allclose(block.relevance[block.known], dense[block.known], atol=1e-6)


def test_publish_has_nulls_and_is_read_again(
    made: World, tmp_path: Path, model: tuple[str, CrossEncoder]
) -> None:
    here = made.here
    given = ["--captions", here / "captions", "--shards", here / "shards", "--license", "cc0-1.0"]
    assert call("publish", *given, "--out", tmp_path / "d") == 0
    labels = Labels.load(here / "shards", captions=here / "captions")
    wanted, n = scored_pairs(labels.table), labels.n_captions
    table = pq.read_table(next((tmp_path / "d" / "relevance").glob("*.parquet")))
    assert table.num_rows - table["reranker"].null_count == wanted.sum()
    assert table["rouge_l"].null_count == 0 and not np.isnan(table["reranker"].drop_null()).any()
    published = Labels.load(tmp_path / "d")
    for name in labels.measures:
        for one, other in zip(
            published.block(labels.image_ids, range(n), name),
            labels.block(labels.image_ids, range(n), name),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(InputError, match="reranker scores some pairs alone"):
        published.block([0], [0], "reranker", unknown="estimate")
    card = (tmp_path / "d" / "README.md").read_text()
    row = "of reference and caption, 0..1: the largest over the references; of own captions and"
    assert f"(`tiny`) {row} the first {TOP} by `rouge_l`, null of others |" in card
    block = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])["measures"]["reranker"]
    assert (block["of"], block["top"], "measures" in block) == ("rouge_l", TOP, False)
    grades = ("--layout", "mteb", "--set", "publish.measure=reranker")
    grades += ("--set", "publish.grades={some: 0.000001}")
    assert call("publish", *given, *grades, "--out", tmp_path / "m") == 0
    qrels = pq.read_table(next((tmp_path / "m" / "i2t-qrels").glob("*.parquet")))
    assert qrels.num_rows == wanted.sum()


def test_the_explorer_asks_of_what_every_measure_knows(made: World) -> None:
    here = made.here
    corpus = read_labels(here / "shards", MeasuresParams(), captions_dir=here / "captions")
    captions, wanted = corpus.captions, scored_pairs(corpus.captions)
    plan = plan_most_informative(corpus.pairs, captions, "x", 10, seed=0)
    assert len(plan.items) == 10
    for item in plan.items:
        image = captions.image_numbers[item.image_id]
        caption = captions.caption_numbers[item.caption_id]
        assert wanted[image, caption]
    pool = plan_pool(corpus.pairs, {}, captions, "x", depth=2, count=30, seed=0)
    assert pool.facts["strata"]["uncertain"]["chosen"]
    pages = corpus.pairs.take(np.arange(20))
    assert np.isnan(pages.values["reranker"]).any()


def test_an_audit_takes_a_measure_of_every_pair(made: World, tmp_path: Path) -> None:
    here = made.here
    dense = here / "people"
    assert call("relevance", *made.line("rouge_l"), "--out", dense) == 0
    given = [*made.line("reranker,rouge_l"), "--judgements", dense / "rouge_l.arrow"]
    calibrate = ("--calibrate", "--out", tmp_path / "agree", "--accept", "0.4")
    calibration = tmp_path / "agree" / "calibration.json"
    assert call("agree", *given, *calibrate) == 0
    audit = ["audit", "--captions", here / "captions", "--shards", here / "shards"]
    audit += ["--calibration", calibration, "--out", tmp_path / "a.html"]
    said = refusal(*audit, "--measure", "reranker")
    assert "reranker scores some pairs alone, which do not tell how many others fit" in said
    assert call(*audit, "--measure", "rouge_l") == 0
    # What values mean to people is null where they are.
    publish = ["publish", "--captions", here / "captions", "--shards", here / "shards"]
    publish += ["--license", "cc0-1.0", "--calibration", calibration]
    assert call(*publish, "--out", tmp_path / "d") == 0
    table = pq.read_table(next((tmp_path / "d" / "relevance").glob("*.parquet")))
    assert table["reranker_score"].null_count == table["reranker"].null_count > 0
    labels = Labels.load(tmp_path / "d")
    known = labels.block(range(3), range(labels.n_captions), "reranker_score").known
    assert (known == scored_pairs(labels.table)[:3]).all()


def test_people_judge_any_pair_and_a_mixture_says_who_ranks(
    made: World, dense: np.ndarray, tmp_path: Path
) -> None:
    """`agree` scores the judged pairs, wherever they rank."""
    here = made.here
    captions = read_captions(here / "captions")
    with (tmp_path / "judged.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image_id", "caption_id", "score"])
        for image, caption in np.random.default_rng(0).permutation(list(np.ndindex(dense.shape)))[
            :200
        ]:
            score = round(float(dense[image, caption]) * 100)
            rows.writerow([f"i{image}", captions.caption_ids[caption], score])
    given = [*made.line("reranker,rouge_l"), "--judgements", tmp_path / "judged.csv"]
    given += ["--scale", "0..100", "--mixture", "fitted"]
    assert call("agree", *given, "--out", tmp_path / "agree") == 0
    for row in read_arrow(tmp_path / "agree" / "judged.arrow").to_pylist():
        assert abs(row["reranker"] - dense[row["image"], row["caption"]]) < 1e-6
    written = yaml.safe_load((tmp_path / "agree" / "fitted.yaml").read_text())["measures"]
    assert written["reranker"] | {"model": 0} == {"of": "rouge_l", "top": TOP, "model": 0}
    assert "reranker" in written["mixtures"]["fitted"]


def test_what_ranks_must_score_every_pair(model: tuple[str, CrossEncoder], tmp_path: Path) -> None:
    mixtures = {"mix": {"reranker": 0.5, "rouge_l": 0.5}, "plain": {"bleu": 0.5, "rouge_l": 0.5}}
    for of in ("reranker", "mix", "image_reranker"):
        params = params_of(model[0], mixtures, of=of)
        for name in ("reranker", "mix"):
            with pytest.raises(
                InputError, match="which does not score every pair -> name a measure"
            ):
                choose([name], params)
        assert "reranker" in parts_of(["mix"], params)
    with pytest.raises(InputError, match="measures.reranker.of: unknown measure 'none' -> choose"):
        choose(["reranker"], params_of(model[0], of="none"))
    params = params_of(model[0], mixtures, of="plain")
    assert parts_of(["reranker"], params) == {"reranker", "bleu", "rouge_l"}
    used = params.used(["reranker"])["reranker"]
    assert used["measures"]["plain"]["weights"] == mixtures["plain"]
    assert "the first 5 by `plain`" in meaning_of("reranker", used)
    captions = make_captions(SETS)
    fitted: Any = choose(["reranker"], params)["reranker"].fit(captions)
    fitted.save(tmp_path / "fit")
    opened: Any = state_of("capgrade.measures.shortlist:FittedShortlist").load(tmp_path / "fit")
    np.testing.assert_array_equal(opened.scored(np.arange(4)), fitted.scored(np.arange(4)))
    other = params_of(model[0], of="sbert").model_copy(
        update={"sbert": MeasuresParams().sbert.model_copy(update={"references": "mean"})}
    )
    assert other.used(["reranker"]) != params_of(model[0], of="sbert").used(["reranker"])


def test_what_cannot_be_is_refused(made: World, tmp_path: Path) -> None:
    here = made.here
    given = ["shards", "--captions", here / "captions", "--out", tmp_path / "s"]
    said = refusal(*given, "--measures", "reranker")
    assert (
        "reranker needs measures.reranker.model -> give --set measures.reranker.model=..." in said
    )
    random_model(tmp_path / "three", WORDS, labels=3)
    three = ("--set", f"measures.reranker.model={tmp_path / 'three'}")
    said = refusal(*given, "--measures", "reranker", *three)
    assert "the model has 3 labels -> give a model of one score" in said
    none = made.line("reranker,both", shards_uniform=0)
    said = refusal("shards", *none, "--out", tmp_path / "s")
    assert "no sample of all pairs: reranker, both have no windows -> set shards.uniform" in said
    assert not (tmp_path / "s").exists()
    some = made.line("reranker,both", shards_uniform=1)
    assert call("shards", *some, "--out", tmp_path / "s") == 0


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A picture of each image, more or less red."""
    (tmp_path / "pictures").mkdir()
    for k in range(len(SETS)):
        picture = Image.new("RGB", (8, 8), (15 * k, 0, 0))
        picture.save(tmp_path / "pictures" / f"i{k}.png")
    return tmp_path / "pictures"


def test_a_model_that_sees_scores_pictures(
    model: tuple[str, CrossEncoder],
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = {"model": model[0], "of": "rouge_l", "top": TOP, "images": str(pictures)}
    params = MeasuresParams.model_validate({"image_reranker": block})
    captions = make_captions(SETS)
    with pytest.raises(InputError, match="the model takes no pictures -> give a model that does"):
        choose(["image_reranker"], params)["image_reranker"].fit(captions)
    seeing = CrossEncoder(modules=[OfColours()], device="cpu")
    monkeypatch.setattr(reranker, "load_cross_encoder", lambda name, device: seeing)
    reranker._load_once.cache_clear()
    given = {f"i{k}": own for k, own in enumerate(SETS)}
    sample, how = capgrade.Sampling(top=1, uniform=5), {"image_reranker": {**block, "images": None}}
    with pytest.raises(InputError, match="needs measures.image_reranker.images"):
        capgrade.grade(given, sample=sample, measures="image_reranker", parameters=how)
    labels = capgrade.grade(
        given, pictures, sample=sample, measures="image_reranker", parameters=how,
        tokenizer="lower_split", out=tmp_path / "out",
    )  # fmt: skip
    found = labels.block(labels.image_ids, range(captions.n_captions))
    assert (found.known == scored_pairs(captions)).all()
    for image, caption in zip(*np.nonzero(found.known), strict=True):
        logit = 15 * image / 255 * (1 + ("dog" in captions.texts[caption]))
        assert found.relevance[image, caption] == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-5)
    assert read_shards(tmp_path / "out" / "shards").left_out("image_reranker") is None
    (pictures / "i3.png").unlink()
    with pytest.raises(InputError, match="i3"):
        choose(["image_reranker"], params)["image_reranker"].fit(captions)
    reranker._load_once.cache_clear()
