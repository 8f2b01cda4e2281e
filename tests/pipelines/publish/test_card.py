"""The card: metadata that the hub's own libraries read back, examples that run, a recipe that makes
the same bytes."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from datasets import Features, List, Value
from datasets.info import DatasetInfosDict
from huggingface_hub import DatasetCard
from PIL import Image

from capgrade.apps.page.charts import read_palette
from capgrade.measures.params import MeasuresParams
from capgrade.measures.refit import measures_block
from capgrade.params import load_params
from capgrade.pipelines.publish.card import size_category
from capgrade.pipelines.publish.check import check
from capgrade.pipelines.publish.folder import COLOURS, publish
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest
from tests.conftest import call

from .conftest import PARAMS, SETS
from .stand_in import TOKEN, running

REPO = "someone/tiny"


def test_another_run_leaves_nothing_of_the_earlier_one(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "out", tmp_path / "again")
    publish(made / "captions", [made / "val"], tmp_path / "again", PARAMS)
    assert [p.name for p in (tmp_path / "again").glob("*/*")] == ["val-00000-of-00001.parquet"] * 2
    assert check(str(tmp_path / "again")).problems == ()


def test_sha256sum_reads_the_checksums(made: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"],
        cwd=made / "out",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count(": OK") == 7


def test_the_metadata_are_those_of_the_hub(made: Path) -> None:
    card = DatasetCard.load(made / "out" / "README.md")
    assert card.data.license == "cc-by-4.0"
    assert [one["config_name"] for one in card.data.configs] == ["relevance", "captions"]
    assert all(digest(path) in card.text for path in (made / "out").glob("*/*.parquet"))
    assert card.data.task_categories == ["text-retrieval", "image-to-text"]
    assert card.data.size_categories == ["n<1K"]
    infos = DatasetInfosDict.from_dataset_card_data(card.data)
    assert infos["captions"].features == Features(
        {name: Value("string") for name in ("image_id", "caption_id", "caption")}
        | {"tokens": List(Value("string")), "image_file": Value("string")}
    )
    assert infos["relevance"].features["cider"] == Value("float32")
    assert infos["captions"].splits["train"].num_examples == sum(map(len, SETS["train"]))
    assert infos["captions"].splits["val"].num_examples == 4
    sizes = [path.stat().st_size for path in (made / "out" / "relevance").glob("*.parquet")]
    assert infos["relevance"].download_size == sum(sizes)


def test_the_picture_is_drawn_and_shown(made: Path) -> None:
    assert "(figures/distributions.png)" in (made / "out" / "README.md").read_text()
    with Image.open(made / "out" / "figures" / "distributions.png") as image:
        assert image.width > 2 * image.height
    assert tuple(read_palette()[f"series-{k}"] for k in (1, 2)) == COLOURS, "the pages'"


def blocks(card: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", card.read_text(), flags=re.DOTALL)


ABSENT = '\nassert look_up(pairs[0]["image_id"], "no such caption") is None\n'
LAST = (
    '\nprint(len(pairs["train"]), list(captions))\n',
    "",
    "\nprint(sorted(next(iter(relevant))))\n",
    ABSENT,
)


def ran(line: list[str], folder: Path, **environment: str) -> str:
    """What a Python process prints, which never says the token."""
    environment = {
        **os.environ,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "0",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, *line], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert TOKEN not in done.stdout + done.stderr
    return done.stdout


def test_without_a_name_it_is_that_of_the_folder(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A title that nobody chose is said."""
    line = f"publish --captions {made}/captions --shards {made}/train --license cc-by-4.0 --out"
    assert call(*line.split(), tmp_path / "my pictures") == 0
    assert "the dataset is called 'my pictures', as its folder; --name" in capsys.readouterr().err
    assert "\n# my pictures\n" in (tmp_path / "my pictures" / "README.md").read_text()


def test_the_examples_stream_from_the_hub(made: Path, tmp_path: Path) -> None:
    """From the command line to `load_dataset`, every request to the stand-in at HF_ENDPOINT."""
    folders = (
        f"--captions {made}/captions --shards {made}/train --shards {made}/val --license cc-by-4.0"
    )
    told = f"--name tiny --version 1.2.0 --repository {REPO} --out {tmp_path}/out"
    assert call("publish", *folders.split(), *told.split()) == 0
    with running() as hub:
        line = ["-m", "capgrade.pipelines.cli", "publish", "push", f"{tmp_path}/out", REPO]
        said = ran(
            line,
            tmp_path,
            HF_ENDPOINT=hub.address,
            HF_TOKEN=TOKEN,
            HF_HUB_DISABLE_XET="1",
            CAPGRADE_DEBUG="1",
            HF_DEBUG="1",
        )
        assert f"{hub.address}/datasets/{REPO} at 1.2.0" in said
        examples = zip(blocks(tmp_path / "out" / "README.md", "python"), LAST, strict=True)
        script = "\n".join(code + last for code, last in examples)
        out = ran(["-c", script], tmp_path, HF_ENDPOINT=hub.address, HF_HUB_DISABLE_XET="1")
    assert "['train', 'val']" in out and "['caption_id', 'image_id', 'rouge_l']" in out
    assert out.count("'image_id'") == 5  # three streamed rows, the selected columns, one looked up
    assert f'revision="{PARAMS.version}"' in (tmp_path / "out" / "README.md").read_text()


