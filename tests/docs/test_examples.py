"""Every example of README.md and docs/*.md is run, on small inputs that stand in for the reader's;
what cannot be run here is in NOT_RUN, with the reason; tests/peers runs docs/with_others.md. Every
command that is shown or mentioned has the options that it is given."""

import contextlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from capgrade.apps.explorer.ratings import ReviewRatings
from capgrade.measures import MEASURES
from capgrade.params import load_params
from capgrade.pipelines.cli import COMMANDS as SHOWN
from capgrade.schemas.captions import read_captions
from tests.apps.judging.stand_in import Chat, served
from tests.conftest import ROOT, call
from tests.pipelines.publish.conftest import hub  # noqa: F401  # a stand-in for the hub
from tests.pipelines.publish.stand_in import Hub
from tests.tools import api, reference
from tests.tools.commands import commands

from .blocks import Example, differs, examples
from .world import TINY, make_world, write_entries

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = {path.name: examples(path) for path in PAGES}
ENDPOINT = "http://localhost:8000/v1"
SOME = [
    "captions.scenes.train=5",
    "captions.scenes.val=3",
    "captions.scenes.test=4",
    "captions.scenes.size=64",
]
FEW = " ".join(f"--set {one}" for one in SOME)

# Page -> what its text says -> what is there instead, or what makes it small. The first that fits,
# each in turn.
INSTEAD: dict[str, dict[str, str]] = {
    "captions.md": {
        "'cc3m/{00000..00331}.tar'": "cc3m",
        "--regions f30k/regions --out f30k/run": f"--regions f30k/regions {TINY} --out f30k/run",
        "--set captions.scenes.train=5000 --set captions.scenes.size=160": FEW,
        "captions --out scenes": f"captions {FEW} --out scenes",
        "ScenesParams(train=0, val=0)": "ScenesParams(train=0, val=0, test=20)",
    },
    "measures.md": {
        "...": "--captions one --out mine",
        "--captions coco/captions": "--captions one",
        "--captions captions --split test --judgements CrowdFlowerAnnotations.txt": (
            "--captions one --judgements cxc_sits_test.csv"
        ),
        "--mixture": "--folds 3 --mixture",
        "cross-encoder/stsb-roberta-base": "crossencoder",
        "--captions DIR --regions DIR --set train.folds=5": (
            "--captions data/captions --regions data/regions --set train.folds=2 --epochs 1"
            " --set train.batch_size=4 --set train.validation=null"
        ),
        "--captions DIR": "--captions data/captions",
        "regions=DIR": "regions=data/regions",
    },
    "metrics.md": {
        "compare runA runB": "compare data/evaluation/scenes_sam b=data/evaluation/scenes_sam",
        "A=runA B=runB": "A=data/evaluation/scenes_sam B=data/evaluation/scenes_sam",
    },
    "papers.md": {
        "--captions captions --regions regions --out tables": (
            "--captions data/captions --regions data/regions --out tables --small --row VSRN"
        ),
        "--captions coco5k": "--captions one",
    },
    "publish.md": {
        "--captions DIR --shards OUT": "--captions data/captions --shards data/shards",
        "--images DIR": "--images data/captions",
        "--captions coco/captions --relevance coco/relevance --set evaluate.positives=coco-5k": (
            "--captions captions --relevance relevance"
        ),
        "--out board.html": "--out coco.html",
    },
    "regions.md": {
        "--images data/captions --out data/regions": (
            "--images data/captions --boxes 4-8 --out data/regions"
        ),
        "--features PATH --format tsv|npz|teran|scan|h5|lxmert|npy --out DIR": (
            "--features features --format npz --out imported"
        ),
        "--format tsv|scan|npz --regions DIR": "--format npz --regions data/regions",
    },
    "training.md": {
        "--images scenes --boxes 8": "--images scenes --boxes 8 --set regions.workers=0",
        "--preset sam --captions DIR --regions DIR": (
            f"--preset sam --captions data/captions --regions data/regions {TINY}"
        ),
        "--captions DIR --regions DIR": "--captions data/captions --regions data/regions",
        "--captions DIR": "--captions data/captions",
        "--relevance DIR": "--relevance data/relevance",
        "align --run RUN": "align --run data/runs/scenes_teran",
    },
    "regrade.md": {"--preset triplet": f"--preset triplet {TINY}"},
    "shards.md": {
        "relevance --captions DIR": "relevance --captions one",
        "relevance ... --": "relevance --captions one --measures rouge_l --out again --",
        "np.array([17])": "np.array([7])",  # this world has fourteen images
        "--split train": "--split test",
        "--captions s3://BUCKET/captions --out OUT": (
            "--captions file://one --measures rouge_l --out from_url"
        ),
        "--out OUT --set shards.windows.among": (
            "--measures rouge_l --out among --set shards.windows.among"
        ),
        "OUT --part": "parted --measures rouge_l --set shards.block_images=4 --part",
        "OUT --join": "parted --measures rouge_l --set shards.block_images=4 --join",
        "--captions DIR": "--captions one",
    },
    "false_negatives.md": {
        "--captions coco/captions --relevance coco/relevance": (
            "--captions data/captions --relevance data/relevance"
        ),
        "model.npy --out model.html": "sims.npy --out model.html",
        "cross-encoder/stsb-roberta-base": "crossencoder",
    },
    "look.md": {"regions.boxes=10-20": "regions.boxes=4-8"},
    "notebook.md": {"--captions coco/captions": "--captions one --set bench.pairs=20"},
    "scores.md": {"--captions coco/captions": "--captions one"},
    "my_dataset.md": {"--fold 1000": "--fold 7"},
}

