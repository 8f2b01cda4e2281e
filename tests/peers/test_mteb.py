"""`mteb.evaluate` on a folder of the layout `mteb`: its NDCG is ours."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from capgrade import Qrels, Run, evaluate_lists
from capgrade.labels import Labels
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.publish.folder import publish
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.pipelines.stages.relevance import RelevanceParams
from tests.conftest import caption_table, random_sets, write_captions_folder

MODALITIES = {"t2i": ["text", "image"], "i2t": ["image", "text"]}
GRADES = {"related": 0.3, "near": 0.45, "fits": 0.6}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mteb")
    write_captions_folder(
        root / "captions", [caption_table(random_sets(40, seed=1, least=2), "test")]
    )
    relevance(
        root / "captions",
        root / "relevance",
        RelevanceParams(measures=("rouge_l",)),
        MeasuresParams(),
    )
    params = PublishParams(license="mit", layout="mteb", grades=GRADES)
    publish(root / "captions", [root / "relevance"], root / "benchmark", params)
    return root


@pytest.mark.parametrize("way", ["t2i", "i2t"])
def test_its_ndcg_is_ours(world: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import mteb
    from mteb._evaluators.retrieval_metrics import calculate_retrieval_scores
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta

    monkeypatch.setenv("HF_DATASETS_CACHE", str(world / "cache"))
    labels = Labels.load(world / "relevance", captions=world / "captions")
    rng = np.random.default_rng(0)
    vectors = {
        name: rng.standard_normal(64).astype(np.float32)
        for name in [*labels.image_ids, *labels.caption_ids]
    }

    class Task(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name=f"Tiny{way}",
            description="tiny",
            type="Any2AnyRetrieval",
            category=way,
            modalities=MODALITIES[way],
            dataset={"path": str(world / "benchmark"), "revision": "1.0.0"},
            eval_langs={way: ["eng-Latn"]},
            main_score="ndcg_at_10",
        )

    class Encoder:
        """A vector for each id."""

        mteb_model_meta = ModelMeta.create_empty(
            {"name": "tests/ids", "revision": "1", "modalities": ["text", "image"]}
        )

        def encode(self, inputs, **_) -> np.ndarray:
            return np.stack([vectors[name] for batch in inputs for name in batch["id"]])

        def similarity(self, one, other):
            return one @ other.T

        def similarity_pairwise(self, one, other):
            return (one * other).sum(axis=-1)

    found = mteb.evaluate(
        Encoder(), Task(), cache=None, prediction_folder=world / f"predictions-{way}"
    )
    (scores,) = found.task_results[0].scores["test"]
    (file,) = (world / f"predictions-{way}").rglob("*.json")
    run = json.loads(file.read_text())[way]["test"]
    qrels: dict[str, dict[str, int]] = {}
    for row in pq.read_table(world / "benchmark" / f"{way}-qrels").to_pylist():
        qrels.setdefault(row["query-id"], {})[row["corpus-id"]] = row["score"]
    images, captions = (
        [vectors[name] for name in names] for names in (labels.image_ids, labels.caption_ids)
    )
    values = labels.block(labels.image_ids, labels.caption_ids).relevance
    matrix = np.stack(images) @ np.stack(captions).T
    grades = np.searchsorted(list(GRADES.values()), values, side="right")
    ids = labels.image_ids, labels.caption_ids
    if way == "t2i":
        matrix, grades, ids = matrix.T, grades.T, ids[::-1]
    judged = {
        q: {d: float(grades[i, j]) for j, d in enumerate(ids[1])} for i, q in enumerate(ids[0])
    }
    best = Run.from_lists(
        ids[0], np.argsort(-matrix, axis=1), -np.sort(-matrix, axis=1), names=ids[1]
    )
    for k in (5, 10, 20):
        ours = evaluate_lists(best, Qrels.from_dict(judged), f"ndcg@{k}")
        theirs = calculate_retrieval_scores(run, qrels, [k]).all_scores
        each = np.array([theirs[query][f"ndcg_cut_{k}"] for query in ours.queries])
        assert np.abs(ours.values[f"ndcg@{k}"] - each).max() < 1e-6
        assert scores[f"ndcg_at_{k}"] == round(ours.mean[f"ndcg@{k}"], 5)  # as mteb rounds the mean
        assert 0.05 < ours.mean[f"ndcg@{k}"] < 0.95