def test_the_recipe_makes_the_same_bytes(tmp_path: Path) -> None:
    """The commands of the card, run as they stand beside the card's params.yaml, from nothing:
    every file is the same, the picture too. What a program drew is synthetic, and of nobody."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    blocks_of = {
        "captions": {"scenes": {"train": 6, "val": 4, "test": 2, "size": 64}},
        "shards": {"split": "train", "measures": ["cider", "rouge_l"], "top": 2, "uniform": 2},
        "relevance": {"split": "test", "measures": ["cider", "rouge_l"]},
        "publish": {"name": "again", "license": "apache-2.0", "description": "Twice."},
    }
    (tmp_path / "first" / "params.yaml").write_text(yaml.safe_dump(blocks_of))
    lines = [
        "capgrade captions --params params.yaml --out captions",
        "capgrade shards --params params.yaml --captions captions --out shards-train",
        (
            "capgrade shards --params params.yaml --captions captions --set shards.split=val --set"
            " shards.top=3 --out v"
        ),
        "capgrade relevance --params params.yaml --captions captions --out relevance",
        (
            "capgrade publish --params params.yaml --captions captions --shards shards-train"
            " --shards v --relevance relevance --out dataset"
        ),
    ]
    run_lines(lines, tmp_path / "first")
    card = tmp_path / "first" / "dataset" / "README.md"
    (tmp_path / "second" / "params.yaml").write_text(blocks(card, "yaml")[0])
    run_lines(blocks(card, "bash")[0].splitlines(), tmp_path / "second")
    text = json.loads(card.with_name("croissant.json").read_text())
    assert text["rai:hasSyntheticData"] is True and "prov:wasDerivedFrom" not in text
    assert text["rai:personalSensitiveInformation"].startswith("None")
    assert digest(tmp_path / "second" / "dataset" / "README.md") == digest(card)
    assert (
        check(str(tmp_path / "second" / "dataset"), tmp_path / "first" / "dataset").problems == ()
    )


def run_lines(lines: list[str], folder: Path) -> None:
    with contextlib.chdir(folder):
        for line in lines:
            assert call(*shlex.split(line)[1:]) == 0, line


def test_a_licence_of_ones_own_is_named_and_linked(made: Path, tmp_path: Path) -> None:
    own = {"license": "other", "license_name": "own", "license_link": "https://example.org/terms"}
    publish(made / "captions", [made / "val"], tmp_path / "out", PARAMS.model_copy(update=own))
    data = DatasetCard.load(tmp_path / "out" / "README.md").data.to_dict()
    assert {key: data[key] for key in own} == own
    assert (
        f'"license": "{own["license_link"]}"' in (tmp_path / "out" / "croissant.json").read_text()
    )


def test_imported_measures_and_mixtures_have_their_place_in_the_parameters() -> None:
    imported = {"theirs": "theirs.npy", "other": "other.npy"}
    given = MeasuresParams(imported=imported, mixtures={"both": {"rouge_l": 0.5, "other": 0.5}})
    block = measures_block(given.used(["cider", "theirs", "both"]))
    assert load_params(None, [f"measures={json.dumps(block)}"]).measures == given


@pytest.mark.parametrize(("rows", "name"), [
    (0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (185_744, "100K<n<1M"), (10**8, "100M<n<1B"), (10**12, "n>1T"),
])  # fmt: skip
def test_size_categories(rows: int, name: str) -> None:
    assert size_category(rows) == name


@pytest.mark.parametrize(("given", "message"), [
    ("license=cc-by-5.0", "licence 'cc-by-5.0' is unknown to the hub; near it: cc-by-"),
    ("license=other", "licence 'other' needs publish.license_name"),
    *((f"version={version}", "publish.version") for version in ("a/b", "1..0", "v1.")),
    ("date=yesterday", "publish.date"),
    ("layout=mtbe", "publish.layout"),
    ("grades={a: 1.0, b: 0.5}", "do not rise"),
])  # fmt: skip
def test_parameters_that_no_card_can_have(given: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        load_params(None, [f"publish.{given}"])
