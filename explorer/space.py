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
    split, naming = environment.get("CAPGRADE_SPLIT"), "CAPGRADE_ENCODER={value}"
    folders = ExplorerFolders(dataset=Path(source), split=split, params=params, naming=naming)
    reviews, port = Path(environment.get("CAPGRADE_REVIEWS", "reviews")), int(environment.get("PORT", "7860"))
    serve(open_explorer(folders), reviews, "0.0.0.0", port, print)


if __name__ == "__main__":
    main()
