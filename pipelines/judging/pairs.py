"""Which pairs a judge is asked about, and what it is shown of each."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from capgrade.pipelines.agreement.judgement_files import read_judgements
from capgrade.pipelines.judging.prompt import Prompt
from capgrade.pipelines.pictures.lookup import PictureLookup
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import canonical
from capgrade.schemas.lines import read_lines

ALL = "all"
LINES = "pairs.jsonl"  # in the folder of a review
SIDE = 512  # pixels of a picture's longer side


def read_pairs(given: str, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    """image and caption, int64 [n], each pair once: of a review's folder, of JSON lines with image_id and caption_id,
    of judgements, or with `all` every pair. InputError for ids that the captions do not have."""
    if given == ALL:
        image, caption = np.divmod(np.arange(captions.n_images * captions.n_captions), captions.n_captions)
        return image, caption
    path = Path(given)
    path = path / LINES if path.is_dir() else path
    if path.suffix == ".jsonl":
        image, caption = _lines(path, captions)
    else:
        judged = read_judgements(path, captions)
        image, caption = judged.image, judged.caption
    first = np.unique(image * captions.n_captions + caption, return_index=True)[1]
    return image[np.sort(first)], caption[np.sort(first)]


def _lines(path: Path, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    image_at = {key: k for k, key in enumerate(captions.image_ids)}
    caption_at = {key: k for k, key in enumerate(captions.caption_ids)}
    found = []
    for row, line in read_lines(path):
        if not line.strip():
            continue
        try:
            pair = json.loads(line)
            found.append((image_at[pair["image_id"]], caption_at[pair["caption_id"]]))
        except (ValueError, TypeError, KeyError) as error:
            remedy = "give image_id and caption_id of these captions in each line"
            raise InputError(f"not a pair of these captions ({error})", file=path, row=row, remedy=remedy) from error
    if not found:
        raise InputError("no pairs", file=path)
    image, caption = np.array(found, np.int64).T
    return image, caption


@dataclass(frozen=True)
class Shown:
    """What a judge sees of a pair: the caption, the image's other captions, its picture."""

    captions: Captions
    prompt: Prompt
    model: str
    pictures: PictureLookup | None
    digests: dict[str, str | None] = field(default_factory=dict)  # image id -> SHA-256 of its picture

    def others(self, image: int, caption: int) -> list[str]:
        """The image's captions without this one; none where the prompt does not show them."""
        if not self.prompt.reads_captions:
            return []
        own = self.captions.refs[self.captions.ref_ptr[image] : self.captions.ref_ptr[image + 1]]
        return [self.captions.texts[c] for c in own if c != caption]

    def lacks(self, image: int, caption: int) -> str | None:
        """Why nothing can be asked of this pair; None where something can."""
        if self.pictures is not None and self._digest(self.captions.image_ids[image]) is None:
            return "no picture of the image"
        if self.prompt.reads_captions and not self.others(image, caption):
            return "the image has no other caption"
        return None

    def key(self, image: int, caption: int) -> str:
        """SHA-256 of model, prompt and pair: what is asked."""
        picture = None if self.pictures is None else [SIDE, self._digest(self.captions.image_ids[image])]
        asked = [self.model, self.prompt.digest, self.captions.texts[caption], self.others(image, caption), picture]
        return hashlib.sha256(canonical(asked).encode()).hexdigest()

    def messages(self, image: int, caption: int) -> list[dict]:
        """InputError for a picture that is no picture."""
        picture = None if self.pictures is None else _data_url(self.pictures, self.captions.image_ids[image])
        return self.prompt.messages(self.captions.texts[caption], self.others(image, caption), picture)

    def _digest(self, image_id: str) -> str | None:
        if image_id not in self.digests:
            data = None if self.pictures is None else self.pictures.read(image_id)
            self.digests[image_id] = None if data is None else hashlib.sha256(data).hexdigest()
        return self.digests[image_id]


def _data_url(pictures: PictureLookup, image_id: str) -> str:
    image = pictures.image(image_id)
    if image is None:
        raise InputError(f"no readable picture of image {image_id}")
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"