# Page -> how a command starts -> why it is not run. Its options are checked all the same.
ELSEWHERE = "a program of others on the whole checkout"
NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {"make": ELSEWHERE},
    "CONTRIBUTING.md": {"make": ELSEWHERE},
    "captions.md": {
        "capgrade captions --source hub": (
            "wants a dataset of the hub; see pipelines/sources/test_hub.py"
        )
    },
    "measures.md": {
        "capgrade relevance --captions data/captions --split test --measures image_text": (
            "wants published weights; capgrade/measures/test_image_text.py has random ones"
        ),
        "python -m research.studies": (
            "wants trained runs of Flickr8K; tests/research/studies/test_seen.py has its parts"
        ),
    },
    "papers.md": {"make": ELSEWHERE, "python -m research.studies": "hours"},
    "publish.md": {
        "capgrade publish --calibration": (
            "wants a calibration; pipelines/publish/test_tables.py has one"
        ),
    },
    "regrade.md": {
        "capgrade regrade --captions captions --similarity": (
            "wants two models or a hundred judgements; tests/apps/audit/test_regrade.py has them"
        ),
    },
    "regions.md": {
        "capgrade regions --images DIR --detector bottom_up": "wants published weights",
        "capgrade regions --images DIR --detector patches": (
            "wants a model; detectors/test_patches.py has some"
        ),
        "capgrade regions weights": "wants published weights",
    },
    "shards.md": {
        "capgrade shards --captions one --out OUT --set shards.exchange": (
            "wants a store and a cluster; tests/pipelines/execution/test_runners.py has stand-ins"
        ),
        "capgrade shards --captions one --out OUT --set shards.device=cuda": "wants a GPU",
        "capgrade verify": "shows damage; tests/test_reliability.py makes it",
    },
    "training.md": {
        "capgrade train --preset vse_infinity": "times a twentieth of Flickr8K",
        "python -m research.benchmarks hosts": (
            "wants the authors' code; research/benchmarks/test_hosts.py has a stand-in"
        ),
        "capgrade train --preset clip": (
            "wants published weights; trainer/fit/test_pictures.py has random ones"
        ),
        "capgrade embed --run RUN --captions data/captions --images": "of the run before",
    },
    "false_negatives.md": {
        "capgrade agree --captions coco": (
            "wants a hundred judgements; test_calibration.py has them"
        ),
        "capgrade agree --captions captions": "wants judged captions of Flickr8k",
        "capgrade evaluate --similarity sims.npy --lists": (
            "wants a matrix of MS-COCO; test_lists.py has small ones"
        ),
    },
    "notebook.md": {
        "python -m research.studies": (
            "wants people's judgements of MS-COCO; tests/research/studies/test_results.py runs its parts"
        ),
    },
    "my_dataset.md": {"dvc": ELSEWHERE},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    shutil.copytree(ROOT / "examples", folder / "examples")
    with contextlib.chdir(folder):
        make_world()
    return folder


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A model on loopback, where docs/false_negatives.md has one."""
    with served(Chat(lambda body: str(len(str(body)) % 6))) as chat:
        yield chat.address


@pytest.fixture
def here(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with all inputs; pages to look at are built and not waited on."""
    shutil.copytree(world, tmp_path / "here", copy_function=shutil.copyfile)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    monkeypatch.setitem(MEASURES, "length", None)  # docs/measures.md adds it; taken out afterwards
    monkeypatch.delitem(MEASURES, "length")
    monkeypatch.setenv("COLUMNS", "80")  # as the pages show it
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 100, raising=False)
    with contextlib.chdir(tmp_path / "here"):
        yield tmp_path / "here"


