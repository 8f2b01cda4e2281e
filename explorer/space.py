"""The explorer as a Hugging Face Space: the same app, told by the environment what to show (docs/look.md).

CAPGRADE_DATASET is a folder, or the id of a dataset that `capgrade publish --push` made; CAPGRADE_SPLIT one of its
splits, CAPGRADE_ENCODER its encoder unless that is the default one, CAPGRADE_REVIEWS a folder that is kept between
restarts, PORT the port, 7860 by default.
"""

from __future__ import annotations

import os
from pathlib import Path

from capgrade.explorer.app import serve
from capgrade.explorer.start import ExplorerFolders, open_explorer
from capgrade.pretrained import EMBEDDED
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, SbertParams


def main() -> None:
    """Serve until it is stopped. InputError for settings that are missing or wrong."""
    source, environment = os.environ.get("CAPGRADE_DATASET"), os.environ
    if not source:
        raise InputError("CAPGRADE_DATASET is not set", remedy="set it in the Space's settings: a dataset id")
    params = MeasuresParams(sbert=SbertParams(model=environment.get("CAPGRADE_ENCODER", EMBEDDED)))
    folder, split = dataset_folder(source), environment.get("CAPGRADE_SPLIT")
    folders = ExplorerFolders(dataset=folder, split=split, params=params, naming="CAPGRADE_ENCODER={value}")
    reviews, port = Path(environment.get("CAPGRADE_REVIEWS", "reviews")), int(environment.get("PORT", "7860"))
    serve(open_explorer(folders), reviews, "0.0.0.0", port, print)


def dataset_folder(source: str) -> Path:
    """The folder itself, or a download of the dataset. InputError when the hub does not give it."""
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, repo_type="dataset"))
    except Exception as error:  # the transport's own kinds: refused, not found, not resolved
        problem = f"the hub does not give '{source}' ({type(error).__name__})"
        raise InputError(problem, remedy="give a dataset id or a folder") from error


if __name__ == "__main__":
    main()
