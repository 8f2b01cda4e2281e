"""The runs of a recipe: trained where they are not yet, and a split's similarity by each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from capgrade.pipelines.reproduce.settings import Settings
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, digest, read_manifest
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.fit.train import train
from capgrade.trainer.search.index import KIND, SIMILARITY, embed, made_from


@dataclass(frozen=True)
class Folders:
    """What a reproduction reads, and where its runs and labels lie: recipes with the same `out` share them."""

    captions: Path
    regions: Path | None
    out: Path

    def run(self, name: str) -> Path:
        return self.out / "runs" / name

    def relevance(self, measure: str) -> Path:
        return self.out / "relevance" / measure


def similarity_of(
    name: str, pooling: str | None, folders: Folders, settings: Settings, captions: Captions, say: Callable[[str], None]
) -> Path:
    """similarity.npy of a run on the captions' split. A finished run is left as it is, a stopped one goes on; an index
    of this model, captions and regions is not made again.

    Raises what `train` and `embed` raise.
    """
    assert folders.regions is not None
    run = folders.run(name)
    say(f"run {name}")
    train(Data(folders.captions, folders.regions), run, settings.runs[name], settings.measures)
    index = run / (f"index-{pooling}" if pooling else "index")
    if not _current(index, run, captions, folders.regions):
        embed(run, folders.captions, folders.regions, captions.split, index, pooling)
    return index / SIMILARITY


def _current(index: Path, run: Path, captions: Captions, regions: Path) -> bool:
    try:
        return read_manifest(index, KIND)["inputs"] == made_from(run, captions, {"regions": digest(regions / MANIFEST)})
    except InputError:  # not there, or stopped
        return False
