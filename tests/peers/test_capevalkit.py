"""Our scores inside of capevalkit: its callable and its script, on Flickr8k's crowd judgements as
it reads them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from capgrade.agreement.judgement_files import read_judgements
from capgrade.schemas.captions import read_captions
from tests.conftest import DATA, ROOT, call, printed

capeval = pytest.importorskip("capevalkit.api")
sys.path.insert(0, str(ROOT / "examples"))
from capevalkit_score import CaptionMetric  # noqa: E402

SCRIPT = ROOT / "examples" / "capevalkit_score.py"
FLICKR = DATA / "flickr8k"
pytestmark = pytest.mark.skipif(
    not FLICKR.is_dir(), reason="Flickr8K of ../shared/data is not here"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """crowdflower_flickr8k.json as the authors of caption metrics share it, and the same rows as a
    table: pairs of 200 images, without an image's own captions."""
    made: Path = tmp_path_factory.mktemp("capevalkit")
    given = ("--source", "flickr", "--input", FLICKR / "Flickr8k.token.txt")
    lists = ("--split-lists", f"test={FLICKR / 'Flickr_8k.testImages.txt'}")
    assert call("captions", *given, *lists, "--out", made / "captions") == 0
    captions = read_captions(made / "captions", "test")
    people = read_judgements(FLICKR / "CrowdFlowerAnnotations.txt", captions)
    records, rows = {}, []
    for image in range(200):
        name, own = captions.image_ids[image], captions.rows_of(image)
        references = [captions.texts[row] for row in own]
        judged = [
            {"image_path": name, "caption": captions.texts[caption], "rating": float(score)}
            for caption, score in zip(
                people.caption[people.image == image],
                people.score[people.image == image],
                strict=True,
            )
            if captions.owner[caption] != image
        ]
        records[name] = {
            "image_path": f"images/{name}",
            "ground_truth": references,
            "human_judgement": judged,
        }
        rows += [
            {"cand": one["caption"], "refs": references, "human_score": one["rating"]}
            for one in judged
        ]
    (made / "flickr8k").mkdir()
    (made / "flickr8k" / "crowdflower_flickr8k.json").write_text(json.dumps(records))
    (made / "table.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return made


@pytest.mark.parametrize("measure", ["rouge_l", "people"])
def test_a_callable_has_the_agreement_that_we_find(folder: Path, measure: str) -> None:
    found = capeval.evaluate_metric(
        benchmark="flickr8k-cf",
        metric=CaptionMetric(measure),
        metric_name=measure,
        data_root=str(folder),
    )
    ours = printed("agree", "texts", folder / "table.jsonl", "--measures", measure)["measures"]
    print(measure, found["num_samples"], found["correlations"])
    for theirs, name in (("kendall_tau_b", "kendall"), ("kendall_tau_c", "kendall_c")):
        ours_too = 100 * ours[measure][name]["all"]
        assert found["correlations"][theirs] == pytest.approx(ours_too, abs=1e-6)


def test_the_script_writes_what_it_reads(folder: Path, tmp_path: Path) -> None:
    samples = capeval.load_samples("flickr8k-cf", data_root=str(folder), limit=40)
    lines = {
        "predictions": [{"id": one.id, "caption": one.prediction} for one in samples],
        "references": [{"id": one.id, "references": one.references} for one in samples],
    }
    for name, rows in lines.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    command = [sys.executable, str(SCRIPT), "--measure", "rouge_l"]
    for name in ("predictions", "references"):
        command += [f"--{name}", str(tmp_path / f"{name}.jsonl")]
    subprocess.run([*command, "--output", str(tmp_path / "scores.json")], check=True)
    written = json.loads((tmp_path / "scores.json").read_text())["rouge_l"]
    assert written["per_item"] == pytest.approx(CaptionMetric("rouge_l")(samples))
    (tmp_path / "predictions.jsonl").write_text("")
    refused = subprocess.run(
        [*command, "--output", str(tmp_path / "none.json")], capture_output=True, text=True
    )
    assert refused.returncode == 2 and "no row of" in refused.stderr
