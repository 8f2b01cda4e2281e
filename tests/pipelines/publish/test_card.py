"""The card: metadata that the hub's own libraries read back, examples that run, a recipe that makes the same bytes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from huggingface_hub import DatasetCard

from capgrade.labels.published import measures_block
from capgrade.pipelines.publish.card import size_category
from capgrade.pipelines.publish.check import check
from capgrade.pipelines.publish.folder import publish
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest
from capgrade.schemas.params import MeasuresParams, PublishParams, RelevanceParams, ShardsParams, load_params
from tests.conftest import caption_table, random_sets, write_captions_folder

from .stand_in import LICENCES, TASKS, TOKEN, running

PARAMS = PublishParams(name="tiny", license="cc-by-4.0", version="1.2.0", authors=("A. Author",), citation="Author.")
REPO = "someone/tiny"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions, shards of train and val, dense relevance, and the folder `out` published from them."""
    root = tmp_path_factory.mktemp("made")
    sets = [random_sets(15, seed=5), [["a red dog", "the dog"], ["a cat"], ["a big man rides"]]]
    tables = [caption_table(captions, split) for captions, split in zip(sets, ("train", "val"), strict=True)]
    ids = [[f"v{value}" for value in tables[1][name].to_pylist()] for name in ("image_id", "caption_id")]
    tables[1] = tables[1].set_column(0, tables[1].schema.field(0), [ids[0]])
    tables[1] = tables[1].set_column(1, tables[1].schema.field(1), [ids[1]])
    write_captions_folder(root / "captions", tables)
    for split, top in (("train", 3), ("val", 2)):
        block = ShardsParams(split=split, measures=("cider", "rouge_l"), top=top, uniform=2)
        shards(root / "captions", root / split, block, MeasuresParams())
    dense = RelevanceParams(split="val", measures=("cider", "rouge_l"))
    relevance(root / "captions", root / "relevance", dense, MeasuresParams())
    publish_to(root, root / "out")
    return root


def publish_to(root: Path, out: Path, params: PublishParams = PARAMS) -> None:
    publish(root / "captions", [root / "train", root / "val"], out, params, None, root / "relevance")


def test_the_same_input_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    publish_to(made, tmp_path / "again")
    files = sorted(p.relative_to(made / "out") for p in (made / "out").rglob("*") if p.is_file())
    assert len(files) == 9
    assert [(tmp_path / "again" / f).read_bytes() == (made / "out" / f).read_bytes() for f in files] == [True] * 9
    assert check(str(made / "out")).problems == ()


def test_sha256sum_reads_the_checksums(made: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=made / "out", capture_output=True, text=True, check=True
    )
    assert done.stdout.count(": OK") == 7


def test_an_earlier_run_leaves_nothing_behind(made: Path, tmp_path: Path) -> None:
    publish_to(made, tmp_path / "out")
    publish(made / "captions", [made / "val"], tmp_path / "out", PARAMS)
    assert [p.name for p in (tmp_path / "out").glob("*/*")] == ["val-00000-of-00001.parquet"] * 2
    assert check(str(tmp_path / "out")).problems == ()


def test_the_metadata_are_those_of_the_hub(made: Path) -> None:
    from datasets import Features, List, Value
    from datasets.info import DatasetInfosDict

    card = DatasetCard.load(made / "out" / "README.md")
    assert card.data.license in LICENCES
    assert set(card.data.task_categories) <= TASKS
    assert card.data.size_categories == ["n<1K"]
    infos = DatasetInfosDict.from_dataset_card_data(card.data)
    assert infos["captions"].features == Features(
        {name: Value("string") for name in ("image_id", "caption_id", "caption")}
        | {"tokens": List(Value("string")), "image_file": Value("string")}
    )
    assert infos["relevance"].features["cider"] == Value("float32")
    assert infos["captions"].splits["train"].num_examples == sum(map(len, random_sets(15, seed=5)))
    assert infos["captions"].splits["val"].num_examples == 4
    sizes = [path.stat().st_size for path in (made / "out" / "relevance").glob("*.parquet")]
    assert infos["relevance"].download_size == sum(sizes)


def test_the_picture_is_drawn_and_shown(made: Path) -> None:
    from PIL import Image

    assert "(figures/distributions.png)" in (made / "out" / "README.md").read_text()
    with Image.open(made / "out" / "figures" / "distributions.png") as image:
        assert image.width > 2 * image.height


def test_relevance_of_other_captions_is_refused(made: Path, tmp_path: Path) -> None:
    other = write_captions_folder(tmp_path / "other", [caption_table(random_sets(4), "val")])
    relevance(other, tmp_path / "dense", RelevanceParams(split="val", measures=("rouge_l",)), MeasuresParams())
    with pytest.raises(InputError, match="made from another captions table"):
        publish(made / "captions", [made / "val"], tmp_path / "out", PARAMS, None, tmp_path / "dense")


