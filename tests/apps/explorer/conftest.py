"""One small explorer for the tests of its pages and of what its server refuses; some of its
captions are hostile."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capgrade.agreement.judgements import Judgements
from capgrade.apps.explorer.answers import Explorer
from capgrade.apps.explorer.corpus import LabelledCorpus, sample_pairs
from capgrade.apps.explorer.pairs import JUDGED, PEOPLE_SCORES
from capgrade.apps.explorer.ratings import open_review
from capgrade.apps.explorer.voices import fit_measure_voices, make_matrix_voice
from capgrade.measures import choose
from capgrade.measures.params import MeasuresParams
from capgrade.pictures.lookup import find_pictures
from capgrade.schemas.captions import Captions
from tests.conftest import caption_table, random_sets
from tests.pipelines.publish.conftest import made  # noqa: F401  # a published dataset, and what it was made of
from tests.tools.browser import running

HOSTILE = [
    "<script>window.hacked = 1</script> a dog",
    '"><img src=x onerror="window.hacked = 1"> a dog',
    "{{ 7 * 7 }} {% raw %} ${window.hacked = 1} a dog",
    "</ul></section><style>* { display: none !important }</style> a dog",
    "' onmouseover='window.hacked = 1' a dog &amp; \\u003cb\\u003e",
]
NAMES = ("cider", "rouge_l")


@dataclass
class World:
    explorer: Explorer
    reviews: Path
    address: str

    @property
    def captions(self) -> Captions:
        return self.explorer.corpus.captions

    @property
    def ratings(self):
        return open_review(self.reviews, self.explorer.corpus)


def explorer_of(captions: Captions, folder: Path, **more: Any) -> Explorer:
    """Of two measures; 40 pairs are judged."""
    scores = {
        name: measure.fit(captions).score
        for name, measure in choose(NAMES, MeasuresParams()).items()
    }
    corpus = LabelledCorpus(captions, sample_pairs(captions, scores), MeasuresParams(), folder)
    random = np.random.default_rng(2)
    drawn = random.choice(captions.n_images * captions.n_captions, 40, replace=False)
    people = Judgements(
        *np.divmod(drawn, captions.n_captions), random.integers(6, size=40).astype(float)
    )
    return Explorer(
        corpus, fit_measure_voices(captions, NAMES, MeasuresParams()), people=people, **more
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A running server, with a model's scores beside two measures. The first image has a hostile
    id, every second one a picture."""
    folder = tmp_path_factory.mktemp("explorer")
    table = caption_table([HOSTILE, *random_sets(15, seed=2, least=2)], "test")
    ids = ["<b onclick=alert(1)>" if i == "i0" else i for i in table["image_id"].to_pylist()]
    captions = Captions(
        table.set_column(0, table.schema.field(0), [ids]), "test", "lower_split", "digest"
    )
    (folder / "pictures").mkdir()
    for k in range(1, 16, 2):
        Image.new("RGB", (40, 30), (k * 9, 80, 120)).save(folder / "pictures" / f"i{k}.png")
    scores = np.random.default_rng(3).random((captions.n_images, captions.n_captions), np.float32)
    pictures = find_pictures(captions, folder / "pictures")
    explorer = explorer_of(
        captions, folder, pictures=pictures, matrices=[make_matrix_voice("another", scores)]
    )
    # as `open_explorer`: kernels are compiled
    (
        explorer.answer_caption(0),
        explorer.answer_image(0),
        explorer.answer_text("a dog"),
    )
    explorer.disagreements(JUDGED, PEOPLE_SCORES, NAMES[0], 1)
    with running(explorer, folder / "reviews") as address:
        yield World(explorer, folder / "reviews", address)
