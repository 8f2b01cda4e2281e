"""Stage: what the words of a trained TERAN point at: a picture, and where true boxes are known, how often rightly."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_json, write_manifest
from capgrade.schemas.inputs import found_digests, require_unchanged
from capgrade.schemas.output import output_folder
from capgrade.schemas.region_store import RegionStore
from capgrade.trainer.alignment.picture import picture
from capgrade.trainer.alignment.pointing_game import Aligned, aligned, pointing, read_phrases
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.fit import VOCABULARY
from capgrade.trainer.fit.checkpoint import load_run, require_dim, weights_of
from capgrade.trainer.models.tern import TERAN
from capgrade.trainer.models.text_encoder import word_pieces
from capgrade.trainer.search.encode import SIZE, encode_captions, encode_images

PICTURE, POINTING = "alignment.png", "pointing.json"
Decode = Callable[[str], Image.Image]


def align(
    run: Path, captions_dir: Path, regions_dir: Path, split: str | None, out: Path, decode: Decode, count: int = 6
) -> dict[str, Any] | None:
    """Write alignment.png, `count` images spread over the split, each with its first caption; `decode` gives an image
    by its id. Where the captions have true boxes, also pointing.json: its content is returned, else None.

    Raises InputError for a model that aligns no words, for an `out` that another stage wrote, and for a run, captions
    and regions that do not fit together.
    """

    def sources() -> dict[str, str]:
        model = {"model": run / weights_of(run), "vocabulary": run / VOCABULARY}
        return found_digests(**model, captions=captions_dir, regions=regions_dir)

    with output_folder(out, "alignment") as folder:
        inputs = sources()
        model, tokens, config = load_run(run)
        if not isinstance(model, TERAN):
            raise InputError("this model aligns no words with regions", remedy="give a run of --preset teran")
        captions, store = read_captions(captions_dir, split), RegionStore(regions_dir)
        require_dim(config["feature_dim"], store.metadata["dim"], regions_dir)
        own = list(alignments(model, Pairs(captions, store, tokens.encode(captions))))
        shown = sorted({int(i) for i in np.linspace(0, captions.n_images - 1, min(count, captions.n_images))})
        first = [int(np.flatnonzero(captions.owner == i)[0]) for i in shown]
        picture([(decode(captions.image_ids[i]), own[c]) for i, c in zip(shown, first, strict=True)], folder / PICTURE)
        game, names = None, [PICTURE]
        if (phrases := read_phrases(captions_dir, captions)) is not None:
            played = pointing(zip(own, (phrases[caption] for caption in captions.caption_ids), strict=True))
            game = {kind: asdict(one) for kind, one in played.items()}
            write_json(folder / POINTING, game)
            names.append(POINTING)
        require_unchanged(inputs, sources())
        inputs |= {} if split is None else {"split": split}
        write_manifest(folder, "alignment", params={"count": count}, inputs=inputs, rows=dict.fromkeys(names, 0))
        return game


def alignments(model: TERAN, pairs: Pairs) -> Iterator[Aligned]:
    """Each caption of a split against its own image, in order."""
    captions = pairs.captions
    images, texts = encode_images(model, pairs.image_batches(SIZE)), encode_captions(model, pairs.caption_batches(SIZE))
    pieces = word_pieces(captions.texts, model.config.text_model)
    for c, text in enumerate(captions.texts):
        i = int(captions.owner[c])
        boxes = pairs.store[captions.image_ids[i]].boxes
        if boxes is None:
            problem = f"image '{captions.image_ids[i]}' has no boxes"
            raise InputError(problem, file=pairs.store.folder, remedy="extract its regions with capgrade regions")
        yield aligned(images[i : i + 1], texts[c : c + 1], boxes, text, pieces[c])