def blocks(card: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", card.read_text(), flags=re.DOTALL)


ABSENT = '\nassert look_up(pairs[0]["image_id"], "no such caption") is None\n'
LAST = '\nprint(len(pairs["train"]), list(captions))\n', "", "\nprint(sorted(next(iter(relevant))))\n", ABSENT


def run_examples(folder: Path, cwd: Path, **environment: str) -> str:
    script = "\n".join(code + last for code, last in zip(blocks(folder / "README.md", "python"), LAST, strict=True))
    home = {"HF_HOME": str(cwd / "hf"), "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    environment = {**os.environ, **home, **environment}
    done = subprocess.run([sys.executable, "-c", script], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_examples_run_beside_the_folder(made: Path, tmp_path: Path) -> None:
    publish_to(made, tmp_path / "dataset")
    out = run_examples(tmp_path / "dataset", tmp_path)
    assert "['train', 'val']" in out
    assert out.count("'image_id'") == 5  # three streamed rows, the selected columns, one looked up
    assert "['caption_id', 'image_id', 'rouge_l']" in out


def test_the_command_uploads_checks_and_the_examples_stream_from_there(made: Path, tmp_path: Path) -> None:
    """From the command line to `load_dataset`, every request to the stand-in at HF_ENDPOINT."""
    with running() as hub:
        environment = {"HF_ENDPOINT": hub.address, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "hf")}

        def command(*options: str) -> str:
            line = [sys.executable, "-m", "capgrade.pipelines.cli", "publish", *options]
            env = {**os.environ, **environment, "HF_HUB_OFFLINE": "0", "CAPGRADE_DEBUG": "1", "HF_DEBUG": "1"}
            done = subprocess.run(line, env=env, capture_output=True, text=True)
            assert TOKEN not in done.stdout + done.stderr
            assert done.returncode == 0, done.stderr[-3000:]
            return done.stdout

        folders = ["--captions", str(made / "captions"), "--shards", str(made / "train"), "--shards", str(made / "val")]
        options = [
            "--name",
            "tiny",
            "--license",
            "cc-by-4.0",
            "--set",
            "publish.version=1.2.0",
            "--out",
            str(tmp_path / "out"),
        ]
        assert f"{hub.address}/datasets/{REPO} at 1.2.0" in command(*folders, *options, "--push", REPO)
        assert "as they were made" in command("--check", f"{REPO}@1.2.0", "--out", str(tmp_path / "out"))
        del environment["HF_TOKEN"]
        out = run_examples(tmp_path / "out", tmp_path, **environment)
        assert "['train', 'val']" in out
        assert "['caption_id', 'image_id', 'rouge_l']" in out
        assert f'revision="{PARAMS.version}"' in (tmp_path / "out" / "README.md").read_text()


def test_the_recipe_makes_the_same_bytes(tmp_path: Path) -> None:
    """The commands of the card, run as they stand beside the card's params.yaml, from nothing."""
    from typer.testing import CliRunner

    from capgrade.pipelines.cli import app

    first = load_params(None, ["captions.scenes.train=6", "captions.scenes.val=4", "captions.scenes.test=2"])
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    blocks_of = {
        "captions": {"scenes": {**first.captions.scenes.model_dump(), "size": 64}},
        "shards": {"split": "train", "measures": ["cider", "rouge_l"], "top": 2, "uniform": 2},
        "relevance": {"split": "test", "measures": ["cider", "rouge_l"]},
        "publish": {"name": "again", "license": "apache-2.0", "description": "Twice."},
    }
    (tmp_path / "first" / "params.yaml").write_text(yaml.safe_dump(blocks_of))
    lines = [
        "capgrade captions --params params.yaml --out captions",
        "capgrade shards --params params.yaml --captions captions --out shards-train",
        "capgrade shards --params params.yaml --captions captions --set shards.split=val --set shards.top=3 --out v",
        "capgrade relevance --params params.yaml --captions captions --out relevance",
        "capgrade publish --params params.yaml --captions captions --shards shards-train --shards v "
        "--relevance relevance --out dataset",
    ]
    run_lines(CliRunner(), app, lines, tmp_path / "first")
    card = tmp_path / "first" / "dataset" / "README.md"
    (tmp_path / "second" / "params.yaml").write_text(blocks(card, "yaml")[0])
    run_lines(CliRunner(), app, blocks(card, "bash")[0].splitlines(), tmp_path / "second")
    assert digest(tmp_path / "second" / "dataset" / "README.md") == digest(card)
    assert check(str(tmp_path / "second" / "dataset"), tmp_path / "first" / "dataset").problems == ()


def run_lines(runner, app, lines: list[str], folder: Path) -> None:
    import contextlib
    import shlex

    with contextlib.chdir(folder):
        for line in lines:
            done = runner.invoke(app, shlex.split(line)[1:], catch_exceptions=False)
            assert done.exit_code == 0, done.output


def test_a_licence_of_ones_own_is_named_and_linked(made: Path, tmp_path: Path) -> None:
    link = "https://example.org/terms"
    own = PARAMS.model_copy(update={"license": "other", "license_name": "own", "license_link": link})
    publish(made / "captions", [made / "val"], tmp_path / "out", own)
    data = DatasetCard.load(tmp_path / "out" / "README.md").data
    assert (data.license, data.license_name, data.license_link) == ("other", "own", link)
    assert f'"license": "{link}"' in (tmp_path / "out" / "croissant.json").read_text()


def test_imported_measures_and_mixtures_have_their_place_in_the_parameters() -> None:
    imported = {"theirs": "theirs.npy", "other": "other.npy"}
    given = MeasuresParams(imported=imported, mixtures={"both": {"rouge_l": 0.5, "other": 0.5}})
    block = measures_block(given.used(["cider", "theirs", "both"]))
    assert load_params(None, [f"measures={json.dumps(block)}"]).measures == given


@pytest.mark.parametrize(
    ("rows", "name"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (185_744, "100K<n<1M"), (10**8, "100M<n<1B"), (10**12, "n>1T")],
)
def test_size_categories(rows: int, name: str) -> None:
    assert size_category(rows) == name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["publish.license=cc-by-5.0"], "licence 'cc-by-5.0' is unknown to the hub; near it: cc-by-"),
        (["publish.license=other"], "licence 'other' needs publish.license_name"),
        (["publish.version=a/b"], "publish.version"),
        (["publish.date=yesterday"], "publish.date"),
    ],
)
def test_parameters_that_no_card_can_have(given: list[str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        load_params(None, given)
