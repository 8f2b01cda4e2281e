"""The map of `measures.sbert.shared_from=coco`, from the captions of MS-COCO's 5K test images.

    capgrade captions --source tsv --input ../shared/data/coco/test5k_captions.tsv --split test \
        --out coco/captions
    python -m research.studies.shared_map --captions coco/captions \
        --out capgrade/measures/sbert/coco.arrow --force
"""

import argparse
from pathlib import Path

from capgrade.measures.sbert.shared import SharedMap
from capgrade.pretrained import EMBEDDED
from capgrade.schemas.captions import read_captions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captions", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--force", action="store_true", help="Write over a file that is there.")
    given = parser.parse_args()
    learnt = SharedMap.of_captions(read_captions(given.captions), EMBEDDED)
    learnt.write(given.out, EMBEDDED, given.force)


if __name__ == "__main__":
    main()
