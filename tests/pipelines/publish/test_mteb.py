"""The layout `mteb`: its tables against plain loops over the labels, what the card says, checks and
refusals."""

import ast
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset

from capgrade.labels import Labels
from capgrade.metrics import ndcg
from capgrade.params import load_params
from capgrade.pipelines.publish.check import check
from capgrade.pipelines.publish.folder import publish
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest
from tests.conftest import call

from .conftest import PARAMS as TINY
from .test_croissant import opened

GRADES = {"related": 0.3, "fits": 0.5}
NAME = 'a "tiny" one'
PARAMS = TINY.model_copy(
    update={"name": NAME, "layout": "mteb", "measure": "rouge_l", "grades": GRADES}
)


@pytest.fixture(scope="module")
def benchmark(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("benchmark") / "out"
    publish(made / "captions", [made / "dense", made / "relevance"], out, PARAMS)  # train and val
    return out


def test_the_tables_are_those_of_plain_loops(made: Path, benchmark: Path) -> None:
    labels = Labels.load(made / "dense", captions=made / "captions", measures=["rouge_l"])
    values = labels.block(labels.image_ids, labels.caption_ids).relevance
    pairs = {
        (image, caption): values[i, c]
        for i, image in enumerate(labels.image_ids)
        for c, caption in enumerate(labels.caption_ids)
        if values[i, c] >= 0.3 or labels.owner[c] == i
    }
    assert 0 < sum(value < 0.5 for value in pairs.values()) < len(pairs) < values.size
    for way in ("t2i", "i2t"):
        queries, corpus, qrels, gains = (
            load_dataset(
                str(benchmark),
                f"{way}-{name}",
                split="train",
                cache_dir=str(benchmark.parent / "cache"),
            )
            for name in ("queries", "corpus", "qrels", "gains")
        )
        texts, images = (queries, corpus) if way == "t2i" else (corpus, queries)
        assert list(texts["id"]) == labels.caption_ids and list(texts["text"]) == labels.texts
        assert list(images["id"]) == labels.image_ids
        assert (qrels.features["score"].dtype, gains.features["gain"].dtype) == ("int32", "float64")
        found, gain_of = (
            {
                ids if way == "i2t" else ids[::-1]: row[column]
                for row in table
                for ids in [(row["query-id"], row["corpus-id"])]
            }
            for table, column in ((qrels, "score"), (gains, "gain"))
        )
        assert found == {ids: int(v >= 0.3) + int(v >= 0.5) for ids, v in pairs.items()}
        every = {
            (image, caption): float(values[i, c])
            for i, image in enumerate(labels.image_ids)
            for c, caption in enumerate(labels.caption_ids)
        }
        assert gain_of == {ids: gain for ids, gain in every.items() if gain > 0}, "no grade cuts"
        assert sum(gain < 0.3 for gain in gain_of.values()) > 0 and len(gains) == len(gain_of)
        order = {name: k for k, name in enumerate(queries["id"])}
        assert (np.diff([order[name] for name in qrels["query-id"]]) >= 0).all()


def test_no_query_is_lost_where_its_own_pair_is_of_grade_0(made: Path, tmp_path: Path) -> None:
    params = PARAMS.model_copy(update={"measure": "cider", "grades": {"more than any": 11.0}})
    publish(made / "captions", [made / "dense"], tmp_path / "out", params)
    qrels = pq.read_table(tmp_path / "out" / "t2i-qrels")
    assert set(qrels["score"].to_pylist()) == {0}
    assert (
        qrels["query-id"].to_pylist() == pq.read_table(tmp_path / "out" / "texts")["id"].to_pylist()
    )


def test_ndcg_by_gains_is_that_of_all_values(made: Path, benchmark: Path) -> None:
    """A tool that reads float gains and takes what is absent as 0 has the NDCG of the matrix."""
    labels = Labels.load(made / "dense", captions=made / "captions", measures=["rouge_l"])
    values = labels.block(labels.image_ids, labels.caption_ids).relevance
    scores = np.random.default_rng(0).permuted(np.arange(values.size)).reshape(values.shape)
    gain_of: dict[str, dict[str, float]] = {}
    for row in pq.read_table(benchmark / "i2t-gains" / "train-00000-of-00001.parquet").to_pylist():
        gain_of.setdefault(row["query-id"], {})[row["corpus-id"]] = row["gain"]
    discounts = 1 / np.log2(np.arange(2, 12))
    for image, scored, true in zip(labels.image_ids, scores, values, strict=True):
        gains = gain_of[image]
        ranked = [gains.get(labels.caption_ids[c], 0.0) for c in np.argsort(-scored)[:10]]
        best = sorted(gains.values(), reverse=True)[:10]
        best += [0.0] * (10 - len(best))
        theirs = (ranked * discounts).sum() / (best * discounts).sum()
        assert theirs == pytest.approx(ndcg(scored[None].astype(float), true[None], 10)[0])


def test_card_croissant_and_manifest_hold_for_it(
    made: Path, benchmark: Path, tmp_path: Path
) -> None:
    card = (benchmark / "README.md").read_text()
    assert (
        "| 2 | fits | 0.5 |" in card
        and "mteb counts it as 0" in card
        and "capgrade relevance" in card
    )
    task = ast.parse((benchmark / "task.py").read_text())
    names = [node.name for node in task.body if isinstance(node, ast.ClassDef)]
    assert names == ["ATinyOneT2I", "ATinyOneI2T"] and "import ATinyOneI2T, ATinyOneT2I" in card
    constants = [node.value for node in ast.walk(task) if isinstance(node, ast.Constant)]
    assert {"A. Author: Tiny.", "cc-by-4.0", "1.2.0", "eng-Latn"} <= set(constants)
    checked = check(str(benchmark))
    assert (
        checked.problems == ()
        and checked.files == len(read_manifest(benchmark, "publish")["files"]) + 1
    )
    name = "t2i-gains/train-00000-of-00001"
    gains = [record[f"{name}/gain"] for record in opened(benchmark).records(name)]
    assert gains == pq.read_table(benchmark / f"{name}.parquet")["gain"].to_pylist()
    (benchmark / "t2i-qrels" / "train-00001-of-00002.parquet").write_bytes(b"")
    assert "not in manifest.json" in str(check(str(benchmark)).problems[0])
    (benchmark / "t2i-qrels" / "train-00001-of-00002.parquet").unlink()
    publish(made / "captions", [made / "dense", made / "relevance"], tmp_path / "again", PARAMS)
    assert all(
        (tmp_path / "again" / n).read_bytes() == (benchmark / n).read_bytes()
        for n in ("manifest.json", "SHA256SUMS")
    )


def test_sampled_labels_say_what_mteb_makes_of_them(made: Path, tmp_path: Path) -> None:
    given = [
        "--layout",
        "mteb",
        "--captions",
        str(made / "captions"),
        "--shards",
        str(made / "train"),
    ]
    grades = [
        "--license",
        "mit",
        "--set",
        "publish.measure=rouge_l",
        "--set",
        "publish.grades={fits: 0.5}",
    ]
    assert call("publish", *given, *grades, "--out", str(tmp_path / "out")) == 0
    said = (tmp_path / "out" / "README.md").read_text()
    assert "dense labels are the right source" in said
    sampled = Labels.load(made / "train", captions=made / "captions", measures=["rouge_l"])
    kept = np.concatenate([some.value for some in sampled.stored.pairs("rouge_l")])
    for way in ("i2t", "t2i"):  # also those with the gain 0: a pair that is absent is unknown
        gains = pq.read_table(tmp_path / "out" / f"{way}-gains")["gain"].to_numpy()
        assert gains.tolist() == kept.astype(float).tolist() and (gains == 0).sum() > 0
    (tmp_path / "params.yaml").write_text(said.split("```yaml\n")[1].split("```")[0])
    assert load_params(tmp_path / "params.yaml").shards.top == 3
    with pytest.raises(InputError, match="a benchmark in the layout of mteb"):
        Labels.load(tmp_path / "out")
