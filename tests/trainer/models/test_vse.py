"""VSE++ beside a loop over images and captions."""

import torch

from .made import REGIONS, WORDS, encoded, images, made, same, texts


def test_scores_are_cosines_of_mean_regions_and_last_states() -> None:
    model, a, b = made("vse", embed=8, word=5), images(), texts()
    rows = [
        model.project(x[:n].mean(0).double() / x[:n].mean(0).norm()) for x, n in zip(a.features, REGIONS, strict=True)
    ]
    read = [model.read.gru(model.read.embed(t[None, :n]))[1][0, 0] for t, n in zip(b.tokens, WORDS, strict=True)]
    expected = torch.cosine_similarity(torch.stack(rows)[:, None], torch.stack(read)[None], dim=2)
    same(model, [model.scores(*encoded(model))], [expected], 1e-7, 1e-6)
