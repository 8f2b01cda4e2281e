"""Room on the disk is asked for before the work: said when it is much, refused when it is not
there."""

import shutil
from types import SimpleNamespace

import pytest

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.output import require_space, size_of, spoken_size
from tests.conftest import caption_table, random_sets, write_captions_folder


def _free(monkeypatch, size):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=size))


def test_what_is_said_and_what_is_refused(tmp_path, monkeypatch, capfd):
    _free(monkeypatch, 10 * 10**9)
    require_space(tmp_path / "not" / "there", 3 * 10**9, parts=2 * 10**9)
    assert (
        capfd.readouterr().err
        == "needs about 5 GB of disk, parts and result together; 3 GB in the end\n"
    )
    require_space(tmp_path, 6 * 10**8)
    assert capfd.readouterr().err == "", "what is little is not said"
    require_space(tmp_path, 8 * 10**9, parts=8 * 10**9, done=7 * 10**9)
    with pytest.raises(
        InputError, match="needs about 16 GB of disk, parts and result together, and 10 GB are free"
    ):
        require_space(tmp_path, 8 * 10**9, parts=8 * 10**9)
    assert [spoken_size(n) for n in (5, 12_345, 2_500_000, 999_900_000, 7 * 10**12)] == [
        "0.005 kB",
        "12.3 kB",
        "2.5 MB",
        "1,000 MB",
        "7 TB",
    ]


def test_stages_refuse_before_they_start_and_the_estimate_holds(tmp_path, monkeypatch):
    captions = write_captions_folder(tmp_path / "c", [caption_table(random_sets(40, seed=1))])
    sampled = ShardsParams(measures=("rouge_l",), top=16, uniform=16)
    for stage, params in ((relevance, RelevanceParams(measures=("rouge_l",))), (shards, sampled)):
        _free(monkeypatch, 3000)
        out = tmp_path / stage.__name__
        with pytest.raises(
            InputError, match="of disk, parts and result together, and 3 kB are free"
        ) as refused:
            stage(captions, out, params, MeasuresParams())
        assert size_of(tmp_path / f"{out.name}.unfinished") < 2000, "nothing was computed"
        # with the parts
        asked = float(str(refused.value).split("needs about ")[1].split(" kB")[0]) * 1000 / 2
        _free(monkeypatch, 10**12)
        stage(captions, out, params, MeasuresParams())
        real = sum(path.stat().st_size for path in out.glob("*.arrow"))
        assert 0.5 * real < asked < 2 * real, stage.__name__
