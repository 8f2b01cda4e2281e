"""Nothing that capgrade did not write is deleted or written over: every command into every folder
but its own."""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext, redirect_stderr, suppress
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from PIL import Image

from capgrade.params import load_params
from capgrade.pipelines.verify import verify
from capgrade.schemas import output
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    RUN_FILE,
    found_manifest,
    read_manifest,
    unfinished_folder,
    write_json,
    write_manifest,
    write_text,
)
from capgrade.schemas.output import LOCK, only_run, output_folder, work_folder
from capgrade.schemas.regions import Regions, write_regions
from capgrade.trainer.fit.train import train as fit
from tests import kills
from tests.conftest import call, edit_manifest, random_sets, refusal
from tests.pipelines.test_judged_choices import made_pairs
from tests.pipelines.test_judged_choices import write as write_choices

# What fills a folder that is no stage's.
FOREIGN: dict[str, Callable[[Path], object]] = {
    "a card": lambda out: (out / "README.md").write_text("mine"),
    "somebody's manifest": lambda out: (out / "manifest.json").write_text('{"kind": "mine"}'),
    "a damaged manifest": lambda out: (
        (out / MANIFEST).write_text('{"kind": "captions'),
        (out / "a.arrow").touch(),
    ),
    "a hidden file": lambda out: (out / ".mine").touch(),
    "a lock of another program": lambda out: (out / ".lock").write_text("held by cron"),
    "a folder called as unfinished work": lambda out: write_text(
        out.with_name(f"{out.name}.unfinished") / "a", "mine"
    ),
    "a folder": lambda out: (out / "mine").mkdir(),
    "an empty run.json": lambda out: (out / "run.json").touch(),
    "captions of somebody": lambda out: (out / "captions.arrow").write_bytes(b"mine"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid inputs of every command."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("output")
    sets = random_sets(10, seed=3)
    rows = [
        f"i{i}\ti{i}#{k}\t{text}" for i, texts in enumerate(sets) for k, text in enumerate(texts)
    ]
    (root / "c.tsv").write_text("image_id\tcaption_id\tcaption\n" + "\n".join(rows) + "\n")
    (root / "people.csv").write_text("image_id,caption_id,score\ni0,i0#0,5\ni1,i0#0,1\ni2,i1#0,2\n")
    (root / "texts.csv").write_text("candidate,references,score\na dog,a dog runs,1\na,a cat,0\n")
    write_choices(root / "pascal", made_pairs())
    rng = np.random.default_rng(0)
    boxes = np.array([[0, 0, 9, 9]] * 2, np.float32)
    images = [
        Regions(f"i{i}", 20, 20, boxes, rng.normal(size=(2, 8)).astype(np.float32))
        for i in range(10)
    ]
    write_regions(root / "regions", images, dtype="float32")
    (root / "pictures").mkdir()
    for i in range(10):
        Image.new("RGB", (20, 20)).save(root / "pictures" / f"i{i}.png")
    np.save(root / "sims.npy", rng.normal(size=(10, len(rows))))
    np.save(root / "dev_ims.npy", rng.normal(size=(3, 2, 4)).astype(np.float32))
    (root / "dev_ids.txt").write_text("a\nb\nc\n")
    for line in (
        f"captions --source tsv --input {root}/c.tsv --split test --out {root}/captions",
        f"relevance --captions {root}/captions --measures rouge_l --out {root}/relevance",
        f"shards --captions {root}/captions --measures rouge_l --out {root}/shards",
        f"{evaluate(root)} --out {root}/evaluation",
        train(root, root / "run"),
    ):
        assert call(*line.split()) == 0
    return root


TINY = (
    "train.split=test",
    "train.validation=null",
    "train.batch_size=25",
    "train.device=cpu",
    "train.workers=0",
    "train.measure=rouge_l",
    "train.model={name: vse, options: {embed: 8, word: 4}}",
)


def train(root: Path, out: Path) -> str:
    sets = [
        "train.split=test",
        "train.validation=null",
        "train.batch_size=4",
        "train.epochs=1",
        "train.device=cpu",
    ]
    given = " ".join(f"--set {one}" for one in sets)
    return f"train --captions {root}/captions --regions {root}/regions {given} --out {out}"


def evaluate(root: Path) -> str:
    return (
        f"evaluate --captions {root}/captions --similarity {root}/sims.npy --set evaluate.samples=0"
    )


def commands(root: Path, out: Path) -> dict[str, str]:
    """A command that writes a folder `out`, by the kind of that folder."""
    trained = f"--run {root}/run --captions {root}/captions --regions {root}/regions"
    return {
        "captions": f"captions --source tsv --input {root}/c.tsv --split test --out {out}",
        "relevance": f"relevance --captions {root}/captions --measures rouge_l --out {out}",
        "shards": f"shards --captions {root}/captions --measures rouge_l --out {out}",
        "publish": (
            f"publish --captions {root}/captions --shards {root}/shards --license mit --out {out}"
        ),
        "regions": f"regions --format scan --features {root}/dev_ims.npy --out {out}",
        "train": train(root, out),
        "embed": f"embed {trained} --out {out}",
        "evaluate": f"{evaluate(root)} --out {out}",
        "compare": f"compare a={root}/evaluation --metric recall@1 --out {out}",
        "align": f"align {trained} --images {root}/pictures --out {out}",
        "pictures": f"report --data {root} --out {out.parent}/page.html --charts {out}",
        "npz": f"regions export --format npz --regions {root}/regions --out {out}",
    }


KINDS = tuple(commands(Path(), Path()))


def everything(folder: Path) -> dict[str, tuple[bytes | None, int]]:
    """Every name below a folder with its bytes and its time."""
    return {
        path.relative_to(folder).as_posix(): (
            path.read_bytes() if path.is_file() else None,
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
    }


def everything_in(folder: Path) -> dict[str, bytes]:
    """The bytes of every file of a folder."""
    return {name: data for name, (data, _) in everything(folder).items() if data is not None}


def made_by(kind: str, out: Path) -> None:
    """A folder of this kind, finished, with files that carry the names of all the others'."""
    names = [
        "captions.arrow",
        "rouge_l.arrow",
        "README.md",
        "model.safetensors",
        "metrics.json",
        "regions-00000.arrow",
    ]
    for name in names:
        write_text(out / name, f"{name} of {kind}")
    write_manifest(out, kind, params={}, inputs={}, rows=dict.fromkeys(names, 0), stage=f"{kind}")


def refused(line: str, out: Path) -> str:
    """What the command says, which is refused and leaves every byte as it is."""
    before = everything(out)
    error = refusal(*line.split())
    assert everything(out) == before
    assert str(out) in error and "nothing was" in error, error
    return error


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_takes_no_folder_of_others(kind: str, tmp_path: Path) -> None:
    """The folders of all other stages, finished and unfinished, and those that are nobody's."""
    written = "was written by `capgrade"
    others = {other if other != kind else f"another {kind}" for other in KINDS}
    cases = [(lambda out, other=other: made_by(other, out), written) for other in others]
    cases += [(lambda out, other=other: unfinished(other, out), written) for other in others]
    cases += [(fill, "files that capgrade did not write") for fill in FOREIGN.values()]
    for number, (fill, said) in enumerate(cases):
        out = tmp_path / str(number)
        out.mkdir()
        fill(out)
        before = everything(out)
        with pytest.raises(InputError, match=said), output_folder(out, kind):
            pass
        assert everything(out) == before


def unfinished(kind: str, out: Path) -> None:
    """As a run leaves it that was killed."""
    work = work_folder(out, kind, None)
    made_by(kind, work)
    (work / MANIFEST).unlink()
    write_json(work / RUN_FILE, {"made_of": None})


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_asks_before_it_writes(kind: str, world: Path, tmp_path: Path) -> None:
    made_by(f"another {kind}", tmp_path / "other")
    assert "was written by `capgrade" in refused(
        commands(world, tmp_path / "other")[kind], tmp_path / "other"
    )
    (tmp_path / "file").write_text("mine")
    refusal(*commands(world, tmp_path / "file")[kind].split())
    assert (tmp_path / "file").read_text() == "mine"
    with only_run(tmp_path / "used"):
        error = refusal(*commands(world, tmp_path / "used")[kind].split())
        assert [path.name for path in (tmp_path / "used.unfinished").iterdir()] == [LOCK]
        assert not (tmp_path / "used").exists()
    assert (
        f"{tmp_path}/used: another run is writing to this folder (process {os.getpid()}) -> wait"
        in error
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("align", "pictures")])
def test_a_command_may_do_its_own_folder_again(kind: str, world: Path, tmp_path: Path) -> None:
    """And what the user put beside its files stays; twice the same bytes, and nothing of a run is
    left."""
    line = commands(world, tmp_path / "out")[kind]
    assert call(*line.split()) == 0
    first = {name: data for name, (data, _) in everything(tmp_path / "out").items()}
    assert MANIFEST in first and not list(tmp_path.glob("*.unfinished*"))
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert call(*line.split()) == 0
    again = {name: data for name, (data, _) in everything(tmp_path / "out").items()}
    assert again.pop("notes.txt") == b"mine"
    assert again == first


def test_what_a_run_replaces_is_told_where_it_differs(world: Path, tmp_path: Path, capsys) -> None:
    line = (
        f"shards --captions {world}/captions --measures rouge_l --out {tmp_path}/out --set"
        " shards.top="
    )
    for top, said in ((3, ""), (3, ""), (5, "shards.top 3 -> 5"), (5, "")):
        capsys.readouterr()
        assert call(*f"{line}{top}".split()) == 0
        expected = (
            f"{tmp_path}/out: replaced its earlier result of other parameters or inputs: {said}\n"
            if said
            else ""
        )
        assert capsys.readouterr().err == expected
    edit_manifest(tmp_path / "out", params=["of another version"])
    assert call(*f"{line}5".split()) == 0, "its inputs are told, which are the same"
    (tmp_path / "out" / MANIFEST).write_text("[1]")
    assert call(*f"{line}5".split()) == 2, "and what is no manifest of ours is not replaced"


def test_a_file_of_the_user_in_a_stages_own_folder_is_not_written_over(
    world: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert (
        call(*f"relevance --captions {world}/captions --measures rouge_l --out {out}".split()) == 0
    )
    (out / "other.arrow").write_text("mine")
    given = f"--measures other={world}/relevance/rouge_l.arrow"
    line = f"relevance --captions {world}/captions {given} --out {out}"
    assert "other.arrow: it is there and capgrade did not write it" in refusal(*line.split())
    assert (out / "other.arrow").read_text() == "mine"
    (out / "other.arrow").unlink()
    assert call(*line.split()) == 0
    assert {p.name for p in out.iterdir()} == {
        "other.arrow",
        "distribution-other.csv",
        "own-pairs.parquet",
        MANIFEST,
    }, "and no older measure"


def test_what_a_stopped_run_leaves(tmp_path: Path) -> None:
    """Killed it leaves its files, which verify tells and the next run deletes; stopped it leaves
    nothing."""
    out = tmp_path / "out"
    unfinished("compare", out)
    assert "an unfinished run of `capgrade compare`" in verify(out).problems[0].problem
    with pytest.raises(KeyboardInterrupt), output_folder(out, "compare") as folder:
        assert {path.name for path in folder.iterdir()} == {RUN_FILE}
        write_text(folder / "a.md", "1")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", [None, {"top": 3}])
def test_a_run_that_ends_badly_leaves_the_result_as_it_was(
    key: dict | None, tmp_path: Path, recwarn
) -> None:
    out = tmp_path / "out"
    made_by("compare", out)
    before = everything(out)
    for _ in range(2):
        with pytest.raises(ValueError), output_folder(out, "compare", key) as folder:
            write_text(folder / "README.md", "new")
            raise ValueError
        assert everything(out) == before
        assert unfinished_folder(out).exists() == (key is not None)
    assert read_manifest(out, "compare")["stage"] == "compare"
    said = "read as it was before a run that has not ended; run `capgrade compare` again"
    assert any(said in str(one.message) for one in recwarn) == (key is not None)
    with pytest.raises(ValueError), output_folder(tmp_path / "new", "compare", key):
        raise ValueError
    assert not (tmp_path / "new").exists()


def result(out: Path, text: str, made_of: dict | None = None, **more: Any) -> None:
    """A run that ends with these files."""
    names = ("README.md", "a/b.json", "a/c.json")
    with output_folder(out, "compare", made_of, **more) as work:
        for name in names:
            write_text(work / "parts" / Path(name).name, text)
            write_text(work / name, text)
        rows = dict.fromkeys(names, 0)
        write_manifest(work, "compare", params={"of": text}, inputs={}, rows=rows)


def files(out: Path) -> dict[str, str]:
    return {
        path.relative_to(out).as_posix(): path.read_text()
        for path in out.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


@pytest.fixture(scope="module")
def alone() -> Iterator[Callable[..., None]]:
    """Calls a function that forks in a new interpreter, without the threads of earlier tests."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=kills.no_sync) as pool:
        yield lambda sweep, *given: pool.submit(sweep, *given).result()


@pytest.mark.parametrize(
    ("made_of", "links"), [(None, True), ({"format": 1}, True), ({"format": 1}, False)]
)
def test_killed_before_each_file_operation(
    made_of: dict | None, links: bool, tmp_path: Path, alone: Callable[..., None]
) -> None:
    """The folder is the old result, or the next run makes it the new one; it is never a mixture,
    and what the user put there stays."""
    alone(sweep_of_a_result, made_of, links, tmp_path)


def sweep_of_a_result(made_of: dict | None, links: bool, tmp_path: Path) -> None:
    refuse = Mock(side_effect=OSError(errno.EPERM, "Operation not permitted"))
    with nullcontext() if links else patch.object(Path, "hardlink_to", refuse):
        kill_at_each_operation(made_of, tmp_path)


def kill_at_each_operation(made_of: dict | None, tmp_path: Path) -> None:
    new = dict.fromkeys(("README.md", "a/b.json", "a/c.json"), "new") | {"mine": "mine"}
    for at in range(1, 10**6):
        out = tmp_path / str(at) / "out"
        made_by("compare", out)
        (out / "mine").write_text("mine")
        old = files(out)
        whole = kills.ended(lambda out=out: result(out, "new", made_of), out.parent, at)
        if found_manifest(out / MANIFEST):
            assert files(out) in (old, new) and read_manifest(out, "compare"), at
        with suppress(ValueError), output_folder(out, "compare", made_of):
            raise ValueError  # a run that does not end either
        assert files(out) in (old, new) and read_manifest(out, "compare"), at
        result(out, "new", made_of)
        assert files(out) == new and not list(out.parent.glob("*.unfinished*")), at
        if whole:
            break
    assert at > 20, "operations were counted"


KEPT = {"format": 1, "shards": {"top": 3}}


def work_of(out: Path, made_of: dict | None) -> Path:
    return work_folder(out, "compare", made_of)


def stop(out: Path, made_of: dict, name: str, afresh: bool = False) -> set[str]:
    """A run that is stopped when it has finished a part of this name; the parts that it found."""
    with (
        suppress(KeyboardInterrupt),
        output_folder(out, "compare", made_of, afresh=afresh) as folder,
    ):
        found = {path.name for path in (folder / "parts").glob("*")}
        write_text(folder / "parts" / name, "done")
        raise KeyboardInterrupt
    return found


def finish(out: Path, made_of: dict | None) -> None:
    with output_folder(out, "compare", made_of) as folder:
        write_text(folder / "a.md", "new")
        write_manifest(folder, "compare", params={}, inputs={}, rows={"a.md": 0})


def test_unfinished_work_goes_on_when_the_output_is_gone(tmp_path: Path) -> None:
    """As under DVC, which deletes outputs before it runs a stage; however the folder is named."""
    for name in ("new/folders/out", "new/folders/out/", "new/folders/../folders/out"):
        out = Path(f"{tmp_path}/{name}")
        stop(out, KEPT, "0.json")
        made_by("compare", out)
        shutil.rmtree(out)
        assert stop(out, KEPT, "1.json") == {"0.json"}
        finish(out, KEPT)
        assert [path.name for path in out.parent.iterdir()] == ["out"]
        shutil.rmtree(out)


def test_under_dvc_an_ended_run_is_kept_until_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """DVC deletes the output where its record was cut short. By links nothing is there twice."""
    monkeypatch.setenv(output.UNDER_DVC, "stage")
    out, folder = tmp_path / "out", work_of(tmp_path / "out", KEPT)

    def run(made_of: dict, whole: dict | None = None) -> set[str]:
        with output_folder(out, "compare", made_of, whole=whole) as work:
            found = {path.name for path in (work / "parts").glob("*")}
            write_text(work / "parts" / "0.json", "done")
            write_text(work / "a.md", "new")
            write_manifest(work, "compare", params={}, inputs={}, rows={"a.md": 0})
        return found

    assert run(KEPT) == set()
    for _ in range(2):
        assert (folder / "a.md").samefile(out / "a.md") and not (folder / MANIFEST).exists()
        assert not verify(tmp_path).problems
        assert read_manifest(out, "compare") and not capsys.readouterr().err
        shutil.rmtree(out)
        assert run(KEPT) == {"0.json"}
    assert run(KEPT, {"epochs": 3}) == set(), "it ends elsewhere"
    assert run({**KEPT, "format": 2}, {"epochs": 3}) == set()
    assert run({**KEPT, "format": 2}, {"epochs": 3}) == {"0.json"}
    assert run(KEPT, {"epochs": 3}) == set(), "of two keys the last is kept"
    with monkeypatch.context() as patch:
        patch.setattr(output, "code_state", lambda: "of other code")
        assert run(KEPT, {"epochs": 3}) == set()
    assert list((tmp_path / "out.unfinished").iterdir()) == [folder]
    assert not capsys.readouterr().err
    with only_run(out):
        output.delete_kept(tmp_path)
        assert (folder / "a.md").exists(), "a run is at work"
    output.delete_kept(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "a.md").read_text() == "new"
    monkeypatch.delenv(output.UNDER_DVC)
    assert run(KEPT) == set() and not folder.exists()


def test_a_file_system_without_hard_links_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(output.UNDER_DVC, "stage")
    refuse = Mock(side_effect=OSError(errno.EPERM, "Operation not permitted"))
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    finish(tmp_path / "out", KEPT)
    finish(tmp_path / "out", KEPT)
    assert (tmp_path / "out" / "a.md").read_text() == "new"
    assert not (work_of(tmp_path / "out", KEPT) / "a.md").exists()


def test_killed_between_parts_of_several_keys(tmp_path: Path, alone: Callable[..., None]) -> None:
    """Whichever file operation it is killed before, all parts are there when they are asked for."""
    alone(sweep_of_parts, tmp_path)


def sweep_of_parts(tmp_path: Path) -> None:
    other = {"format": 1, "shards": {"top": 5}}
    for at in range(1, 10**6):
        out = tmp_path / str(at) / "out"
        for name in ("0.json", "1.json"):
            stop(out, KEPT, name)
        write_text(work_of(out, KEPT) / "0.json", "beside")
        work = lambda out=out: (stop(out, other, "2.json"), stop(out, KEPT, "3.json"))  # noqa: E731
        whole = kills.ended(work, out.parent, at)
        assert {"0.json", "1.json"} <= stop(out, KEPT, "4.json"), at
        assert (work_of(out, KEPT) / "0.json").read_text() == "beside"
        finish(out, KEPT)
        assert not list(out.parent.glob("*.unfinished*"))
        if whole:
            break
    assert at > 10, "operations were counted"


def epochs_of(folder: Path) -> int:
    """How many epochs the newest state in a folder or its unfinished work has."""
    states = [folder / "state.pt", *unfinished_folder(folder).glob("*/state.pt")]
    read = (torch.load(path, weights_only=True)["history"] for path in states if path.is_file())
    return max((len(json.loads(history)["epochs"]) for history in read), default=0)


@pytest.mark.parametrize("before", [0, 1])
def test_train_killed_before_file_operations(
    before: int, world: Path, tmp_path: Path, alone: Callable[..., None]
) -> None:
    """Of two epochs, from nothing and from a finished run of one. The next run ends in the bytes of
    one left alone, trains no epoch again, and a result that was there is whole until then. Of
    some operations: .ci/run has each."""
    alone(sweep_of_train, before, world, tmp_path)


def sweep_of_train(before: int, world: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)

    def run(out: Path, epochs: int) -> str:
        """What it prints."""
        params = load_params(None, [*TINY, f"train.epochs={epochs}"])
        regions = world / "regions"
        with redirect_stderr(StringIO()) as told:
            fit(world / "captions", out, params.train, params.measures, regions=regions)
        return told.getvalue()

    for epochs in (1, 2):
        run(tmp_path / str(epochs), epochs)
    old, whole = (everything_in(tmp_path / str(epochs)) for epochs in (1, 2))
    for at in kills.moments():
        out = tmp_path / f"at-{at}" / "out"
        out.parent.mkdir()
        if before:
            shutil.copytree(tmp_path / "1", out)
        has_ended = kills.ended(lambda out=out: run(out, 2), out.parent, at)
        if found_manifest(out / MANIFEST):
            assert everything_in(out) in (old, whole), at
        done = epochs_of(out)
        trained = len(re.findall(r"^epoch ", run(out, 2), re.MULTILINE))
        assert (trained, everything_in(out)) == (2 - done, whole), at
        assert not unfinished_folder(out).exists(), at
        shutil.rmtree(out.parent)
        if has_ended:
            break
    assert at > 40, "operations were counted"


def test_a_link_to_nothing_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "there")
    for made_of in (None, KEPT):
        with (
            pytest.raises(InputError, match="out: a link to what is not there -> make the folder"),
            output_folder(tmp_path / "out", "compare", made_of),
        ):
            raise AssertionError("it was entered")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "disk" / "there").mkdir(parents=True)
    finish(tmp_path / "out", KEPT)
    assert (tmp_path / "disk" / "there" / "a.md").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "\0\0\0", '{"made_of": 3}'])
def test_damaged_notes_of_a_run(text: str, tmp_path: Path, capsys) -> None:
    """A manifest is written again; a note is for messages alone."""
    out, work = tmp_path / "out", work_of(tmp_path / "out", KEPT)
    stop(out, KEPT, "0.json")
    (work / MANIFEST).write_text(text)
    assert stop(out, KEPT, "1.json") == {"0.json"}
    (work / RUN_FILE).write_text(text)
    assert stop(out, KEPT, "2.json") == {"0.json", "1.json"}
    (work / RUN_FILE).write_text(text)
    stop(out, {"format": 2}, "3.json")
    assert "unfinished work (3 finished parts, 0." in capsys.readouterr().err
    assert stop(out, KEPT, "4.json") == {"0.json", "1.json", "2.json"}
    finish(out, KEPT)


def test_a_manifest_that_was_damaged_while_files_took_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some files of the new result are in place, and are still known as ours."""
    out, folder = tmp_path / "out", work_of(tmp_path / "out", KEPT)
    with (
        monkeypatch.context() as patch,
        suppress(SystemExit),
        output_folder(out, "compare", KEPT) as work,
    ):
        write_text(work / "a.md", "1")
        write_manifest(work, "compare", params={}, inputs={}, rows={"a.md": 0})
        patch.setattr(output, "_place", lambda file, to: (file.replace(to), exit()))
    assert (out / "a.md").read_text() == "1" and not (out / MANIFEST).exists()
    (folder / MANIFEST).write_text("")
    stop(out, KEPT, "0.json")
    finish(out, KEPT)
    assert (out / "a.md").read_text() == "new" and not folder.exists()


def test_unfinished_work_of_other_parameters_is_said_and_stays(tmp_path: Path, capsys) -> None:
    out, other = tmp_path / "out", {"format": 1, "shards": {"top": 5}}
    stop(out, KEPT, "0.json")
    assert not capsys.readouterr().err
    assert stop(out, other, "1.json") == set()
    error = capsys.readouterr().err
    assert (
        error.startswith(f"{out}: unfinished work (1 finished parts, 0.") and error.count("\n") == 1
    )
    assert (
        f"of other parameters or inputs (shards.top 3 -> 5) stays in {work_of(out, KEPT)}" in error
    )
    assert stop(out, KEPT, "2.json") == {"0.json"}, "asked for again, it goes on"
    capsys.readouterr()
    assert stop(out, KEPT, "3.json", afresh=True) == set()
    said = (
        "unfinished work (2 finished parts, 0.008 kB) is deleted, as a start afresh was asked for"
    )
    assert said in capsys.readouterr().err
    (tmp_path / "out.unfinished.7").mkdir()
    write_text(tmp_path / "out.unfinished.mine" / "a", "mine")
    finish(out, other)
    names = {"out", "out.unfinished.7", "out.unfinished.mine"}
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.parametrize("name", ["mine", "mine.txt", "compare-0123", "compare-0123456789abcdef"])
def test_what_is_no_work_of_ours_is_let_alone(name: str, tmp_path: Path) -> None:
    """A link of the name that work has too: what it leads to is somebody's."""
    folder, mine = tmp_path / "out.unfinished", tmp_path / "mine"
    write_text(mine / "a", "mine")
    folder.mkdir()
    (folder / name).symlink_to(mine)
    with (
        pytest.raises(InputError, match=f"files that capgrade did not write .{name}"),
        output_folder(tmp_path / "out", "compare", KEPT),
    ):
        pass
    assert (mine / "a").read_text() == "mine" and (folder / name).is_symlink()


def test_the_unfinished_work_of_a_file_system_lies_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's volume: from beside it nothing could be moved in."""
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == out)
    stop(out, KEPT, "0.json")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    finish(out, KEPT)
    assert {path.name for path in out.iterdir()} == {MANIFEST, "a.md"}


def test_verify_never_advises_to_delete(world: Path, tmp_path: Path) -> None:
    """Tables of others, beside ours and alone."""
    shutil.copytree(world / "captions", tmp_path / "c")
    (tmp_path / "c" / "mine.arrow").write_text("mine")
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "mine.parquet").write_text("mine")
    (tmp_path / "others" / ".mine.3.tmp").write_text("mine")
    problems = verify(tmp_path).problems
    assert [Path(problem.file).name for problem in problems] == ["mine.arrow"]
    assert "delete" not in str(problems[0])


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("frequencies --captions {root}/captions --out {out}", "df.arrow"),
        ("agree texts {root}/texts.csv --measures rouge_l --out {out}", "a.json"),
        ("agree choices {root}/pascal --measures rouge_l --references 2 --out {out}", "c.json"),
        ("report --data {root} --out {out}", "page.html"),
    ],
)
def test_a_file_is_written_over_with_force_alone(
    command: str, name: str, world: Path, tmp_path: Path
) -> None:
    out = tmp_path / name
    line = command.format(root=world, out=out)
    assert call(*line.split()) == 0
    assert f"{name}: a file is there -> give --force" in refused(line, tmp_path), "its own too"
    first = out.read_bytes()
    out.write_bytes(b"mine")
    assert f"{name}: a file is there" in refused(line, tmp_path)
    assert call(*line.split(), "--force") == 0 and out.read_bytes() == first
    listed = world / "captions" / "captions.arrow"
    line = command.format(root=world, out=listed)
    assert "a file of the finished folder" in refused(f"{line} --force", world / "captions")
    out.unlink()
    out.mkdir()
    line = command.format(root=world, out=out)
    assert "a folder where a file is to be written" in refused(f"{line} --force", tmp_path)


@pytest.mark.parametrize("format", ["tsv", "scan"])
def test_exported_features_replace_nothing(format: str, world: Path, tmp_path: Path) -> None:
    out = tmp_path / ("x.tsv" if format == "tsv" else "dev_ims.npy")
    line = f"regions export --format {format} --regions {world}/regions --out {out}"
    assert call(*line.split()) == 0
    refused(line, tmp_path)
    if format == "scan":
        out.unlink()
        assert "dev_ids.txt: a file is there" in refused(line, tmp_path)
    assert call(*line.split(), "--force") == 0


def test_a_review_is_not_put_into_anybodys_folder(tmp_path: Path) -> None:
    from capgrade.apps.explorer.plans import write_plan
    from capgrade.schemas.reviews import Item, ReviewPlan

    made_by("captions", tmp_path / "c")
    before = everything(tmp_path)
    with pytest.raises(InputError, match="written by `capgrade captions`"):
        write_plan(tmp_path / "c", ReviewPlan("information", "x", 0, (Item("i", "c"),)))
    assert everything(tmp_path) == before
