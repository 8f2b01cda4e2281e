"""examples/label.py, which `uv run` takes without an installation: labels of somebody's captions by
the core alone."""

import csv
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import datasets

from tests.conftest import ROOT

SCRIPT = ROOT / "examples" / "label.py"
SETS = {
    "p1": ["a brown dog runs on the beach", "a dog runs along the sea"],
    "p2": ["a dog runs on the beach with a ball", "a wet dog and its ball"],
    "p3": ["two men play chess in a park", "men sit at a table with a chess board"],
}
ROWS = [{"image_id": image, "caption": text} for image, texts in SETS.items() for text in texts]


def labels_of(*command: str, cwd: Path) -> dict[str, list[str]]:
    """Image -> captions, best first, as labels.csv has them."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = {}
    with (cwd / "labels" / "labels.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["image_id"], []).append(row["caption"])
    return found


def write_csv(path: Path, encoding: str = "utf-8") -> None:
    with path.open("w", newline="", encoding=encoding) as file:
        out = csv.DictWriter(file, ["image_id", "caption"])
        out.writeheader()
        out.writerows(ROWS)


def test_a_table_and_a_dataset_give_the_best_captions_of_other_images(tmp_path: Path) -> None:
    write_csv(tmp_path / "captions.csv")
    found = labels_of(sys.executable, str(SCRIPT), "captions.csv", cwd=tmp_path)
    assert found["p1"][0] == SETS["p2"][0] and found["p2"][0] == SETS["p1"][0]
    assert all(not set(found[image]) & set(texts) for image, texts in SETS.items())
    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"))
    shutil.rmtree(tmp_path / "labels")
    assert labels_of(sys.executable, str(SCRIPT), "saved", cwd=tmp_path) == found
    shutil.rmtree(tmp_path / "labels")
    (tmp_path / "cloned").mkdir()  # a dataset of the hub, as git has it
    datasets.Dataset.from_list(ROWS).to_parquet(
        str(tmp_path / "cloned" / "train-00000-of-00001.parquet")
    )
    assert labels_of(sys.executable, str(SCRIPT), "cloned", cwd=tmp_path) == found


def test_a_table_of_excel_and_a_table_without_ids(tmp_path: Path) -> None:
    write_csv(tmp_path / "captions.csv", "utf-8-sig")  # as Excel writes it
    assert len(labels_of(sys.executable, str(SCRIPT), "captions.csv", cwd=tmp_path)) == len(SETS)
    (tmp_path / "other.csv").write_text("path,caption\n1.jpg,a dog\n")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "other.csv"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr.startswith(
        "error: captions row 1: no column 'image_id'"
    )
    assert len(done.stderr.splitlines()) == 1


def test_its_header_names_this_project_and_nothing_else() -> None:
    header = re.search(
        r"^# /// script\n(.*?)^# ///$", SCRIPT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert header
    stated = tomllib.loads(re.sub(r"^# ?", "", header[1], flags=re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (stated["dependencies"], stated["requires-python"]) == (
        ["capgrade"],
        project["requires-python"],
    )
    where = stated["tool"]["uv"]["sources"]["capgrade"]["path"]
    assert (SCRIPT.parent / where).resolve() == ROOT
