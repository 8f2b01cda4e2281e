"""A caption and the images it is relevant to: the right ones in the right order, in text and in a
picture."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.captions import captions
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.show import matches, picture
from capgrade.pipelines.stages.captions import CaptionsParams, ScenesParams
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.relevance import read_relevance


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("show")
    captions(
        folder / "captions", CaptionsParams(scenes=ScenesParams(train=0, val=0, test=12, size=64))
    )
    params = RelevanceParams(measures=("cider", "rouge_l"))
    relevance(folder / "captions", folder / "relevance", params, MeasuresParams())
    return folder / "captions", folder / "relevance"


def test_the_best_images_first(made: tuple[Path, Path]) -> None:
    caption_id, text, found = matches(*made, "scene-test-000004#2", "cider", 5)
    table = read_captions(made[0])
    column = table.caption_ids.index(caption_id)
    values = read_relevance(made[1] / "cider.arrow").matrix()[:, column]
    best = np.argsort(-values, kind="stable")[:5]
    assert text == table.texts[column]
    assert [match.image_id for match in found] == [table.image_ids[i] for i in best]
    assert [match.relevance["cider"] for match in found] == pytest.approx(values[best])
    assert [match.original for match in found] == [i == 4 for i in best]
    assert matches(*made, None, None, 1)[0] == "scene-test-000000#0"


def test_a_picture(made: tuple[Path, Path], tmp_path: Path) -> None:
    _, text, found = matches(*made, None, None, 4)
    picture(made[0], text, found, tmp_path / "p.png")
    image = Image.open(tmp_path / "p.png")
    assert image.format == "PNG"
    assert 4 * 180 < image.width < 4 * 250
    assert 180 < image.height < 400
    assert len(image.getcolors(1 << 20) or []) > 50


def test_what_is_not_there(made: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="no caption 'x' -> ask for ids of this split, such as '.+#0'"
    ):
        matches(*made, "x", None, 3)
    with pytest.raises(
        InputError, match="no measure 'spice' in these labels -> choose from: cider, rouge_l"
    ):
        matches(*made, None, "spice", 3)
    with pytest.raises(InputError, match="no images beside these captions -> leave --out away"):
        picture(tmp_path, "text", matches(*made, None, None, 1)[2], tmp_path / "p.png")


def test_folders_that_do_not_belong_together(made: tuple[Path, Path], tmp_path: Path) -> None:
    """As many captions of the same images, yet other captions; and fewer of them."""
    for name, n, seed in (("other", 12, 1), ("fewer", 9, 0)):
        captions(
            tmp_path / name,
            CaptionsParams(scenes=ScenesParams(train=0, val=0, test=n, size=64, seed=seed)),
        )
    with pytest.raises(
        InputError, match="cider.arrow: computed for another version of the captions table"
    ):
        matches(tmp_path / "other", made[1], None, None, 3)
    with pytest.raises(
        InputError, match="cider.arrow: 60 captions per row, where the captions table has 45"
    ):
        matches(tmp_path / "fewer", made[1], None, None, 3)
