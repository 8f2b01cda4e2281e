"""Who judged the pairs that `agree` compares measures with: what stands beside its figures wherever they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.agree import read_judgements
from schemas.captions import read_captions
from schemas.relevance import read_relevance

PEOPLE, TRUTH, VALUES = "people", "truth", "values"
TITLES = {
    PEOPLE: "Agreement with human judgements",
    TRUTH: "Agreement with the truth of the scenes",
    VALUES: "Agreement with another matrix",
}
SAID = {
    PEOPLE: "scores that people gave",
    TRUTH: "the true relevance of generated scenes, which no person judged",
    VALUES: "values that another program computed, which no person judged",
}


def who_judged(captions_dir: Path, judgements: Path, split: str | None = None) -> dict[str, Any]:
    """`by` (people, truth or values), the file's name, how many pairs, of which split of which captions table.

    A csv holds people's scores; a dense file is what its metadata say it is.
    """
    captions = read_captions(captions_dir, split)
    by = PEOPLE
    if judgements.suffix == ".arrow":
        by = TRUTH if read_relevance(judgements).metadata.get("measure") == "truth" else VALUES
    pairs = len(read_judgements(judgements, captions).score)
    facts = {"split": captions.split, "captions": captions.digest}
    return {"by": by, "file": judgements.name, "pairs": pairs, **facts}
