"""A similarity as .csv: numbers alone or with ids, any line end; what is wrong is named with its row."""

from __future__ import annotations

import numpy as np
import pytest

from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.trainer.evaluation.task import read_csv, read_similarity, similarity_of
from tests.trainer.evaluation.test_evaluate import IMAGES, OWNER, SIMILARITY, captions_folder


@pytest.fixture(scope="module")
def captions(tmp_path_factory):
    return read_captions(captions_folder(tmp_path_factory.mktemp("csv")), None)


def _labelled(captions, matrix=SIMILARITY):
    rows = [",".join(["", *captions.caption_ids])]
    rows += [",".join([one, *map(str, row)]) for one, row in zip(captions.image_ids, matrix.tolist(), strict=True)]
    return rows


def test_numbers_alone_with_ids_and_any_line_end(captions, tmp_path):
    """A similarity may leave pairs out with -inf."""
    scores = np.where(SIMILARITY < -0.5, -np.inf, SIMILARITY)
    np.savetxt(tmp_path / "plain.csv", scores, delimiter=",")
    (tmp_path / "cr.csv").write_bytes((tmp_path / "plain.csv").read_bytes().replace(b"\n", b"\r"))
    (tmp_path / "ids.csv").write_text("\r\n".join(_labelled(captions, scores)), newline="")
    np.save(tmp_path / "plain.npy", scores)
    for name in ("plain.csv", "cr.csv", "ids.csv", "plain.npy"):
        np.testing.assert_allclose(read_similarity(tmp_path / name, captions), scores, rtol=1e-6, err_msg=name)
    left, right = np.eye(IMAGES), np.eye(IMAGES)[OWNER]
    np.savetxt(tmp_path / "left.csv", left, delimiter=",")
    np.savetxt(tmp_path / "right.csv", right, delimiter=",")
    cosines = similarity_of(tmp_path / "left.csv", tmp_path / "right.csv", captions)
    np.testing.assert_allclose(cosines, left @ right.T, atol=1e-6)


def test_quoted_ids_may_hold_commas_and_quotes(tmp_path):
    """As pandas writes them."""
    (tmp_path / "ids.csv").write_text(', "a,1", "say ""b"""\n"x, y",0.5,1\n\n z ,2,3\n')
    ids = ["x, y", " z "], ["a,1", 'say "b"']
    np.testing.assert_array_equal(read_csv(tmp_path / "ids.csv", *ids), [[0.5, 1], [2, 3]])


def test_what_is_wrong_is_named_with_its_row(captions, tmp_path):
    rows = [",".join(map(str, row)) for row in SIMILARITY.tolist()]
    labelled = _labelled(captions)
    wrong = {
        "row 3: field 1 is 'x', not a number": [*rows[:2], "x," + rows[2].partition(",")[2]],
        "row 3: field 2 is '', not a number": [*rows[:2], rows[2].replace(",", ",,", 1)],
        f"row 5: {len(OWNER) - 1} numbers, in the first row {len(OWNER)}": [*rows[:4], rows[4].rpartition(",")[0]],
        "holds no numbers": [""],
        "a header without rows": labelled[:1],
        f"not {(IMAGES, len(OWNER))}": rows[:-1],
        "row 1: ids of the columns: 'i1#0' where 'i0#0' is expected": [
            labelled[0].replace("i0#0,", "", 1),
            *labelled[1:],
        ],
        "row 3: ids of the rows: 'i5' where 'i1' is expected": [*labelled[:2], labelled[6]],
        "NaN for image 'i0', caption 'i0#0'": ["nan," + rows[0].partition(",")[2], *rows[1:]],
    }
    for message, lines in wrong.items():
        path = tmp_path / "wrong.csv"
        path.write_text("\n".join(lines))
        with pytest.raises(InputError) as error:
            read_similarity(path, captions)
        assert message in str(error.value) and "wrong.csv" in str(error.value)
    path.write_bytes(b"\xff\xfe1,2")
    with pytest.raises(InputError, match="UTF-8"):
        read_similarity(path, captions)
