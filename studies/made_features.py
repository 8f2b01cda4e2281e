"""Features of the real shape for captions without pictures, from the captions' words, so that they
can be learnt.

    python -m studies.made_features --captions DIR --out FOLDER

Each image has 36 regions of 2,048 numbers, float16, in SCAN's layout: {split}_ims.npy and
{split}_ids.txt. A region is the random vector of one of the caption words of its image, with noise
as large as the vector itself.
"""

import hashlib
from pathlib import Path

import numpy as np

from capgrade.schemas.captions import read_captions, splits_of
from capgrade.schemas.files import atomic, write_text
from capgrade.schemas.progress import progress
from studies import arguments

REGIONS, WIDTH = 36, 2048
NOISE = 1.0  # standard deviation, beside a word vector's 1


def word_vector(word: str) -> np.ndarray:
    """float32 [WIDTH], standard normal, the same for a word wherever it stands."""
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng(seed).standard_normal(WIDTH, np.float32)


def make(captions_dir: Path, out: Path) -> dict[str, int]:
    """Write the features of every split; images by split."""
    vectors: dict[str, np.ndarray] = {}
    counts = {}
    for split in splits_of(captions_dir):
        captions = read_captions(captions_dir, split)
        tokens = captions.table["tokens"].to_pylist()
        out.mkdir(parents=True, exist_ok=True)
        with (
            atomic(out / f"{split}_ims.npy") as temporary,
            progress(f"features of {split}", captions.n_images) as advance,
        ):
            rows = np.lib.format.open_memmap(
                temporary, "w+", np.float16, (captions.n_images, REGIONS, WIDTH)
            )
            for image, image_id in enumerate(captions.image_ids):
                words = sorted({word for row in captions.rows_of(image) for word in tokens[row]})
                rng = np.random.default_rng(int.from_bytes(image_id.encode()[-8:], "little"))
                chosen = rng.choice(words, REGIONS)
                known = [vectors.setdefault(word, word_vector(word)) for word in chosen]
                rows[image] = np.stack(known) + NOISE * rng.standard_normal(
                    (REGIONS, WIDTH), np.float32
                )
                advance(1)
            rows.flush()
        write_text(
            out / f"{split}_ids.txt", "".join(f"{image_id}\n" for image_id in captions.image_ids)
        )
        counts[split] = captions.n_images
    return counts


if __name__ == "__main__":
    given = arguments(__doc__, "", "captions")
    print(make(given.captions, given.out))
