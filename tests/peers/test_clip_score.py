"""CLIPScore beside torchmetrics, which prints 100 times the cosine of a caption and a picture."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from tests.capgrade.measures.test_image_text import SETS, SIZES, fitted_on, models, pictures
from tests.conftest import make_captions

__all__ = ["models", "pictures"]  # fixtures
SHORT = [[text for text in own if len(text) < 60] for own in SETS]  # torchmetrics cuts others


def test_clip_score_is_that_of_torchmetrics(
    models: dict[str, str],  # noqa: F811
    pictures: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    from torchmetrics.functional.multimodal import clip_score
    from transformers import AutoProcessor, CLIPModel

    class Vectors(CLIPModel):
        """torchmetrics takes what transformers returned before its version 5."""

        def get_image_features(self, *args, **more):
            return super().get_image_features(*args, **more).pooler_output

        def get_text_features(self, *args, **more):
            return super().get_text_features(*args, **more).pooler_output

    captions = make_captions(SHORT)
    model = Vectors.from_pretrained(models["clip"]).eval()
    processor = AutoProcessor.from_pretrained(models["clip"], backend="pil")
    with torch.no_grad():
        model.text_projection.weight.neg_()  # Cosines of the random model are negative.
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    every = [(i, text) for i in range(len(SIZES)) for text in captions.texts]
    seen = [
        torch.from_numpy(np.asarray(Image.open(pictures / f"i{i}.png")).transpose(2, 0, 1).copy())
        for i, _ in every
    ]
    with torch.no_grad():
        theirs = [
            float(clip_score(picture, text, lambda: (model, processor)))
            for picture, (_, text) in zip(seen, every, strict=True)
        ]
    ours = fitted_on(captions, str(tmp_path), pictures, form="clipscore", prompt="")
    found = ours.score(np.arange(len(SIZES))).ravel()
    assert (found > 0.05).any()
    # Theirs are cosines in hundredths; 2.5 of them that are not negative is Hessel et al.'s score.
    np.testing.assert_allclose(found, 2.5 * np.clip(theirs, 0, None) / 100, atol=1e-5)
