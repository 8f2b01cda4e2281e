"""research/studies/regraded.py on a few captions of its own, with lists that are made up."""

import numpy as np
import pytest

from capgrade.metrics import Positives
from research.studies import regraded
from tests.conftest import caption_table, random_sets, write_captions_folder


def test_a_row_for_each_model_and_direction(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark's R@1 is that of the saved matrix, and own pairs alone are right where the
    lists are empty: then the truth is the benchmark's."""
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    # A number each, so that no two scores are equal.
    sets = [[f"{text} {i}" for text in texts] for i, texts in enumerate(random_sets(40, least=2))]
    folder = write_captions_folder(tmp_path / "captions", [caption_table(sets)])
    n_captions = sum(map(len, sets))
    none = Positives.from_lists([[]] * 40), Positives.from_lists([[]] * n_captions)
    monkeypatch.setattr(regraded, "human_lists", lambda *_: none)
    rows = list(regraded.table(folder, tmp_path / "work", 200, None))
    assert rows[0].startswith(regraded.HEAD) and len(rows) == 6
    owner = np.repeat(np.arange(40), [len(texts) for texts in sets])
    for row in rows[2:]:
        name, way, counted, also, true, *_ = (cell.strip() for cell in row.strip("|").split("|"))
        S = np.load(tmp_path / "work" / f"{name}.npy")
        best = S.argmax(axis=1 if way == "image to text" else 0)
        hits = owner[best] == np.arange(40) if way == "image to text" else best == owner
        for value in (counted, also.split()[0], true.removesuffix(", outside")):
            assert float(value) == pytest.approx(100 * hits.mean(), abs=0.06)
