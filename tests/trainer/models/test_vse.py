"""VSE++ beside a loop over images and captions."""

from dataclasses import replace

import torch

from capgrade.trainer.models.vse import Vse, VseConfig

from .made import FEATURES, REGIONS, VOCABULARY, WORDS, close, images, same_in_bfloat16, texts


def made() -> Vse:
    torch.manual_seed(0)
    return Vse(VseConfig(embed=8, word=5), FEATURES, VOCABULARY)


def scores(model: Vse, regions: int = 6, words: int = 7, garbage: float = 0.0) -> torch.Tensor:
    encoded = model.encode_images(images(padded=regions, garbage=garbage))
    return model.scores(encoded, model.encode_captions(texts(padded=words)))


def test_scores_are_cosines_of_mean_regions_and_last_states() -> None:
    model, a, b = made(), images(), texts()
    ours = scores(model)
    assert ours.shape == (5, 6)
    for i, n in enumerate(REGIONS):
        mean = a.features[i, :n].mean(0)
        image = model.project(mean / mean.norm())
        for j, length in enumerate(WORDS):
            _, last = model.read.gru(model.read.embed(b.tokens[j : j + 1, :length]))
            close(ours[i, j], torch.cosine_similarity(image, last[0, 0], dim=0))


def test_padding_changes_nothing() -> None:
    close(scores(made(), 9, 12, garbage=float("nan")), scores(made()))


def test_one_global_feature_is_one_region() -> None:
    model, batch = made(), images((1, 1), padded=1)
    feature = batch.features[:, 0]
    image = model.project(feature / feature.norm(dim=1, keepdim=True))
    close(model.encode_images(batch).vector, torch.nn.functional.normalize(image, dim=1))


def test_the_size_of_a_feature_does_not_matter() -> None:
    model, batch = made(), images()
    larger = replace(batch, features=7 * batch.features)
    close(model.encode_images(larger).vector, model.encode_images(batch).vector)


def test_bfloat16_autocast_and_gradients() -> None:
    model = made()
    same_in_bfloat16(model, lambda: [scores(model, 8, 9)], 0.03)
    assert all(p.grad is not None for p in model.parameters())
