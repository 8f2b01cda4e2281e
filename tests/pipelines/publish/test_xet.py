"""Uploads by Xet, with its own client, to a stand-in for the hub that counts the chunks that come.

A process for each: the client is made once in a process, with its cache and addresses.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from capgrade.pipelines.publish import tables
from capgrade.schemas.files import MANIFEST, write_manifest

from .conftest import REPO, write_folder
from .stand_in import TOKEN, Hub, running

ROWS, INSERTED = 400_000, 101
NAME = "relevance/train-00000-of-00002.parquet"


def pushed(folder: Path, home: Path, hub: Hub) -> int:
    """Push by the command, as it is set up, and return the bytes of new chunks."""
    before = sum(hub.xorbs)
    given = {"HF_ENDPOINT": hub.address, "HF_TOKEN": TOKEN, "HF_HOME": str(home)}
    environment = {**os.environ, **given, "HF_HUB_OFFLINE": "0"}
    line = [sys.executable, "-m", "capgrade.pipelines.cli", "publish", "push", str(folder), REPO]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return sum(hub.xorbs) - before


@pytest.mark.parametrize("chunked", [True, False])
def test_of_a_table_into_which_rows_were_put_most_chunks_stay(
    chunked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of Parquet that follow the content, and Xet's: more is sent without the former. Each
    push is one commit, upon the commit that was looked at."""
    monkeypatch.delenv("HF_HUB_DISABLE_XET", raising=False)
    how = {**tables.AS_DATASETS, "use_content_defined_chunking": chunked}
    monkeypatch.setattr(tables, "AS_DATASETS", how)
    random = np.random.default_rng(int(chunked))
    columns = {name: random.random(ROWS).astype(np.float32) for name in ("cider", "sbert")}
    first = pa.table(columns)
    second = pa.concat_tables([first[:1000], first[:INSERTED], first[1000:]]).combine_chunks()
    sent = []
    with running() as hub:
        for version, table in (("1", first), ("2", second)):
            file = tmp_path / "t.parquet"
            tables.write_parquet(file, table.schema, iter(table.to_batches(10_000)))
            folder = write_folder(tmp_path / "dataset", version)
            (folder / NAME).write_bytes(file.read_bytes())
            write_folder_again(folder, version)
            sent.append(pushed(folder, tmp_path / "home", hub) / file.stat().st_size)
        assert len(hub.asked("commit")) == 2 and hub.asked("upload") == []
    assert sent[0] > 0.9
    assert sent[1] < 0.4 if chunked else sent[1] > 0.45, f"{sent[1]:.2f} of the file were sent"


def write_folder_again(folder: Path, version: str) -> None:
    """The manifest of what now lies in a folder."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    names = [path.relative_to(folder).as_posix() for path in found]
    params = {"publish": {"name": "tiny", "version": version}}
    write_manifest(folder, "publish", params=params, inputs={}, rows=dict.fromkeys(names, 0))
