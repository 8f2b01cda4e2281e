"""The explorer's folders of labels are looked for here alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from capgrade.explorer.start import ExplorerFolders, read_corpus
from capgrade.schemas.errors import InputError


@pytest.mark.parametrize("kind", ["shards", "relevance"])
def test_a_folder_that_is_not_there_is_no_dataset_of_the_hub(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = ExplorerFolders(captions=Path("data/captions"), **{kind: Path("data/labels")})
    with pytest.raises(InputError, match=f"capgrade {kind}"):
        read_corpus(folders)
