"""Caption scores inside of lmms-eval and evaluate, which give the numbers of pycocoevalcap with
ours in its place."""

import json
import time
from types import SimpleNamespace

import pycocoevalcap.eval
import pycocoevalcap.tokenizer.ptbtokenizer
import pytest

import capgrade
from capgrade import coco
from tests.conftest import ROOT

METRICS = ["Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4", "METEOR", "ROUGE_L", "CIDEr"]
OURS = ["bleu_1", "bleu_2", "bleu_3", "bleu_4", "meteor", "rouge_l", "cider"]


@pytest.fixture(scope="module")
def results() -> list[dict]:
    """As lmms-eval's tasks keep them: the first caption of each image is the model's, the others
    are the answers."""
    sets: dict[int, list[str]] = {}
    for row in json.loads((ROOT / "examples" / "captions.json").read_text(encoding="utf-8"))[
        "annotations"
    ]:
        sets.setdefault(row["image_id"], []).append(row["caption"])
    return [
        {"pred": own[0], "answer": own[1:], "image_id": image, "id": image}
        for image, own in sets.items()
    ]


@pytest.fixture(scope="module")
def theirs(results: list[dict], tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    assert pycocoevalcap.eval.Cider.__module__.startswith("pycocoevalcap.")
    return aggregated(results, tmp_path_factory.mktemp("theirs"))


def aggregated(results: list[dict], folder) -> dict[str, float]:
    """Each metric by the aggregation of lmms-eval's task, imported anew as its tasks import it."""
    from importlib.util import find_spec, module_from_spec

    spec = find_spec("lmms_eval.tasks.coco_cap.utils")
    utils = module_from_spec(spec)
    spec.loader.exec_module(utils)
    found, start = {}, time.perf_counter()
    for metric in METRICS:
        found[metric] = float(
            utils.coco_aggregation_result(results, metric, SimpleNamespace(output_path=str(folder)))
        )
    print(f"{len(results)} images, {len(METRICS)} metrics: {time.perf_counter() - start:.2f} s")
    return found


def test_lmms_eval_gives_the_same_numbers(
    results: list[dict], theirs: dict[str, float], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Bleu", "Cider", "Meteor", "Rouge"):
        monkeypatch.setattr(pycocoevalcap.eval, name, getattr(coco, name))
    monkeypatch.setattr(pycocoevalcap.tokenizer.ptbtokenizer, "PTBTokenizer", coco.PTBTokenizer)
    aggregated(results, tmp_path)  # the first call reads METEOR's data
    ours = aggregated(results, tmp_path)
    assert ours == pytest.approx(theirs, rel=0, abs=1e-6) and min(ours.values()) > 0.05
    submitted = tmp_path / "submissions" / "coco_captions_val2014_alg_results.json"
    assert len(json.loads(submitted.read_text())) == len(results)


def test_evaluate_loads_the_folder(results: list[dict], theirs: dict[str, float], tmp_path) -> None:
    import evaluate

    from capgrade.evaluate_metric import PATH

    captions, answers = [one["pred"] for one in results], [one["answer"] for one in results]
    metric = evaluate.load(PATH, cache_dir=str(tmp_path))
    found = metric.compute(predictions=captions, references=answers)
    assert found == pytest.approx(
        {name: theirs[metric] for name, metric in zip(OURS, METRICS, strict=True)}, abs=1e-6
    )
    for caption, own in zip(captions, answers, strict=True):
        metric.add(prediction=caption, reference=own)
    frequencies = capgrade.Frequencies.of(answers)
    assert metric.compute(measures=["cider"], frequencies=frequencies)["cider"] == pytest.approx(
        theirs["CIDEr"]
    )
    single = metric.compute(
        predictions=captions, references=[own[0] for own in answers], measures=["rouge_l"]
    )
    assert single == capgrade.score(captions, [own[:1] for own in answers], ["rouge_l"]).corpus
