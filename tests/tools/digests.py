"""Has a pipeline written what this code is known to write? Of what does not depend on the
processor:

    python -m tests.tools.digests [--write]

reads data/captions, makes shards of ROUGE-L from it, and compares digests with digests.yaml, which
`--write` renews.
"""

import sys
import tempfile
from pathlib import Path

import yaml

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.files import read_manifest

KNOWN = Path(__file__).with_name("digests.yaml")


def digests(captions: Path) -> dict[str, str]:
    """SHA-256 of files by name."""
    found = {
        "captions.arrow": read_manifest(captions, "captions")["files"]["captions.arrow"]["sha256"]
    }
    with tempfile.TemporaryDirectory() as folder:
        params = ShardsParams(split="train", measures=("rouge_l",), top=8, uniform=8)
        made = shards(captions, Path(folder) / "shards", params, MeasuresParams())
    return found | {f"rouge_l {name}": entry["sha256"] for name, entry in made["files"].items()}


if __name__ == "__main__":
    found = digests(Path("data") / "captions")
    if "--write" in sys.argv:
        KNOWN.write_text(yaml.safe_dump(found), encoding="utf-8")
    known = yaml.safe_load(KNOWN.read_text(encoding="utf-8"))
    others = [name for name in {**known, **found} if known.get(name) != found.get(name)]
    print(
        "\n".join(f"{name}: other bytes than known" for name in others)
        or f"{len(found)} digests are those known"
    )
    sys.exit(1 if others else 0)
