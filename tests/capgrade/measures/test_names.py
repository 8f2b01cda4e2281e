"""Names that measures may have: they become files, columns and bits."""

from pathlib import Path

import numpy as np
import pytest

from capgrade.measures import choose
from capgrade.measures.catalogue import TAKEN
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.sampling.plan import MOST_MEASURES, reason_names
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.shards import shard_schema
from tests.conftest import call, caption_table, random_sets, write_captions_folder

BAD = [
    *sorted(TAKEN),
    "Captions",
    "rouge_l_left_out",
    "../evil",
    "a/b",
    "",
    "a b",
    "a-b",
    "1st",
    "é",
    "a.arrow",
    "x" * 65,
    "_a",
    "a\n",
]


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", ["imported", "mixtures"])
def test_a_name_that_is_no_files_or_is_taken(name: str, kind: str) -> None:
    given = {name: "x.npy"} if kind == "imported" else {name: {"bleu": 1.0}}
    with pytest.raises(InputError, match="a measure cannot be called"):
        choose([name], MeasuresParams(**{kind: given}))


def test_every_column_of_a_shard_is_taken_and_no_measure_of_ours() -> None:
    assert set(shard_schema([], {}).names) <= TAKEN
    assert not TAKEN & set(MeasuresParams.model_fields)


@pytest.mark.parametrize("stage", ["relevance", "shards"])
def test_nothing_is_written_for_such_a_name(stage: str, tmp_path: Path, capsys) -> None:
    write_captions_folder(tmp_path / "c", [caption_table(random_sets(4, seed=1))])
    np.save(tmp_path / "m.npy", np.zeros((4, 4)))
    for name in ("../evil", "weight", "captions"):
        given = f"--measures {name}={tmp_path}/m.npy --out {tmp_path}/o"
        assert call(stage, "--captions", f"{tmp_path}/c", *given.split()) == 2
        assert f"a measure cannot be called '{name}'" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "m.npy"]


def test_more_measures_than_the_reasons_have_bits(tmp_path: Path, capsys) -> None:
    names = [f"m{k}" for k in range(MOST_MEASURES + 1)]
    assert len(reason_names(names[:-1])) == 32
    captions = write_captions_folder(tmp_path / "c", [caption_table(random_sets(4, seed=1))])
    np.save(tmp_path / "m.npy", np.zeros((4, len(read_captions(captions).texts))))
    given = ",".join(f"{name}={tmp_path}/m.npy" for name in names)
    line = ["shards", "--captions", str(captions), "--measures", given, "--out", f"{tmp_path}/s"]
    assert call(*line) == 2
    assert "16 measures, where the reasons of a shard have bits for 15" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
