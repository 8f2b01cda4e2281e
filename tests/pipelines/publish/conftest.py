"""A running stand-in for the hub, which this process takes for the hub; a small world to publish;
and a folder as if published, so that uploads are tested without computing anything."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.publish.folder import publish
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.files import write_manifest, write_text
from tests.conftest import caption_table, random_sets, write_captions_folder

from .stand_in import TOKEN, Hub, running

PARAMS = PublishParams(
    name="tiny",
    license="cc-by-4.0",
    version="1.2.0",
    description="Tiny.",
    authors=("A. Author",),
    date="2026-01-31",
    citation="A. Author: Tiny.",
)
SETS = {
    "train": [*random_sets(12, seed=4, least=2), ["a lone dog"]],
    "val": [["a red dog", "the dog"], ["a cat"], ["a big man rides"]],
}
REPO = "someone/labels"
BOTH = ("cider", "rouge_l")
MEASURES = MeasuresParams.model_validate({"cider": {"sigma": 5.0}})
README = """---
license: cc-by-4.0
task_categories:
- text-retrieval
---
# tiny
"""
DATA = {
    "relevance/train-00000-of-00002.parquet": "PAR1 first shard PAR1",
    "relevance/train-00001-of-00002.parquet": "PAR1 second shard PAR1",
    "captions/train-00000-of-00001.parquet": "PAR1 captions PAR1",
    "README.md": README,
    "SHA256SUMS": "sums\n",
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The client does not wait between its tries."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    monkeypatch.setattr(_http, "time", SimpleNamespace(sleep=lambda _: None, time=time.time))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # by git LFS, whose files the stand-in keeps; test_xet.py has the other protocol
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with running() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions, shards of train and val, dense relevance of both (`dense`, `relevance`), and the
    folder `out` published from them; nobody changes them."""
    root = tmp_path_factory.mktemp("made")
    write_captions_folder(
        root / "captions",
        [caption_table(sets, split, f"{split[0]}i") for split, sets in SETS.items()],
    )
    for split, top in (("train", 3), ("val", 2)):
        kept = ShardsParams(split=split, measures=BOTH, top=top, uniform=3)
        shards(root / "captions", root / split, kept, MEASURES)
    for folder, split in (("dense", "train"), ("relevance", "val")):
        relevance(
            root / "captions", root / folder, RelevanceParams(split=split, measures=BOTH), MEASURES
        )
    publish(
        root / "captions",
        [root / "train", root / "val"],
        root / "out",
        PARAMS,
        relevance=[root / "relevance"],
    )
    return root


def write_folder(
    folder: Path, version: str = "1.0.0", dataset: str = "tiny", **changed: str | None
) -> Path:
    """A finished folder; `changed` gives a file other content, or takes it out with None."""
    files = {name: text for name, text in {**DATA, **changed}.items() if text is not None}
    for name, text in files.items():
        write_text(folder / name, text)
    write_manifest(
        folder,
        "publish",
        params={"publish": {"name": dataset, "version": version}},
        inputs={},
        rows=dict.fromkeys(files, 0),
    )
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One as if published."""
    return write_folder(tmp_path / "dataset")
