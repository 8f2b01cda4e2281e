"""Measures that another package brings: a tiny one, found by its entry point in a process of its
own."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from capgrade.schemas.files import package_of
from tests.conftest import caption_table, random_sets, write_captions_folder

MODULE = """
from dataclasses import dataclass

import numpy as np

from capgrade.measures.base import Measure, OfReferences, reference_sets
from capgrade.schemas.block import ParamsBlock


class LengthParams(ParamsBlock):
    scale: float = 1.0
    self_reference: str = "included"


@dataclass(frozen=True)
class FittedLength(OfReferences):
    words: np.ndarray
    scale: float

    def pairs(self, images, captions):
        out = np.empty(len(captions), np.float32)
        for k, (image, caption) in enumerate(zip(images, captions)):
            own = self.refs[self.ref_ptr[image] : self.ref_ptr[image + 1]]
            own = own[own != caption] if self.leave_out else own
            out[k] = 1 / (1 + self.scale * np.abs(self.words[own] - self.words[caption]).min())
        return out


class Length(Measure[LengthParams]):
    name, low, high, parameters = "length", 0.0, 1.0, LengthParams

    def fit(self, captions):
        words = np.array([len(text.split()) for text in captions.texts])
        sets = reference_sets(self.params.self_reference, captions)
        return FittedLength(*sets, words, self.params.scale)

    def meaning(self):
        return f"nearness of lengths at scale {self.params.scale:g}"
"""
POINTS = """[capgrade.measures]
length = length_measure:Length
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with captions and an installed package."""
    write_captions_folder(tmp_path / "captions", [caption_table(random_sets(12, seed=3, least=2))])
    site = tmp_path / "site"
    (site / "length_measure-0.1.dist-info").mkdir(parents=True)
    (site / "length_measure-0.1.dist-info" / "METADATA").write_text(
        "Name: length-measure\nVersion: 0.1\n"
    )
    (site / "length_measure-0.1.dist-info" / "entry_points.txt").write_text(POINTS)
    (site / "length_measure.py").write_text(MODULE)
    return tmp_path


def capgrade(world: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(world / "site"), *sys.path])}
    command = [sys.executable, "-m", "capgrade.pipelines.cli", *words]
    return subprocess.run(command, cwd=world, env=environment, capture_output=True, text=True)


def test_a_package_brings_a_measure_to_every_command(world: Path) -> None:
    words = [
        "--captions",
        "captions",
        "--measures",
        "length,rouge_l",
        "--set",
        "measures.length.scale=2.5",
    ]
    for stage in ("relevance", "shards"):
        done = capgrade(world, stage, *words, "--out", stage)
        assert done.returncode == 0, done.stderr
        manifest = json.loads((world / stage / "manifest.json").read_text())
        assert manifest["packages"] == {"length-measure": "0.1"}
    point = SimpleNamespace(dist=SimpleNamespace(metadata={}))  # of a broken installation
    assert package_of(cast("EntryPoint", point)) is None
    out = ["--license", "cc0-1.0", "--out", "dataset"]
    done = capgrade(world, "publish", "--captions", "captions", "--shards", "shards", *out)
    assert done.returncode == 0, done.stderr
    assert (
        "| `length` | float32 | nearness of lengths at scale 2.5 |"
        in (world / "dataset" / "README.md").read_text()
    )
    show = capgrade(world, "relevance", *words, "--set", "measures.length.scal=1", "--out", "other")
    assert show.returncode == 2 and "unknown parameter 'measures.length.scal'" in show.stderr


WORKS = "relevance --captions captions --measures rouge_l --out made"
LISTS = "list measures"  # the catalogue alone is a quicker process


@pytest.mark.parametrize(("module", "said", "line"), [
    ("raise OSError('no such library')", "no such library", WORKS),
    ("Length = 3", "no subclass", LISTS),
    (MODULE.replace('"length", 0.0', '"cider", 0.0'), "there is a measure 'cider' already", LISTS),
    (MODULE.replace('"length", 0.0', '"weight", 0.0'), "cannot be called 'weight'", LISTS),
])  # fmt: skip
def test_a_package_that_is_broken_leaves_the_other_measures(
    world: Path, module: str, said: str, line: str
) -> None:
    (world / "site" / "length_measure.py").write_text(module)
    done = capgrade(world, *line.split())
    assert done.returncode == 0, done.stderr
    assert line == WORKS or "rouge_l" in done.stdout
    assert "measure 'length' is left out" in done.stderr and said in done.stderr
