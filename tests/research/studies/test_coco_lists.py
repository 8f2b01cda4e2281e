"""research/studies/coco_lists.py on a few captions: the pairs of the stages, one after the other."""

import numpy as np
import pytest

from capgrade.agreement.calibration import SHIPPED, load_calibration
from capgrade.labels import Labels
from capgrade.schemas.captions import read_captions
from research.studies.coco_lists import likely_pairs
from tests.conftest import call, caption_table, random_sets, write_captions_folder


def test_it_holds_the_pairs_that_people_accept(tmp_path) -> None:
    """By the values that `capgrade relevance` writes, and the shipped calibration."""
    sets = random_sets(9, least=5, most=5)
    table = caption_table(sets, prefix="")
    numbers = [one.replace("#", "0") for one in table["caption_id"].to_pylist()]
    table = table.set_column(1, table.schema.field("caption_id"), [numbers])
    folder = write_captions_folder(tmp_path / "captions", [table])
    out = tmp_path / "relevance"
    assert call("relevance", "--captions", folder, "--measures", "people", "--out", out) == 0
    labels = Labels.load(out, captions=folder)
    values = np.asarray(labels.block(range(9), range(45)).relevance)
    curve = load_calibration(SHIPPED).fitting(labels.owner).curves["people"]
    found = likely_pairs(read_captions(folder), 0.1)
    p = curve.probability(values)
    expected = (p >= 0.1) & (labels.owner != np.arange(9)[:, None])
    assert set(zip(found.pairs.image, found.pairs.caption, strict=True)) == set(
        zip(*np.nonzero(expected), strict=True)
    )
    pairs = found.pairs
    assert pairs.value == pytest.approx(100 * p[pairs.image, pairs.caption], abs=1)
    assert found.image_ids.tolist() == list(range(9)) and 0 < len(pairs) < 9 * 40
