"""Published folders: a small one written by hand, so that uploads are tested without computing anything."""

from __future__ import annotations

from pathlib import Path

from capgrade.schemas.files import write_manifest, write_text

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


def write_folder(folder: Path, version: str = "1.0.0", dataset: str = "tiny", **changed: str | None) -> Path:
    """A finished folder; `changed` gives a file other content, or takes it out with None."""
    files = {name: text for name, text in {**DATA, **changed}.items() if text is not None}
    for name, text in files.items():
        write_text(folder / name, text)
    write_manifest(
        folder, "publish", params={"name": dataset, "version": version}, inputs={}, rows=dict.fromkeys(files, 0)
    )
    return folder
