"""Features of the usual shape for captions without pictures, made from the captions' words, so that
a model can learn from them.

    python -m research.studies.made_features --captions DIR --out FOLDER

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
from research.studies import arguments

REGIONS, WIDTH = 36, 2048
NOISE = 1.0  # standard deviation; that of a word's vector is 1


def _word_vector(word: str) -> np.ndarray:
    """The random vector of a word, standard normal: float32 [WIDTH]."""
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng(seed).standard_normal(WIDTH, np.float32)


def make(captions_dir: Path, out: Path) -> dict[str, int]:
    """Write the features of every split; returns the number of images by split."""
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
            shape = (captions.n_images, REGIONS, WIDTH)
            rows = np.lib.format.open_memmap(temporary, "w+", np.float16, shape)
            for image, image_id in enumerate(captions.image_ids):
                words = sorted({word for row in captions.rows_of(image) for word in tokens[row]})
                rng = np.random.default_rng(int.from_bytes(image_id.encode()[-8:], "little"))
                chosen = rng.choice(words, REGIONS)
                region_words = [vectors.setdefault(word, _word_vector(word)) for word in chosen]
                noise = NOISE * rng.standard_normal((REGIONS, WIDTH), np.float32)
                rows[image] = np.stack(region_words) + noise
                advance(1)
            rows.flush()
        ids = "".join(f"{image_id}\n" for image_id in captions.image_ids)
        write_text(out / f"{split}_ids.txt", ids)
        counts[split] = captions.n_images
    return counts


if __name__ == "__main__":
    args = arguments(__doc__, "captions")
    print(make(args.captions, args.out))
