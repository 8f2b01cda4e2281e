"""Shards made in parts, by separate commands in any order, repeated and killed, have the bytes of
one run."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.shards import SHARDS, ShardsParams, ShardsPart, WindowsParams
from capgrade.schemas.errors import InputError
from tests.conftest import contents
from tests.pipelines.execution.conftest import PARAMS


def make(captions_dir: Path, out: Path, part: str, params: ShardsParams = PARAMS) -> None:
    shards(captions_dir, out, params.model_copy(update={"part": part}), MeasuresParams())


def join(captions_dir: Path, out: Path, params: ShardsParams = PARAMS) -> dict[str, bytes]:
    shards(captions_dir, out, params.model_copy(update={"join": True}), MeasuresParams())
    return contents(out)


def test_parts_of_other_blocks_would_lose_images_or_have_them_twice(
    captions_dir: Path, tmp_path: Path
) -> None:
    """Joined they may be with any size of blocks, if they share one."""
    of_five, out = PARAMS.model_copy(update={"block_images": 5}), tmp_path / "out"
    shards(captions_dir, tmp_path / "one", of_five, MeasuresParams())
    make(captions_dir, out, "1/2")
    make(captions_dir, out, "2/2", of_five)
    for params in (PARAMS, of_five):
        with pytest.raises(
            InputError, match="part 2/2 differs from the others, or .*: block_images "
        ):
            join(captions_dir, out, params)
    assert not out.exists()
    make(captions_dir, out, "01/2", of_five)
    assert join(captions_dir, out) == contents(tmp_path / "one")


def test_a_copied_part_is_not_another_one(captions_dir: Path, tmp_path: Path) -> None:
    make(captions_dir, tmp_path / "out", "1/2")
    parts = tmp_path / "out.parts"
    shutil.copytree(parts / "1-of-2", parts / "2-of-2")
    with pytest.raises(InputError, match="2-of-2: this is part 1/2"):
        join(captions_dir, tmp_path / "out")


def test_parts_of_several_devices_do_not_join_and_those_of_one_join_anywhere(
    captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's values differ in their last bits; joining computes none."""
    gpu, out = PARAMS.model_copy(update={"device": "cuda"}), tmp_path / "out"
    shards(captions_dir, tmp_path / "one", PARAMS, MeasuresParams())
    make(captions_dir, out, "1/2")
    with monkeypatch.context() as patched:
        patched.setattr("capgrade.pipelines.execution.job.require_device", lambda device: None)
        patched.setattr("capgrade.measures.on_device.on_device", lambda fitted, device: fitted)
        make(captions_dir, out, "2/2", gpu)
        with pytest.raises(InputError, match="part 2/2 differs from the others, or .*: device "):
            join(captions_dir, out, gpu)
        make(captions_dir, out, "1/2", gpu)
    assert join(captions_dir, out, gpu) == contents(tmp_path / "one")


@given(st.integers(1, 40), st.integers(0, 100))
def test_parts_share_all_blocks(of: int, more: int) -> None:
    n_blocks = of + more
    shares = [ShardsPart(number, of).blocks(n_blocks) for number in range(1, of + 1)]
    assert [block for share in shares for block in share] == list(range(n_blocks))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("text", ["0/8", "9/8", "3", "3/", "-1/8", "1/0", "a/b", "1/2/3", "٣/٨"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no part"):
        ShardsPart.parse(text)


def test_no_more_parts_than_blocks(captions_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="5 parts of 4 blocks"):
        make(captions_dir, tmp_path / "out", "3/5")
    assert not (tmp_path / "out.parts" / "3-of-5").exists()


def test_windows_of_a_share(captions_dir: Path, tmp_path: Path) -> None:
    """Parts and blocks do not show."""
    params = PARAMS.model_copy(update={"measures": ("meteor", "bleu"), "top": 2})
    params = params.model_copy(update={"windows": WindowsParams(per_window=1, among=0.05)})
    shards(captions_dir, tmp_path / "one", params, MeasuresParams())
    for number in (2, 1):
        make(captions_dir, tmp_path / "joined", f"{number}/2", params)
    assert join(captions_dir, tmp_path / "joined", params) == contents(tmp_path / "one")


def test_parts_that_do_not_belong_together(
    captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="no parts to join"):
        join(captions_dir, out)
    make(captions_dir, out, "1/2")
    for name in ("1-of-2.old", "some-of-them", "1-of-0"):  # folders of somebody else
        (tmp_path / "out.parts" / name).mkdir()
    with pytest.raises(InputError, match="part 2/2 is missing"):
        join(captions_dir, out)
    other = PARAMS.model_copy(update={"seed": 1})
    make(captions_dir, out, "2/2", other)
    with pytest.raises(InputError, match="part 2/2 differs from the others, or .*: shards.seed "):
        join(captions_dir, out)
    with monkeypatch.context() as patched:  # as by a version that drew other samples
        patched.setattr("capgrade.pipelines.shards.RULE", 1)
        make(captions_dir, out, "2/2")
    with pytest.raises(InputError, match="part 2/2 differs from the others, or .*: sampler "):
        join(captions_dir, out)
    with monkeypatch.context() as patched:  # as by a version with other bytes
        older = replace(SHARDS, format=1)
        patched.setattr("capgrade.pipelines.shards.SHARDS", older)
        make(captions_dir, out, "2/2")
    with pytest.raises(InputError, match="part 2/2 differs from the others, or .*: format "):
        join(captions_dir, out)
    make(captions_dir, out, "1/3")
    with pytest.raises(InputError, match="several divisions: N/2, N/3"):
        join(captions_dir, out)
    make(captions_dir, tmp_path / "one", "1/1")
    (tmp_path / "one.parts" / "1-of-1" / "manifest.json").unlink()
    with pytest.raises(
        InputError, match=f"run `capgrade shards --part 1/1` again with --out {tmp_path}/one$"
    ):
        join(captions_dir, tmp_path / "one")
    assert not out.exists() and not (tmp_path / "one").exists()