def replaced(example: Example) -> str:
    text = example.text
    for shown, instead in INSTEAD.get(example.page, {}).items():
        text = text.replace(shown, instead)
    return text


def rate_some(reviews: Path) -> None:
    """What people do between two commands of docs/look.md and docs/false_negatives.md."""
    ratings = ReviewRatings.open(reviews)
    for reviewer in ("ann", "bo"):
        for item in range(min(6, len(ratings.plan.items))):
            ratings.rate(reviewer, item, item % 5)


RUN_HERE = [
    page
    for page, found in EXAMPLES.items()
    if page != "with_others.md" and any(e.kind != "mention" for e in found)
]


@pytest.mark.parametrize("page", RUN_HERE)
def test_the_examples_of(
    page: str,
    here: Path,
    hub: Hub,  # noqa: F811
    endpoint: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, object] = {}  # a page's Python goes on where its last example ended
    for example in EXAMPLES[page]:
        where = f"{page}, row {example.row}: {example.text}"
        if example.kind == "python":
            exec(compile(replaced(example), where, "exec"), names)
        elif example.kind == "yaml":
            Path("shown.yaml").write_text(example.text, encoding="utf-8")
            load_params(Path("shown.yaml"))
        elif example.kind == "command" and not replaced(example).startswith(
            tuple(NOT_RUN.get(page, ()))
        ):
            if example.text.startswith("capgrade agree raters"):
                rate_some(Path(shlex.split(example.text)[3]))
            if "--judgements pool" in example.text:
                rate_some(Path("pool"))
            capfd.readouterr()
            line = replaced(example).replace(ENDPOINT, endpoint)
            if line.startswith(("mkdir ", "printf ")):
                subprocess.run(line, shell=True, check=True)
                continue
            words = shlex.split(line)
            status = (
                call(*words[3:], module=words[2])
                if words[:2] == ["python", "-m"]
                else call(*words[1:])
            )
            printed = capfd.readouterr()
            assert status == (2 if "error: " in example.said else 0), f"{where}\n{printed.err}"
            assert (missing := differs(example.said, printed.out + printed.err)) is None, (
                f"{where} prints\n{printed.out}not {missing}"
            )


# Commands whose example is not run, as it wants what others publish.
NOT_HERE = {"regions weights", "agree choices"}


def test_the_example_of_each_command(
    here: Path,
    hub: Hub,  # noqa: F811
    endpoint: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In the order of the table: what one writes the next may read."""
    for name, (_, options) in SHOWN.items():
        if name in NOT_HERE:
            continue
        sizes = {"train": TINY, "regions": "--set regions.workers=0"}
        if name == "explore export":
            rate_some(Path("reviews"))
        if name == "leaderboard":  # `captions` are other ones by now
            table = read_captions(Path("captions"))
            write_entries((table.n_images, table.n_captions))
        line = f"{name} {options} {sizes.get(name, '')}".replace(ENDPOINT, endpoint)
        capfd.readouterr()
        assert call(*shlex.split(line)) == 0, f"{line}\n{capfd.readouterr().err}"


OPTIONS = dict(commands(hidden=True))
COMMANDS = [e for found in EXAMPLES.values() for e in found if e.kind in ("command", "mention")]


@pytest.mark.parametrize("example", COMMANDS, ids=lambda e: f"{e.page}-{e.row}")
def test_a_command_has_the_options_that_it_is_given(example: Example) -> None:
    program, *words = re.split(r"\s+", example.text.partition(" -- ")[0])
    if program == "python" and words[0] == "-m":
        assert find_spec(words[1]) is not None
    if program != "capgrade":
        return
    known = OPTIONS.get(" ".join(words[:2])) or OPTIONS.get(words[0])
    assert known is not None, f"no such command: {example.text}"
    given = {
        word.partition("=")[0].strip("[]") for word in words if word.lstrip("[").startswith("--")
    }
    assert given - {"--"} <= {*known}, example.text


def test_nothing_stands_in_for_what_no_page_shows() -> None:
    """The two tables are of these pages: what a page no longer shows leaves them."""
    for page, texts in INSTEAD.items():
        shown = "\n".join(example.text for example in EXAMPLES[page])
        assert [text for text in texts if text not in shown] == [], page
    for page, starts in NOT_RUN.items():
        commands = [replaced(example) for example in EXAMPLES[page]]
        assert [
            start for start in starts if not any(c.startswith(start) for c in commands)
        ] == [], page


@pytest.mark.parametrize("tool", [reference, api], ids=lambda tool: tool.PAGE.name)
def test_a_page_is_what_its_tool_writes(tool: ModuleType) -> None:
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(), f"run: python -m {tool.__name__}"
