"""A run that is stopped, extended, restarted or asked for otherwise never gives what another run
gave."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from capgrade.measures.params import MeasuresParams
from capgrade.params import load_params
from capgrade.pretrained import fingerprint
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
from capgrade.schemas.output import run_key
from capgrade.trainer.fit import setup
from capgrade.trainer.fit import train as stage
from capgrade.trainer.fit.checkpoint import load_run, model_inputs
from capgrade.trainer.fit.setup import Data, prepare
from capgrade.trainer.models.encoders import GruConfig
from capgrade.trainer.models.tern import TeranConfig
from tests.conftest import call, work_of
from tests.trainer.fit.runs import params, run

RANDOM = "train.loss=[{name: triplet, negatives: random}]"  # draws from the random state


def stopped(
    monkeypatch: pytest.MonkeyPatch, where: str, at: int, work: Callable[[], object]
) -> None:
    """Do `work`, interrupted when `where` of the stage is called for the `at`-th time."""
    count, real = {"calls": 0}, getattr(stage, where)

    def stops(*args, **kwargs):
        count["calls"] += 1
        if count["calls"] == at:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stage, where, stops)
        work()


def same(a: Path, b: Path) -> bool:
    names = ("model.safetensors", "steps.csv")
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in names)


SHARDS = (
    "train.relevance=shards",
    "train.relevance_of=image_set",
    "train.composition=seeded",
    "train.unknown=mask",
)
SHARDS += ("train.loss=[{name: daa, temperature: 0.05}, {name: triplet, negatives: random}]",)
STOPS = {  # what of the stage is interrupted, at which call, and the settings
    "within an epoch": ("scored_batch", 15, (RANDOM, "train.ema=0.9")),
    "shards": ("scored_batch", 15, SHARDS),
    "between the state and the model": ("save_model", 2, ("train.validation=null",)),
    "before the manifest": ("finish_run", 1, ()),
}


@pytest.mark.parametrize("case", STOPS)
def test_a_stopped_run_ends_in_the_bytes_of_one_that_was_not(small, tmp_path, monkeypatch, case):
    where, at, sets = STOPS[case]
    data = small.sampled if "shards" in case else small.data
    run(data, tmp_path / "whole", *sets, epochs=4)
    stopped(monkeypatch, where, at, lambda: run(data, tmp_path / "part", *sets, epochs=4))
    assert not (tmp_path / "part/manifest.json").exists()
    torch.manual_seed(99)
    run(data, tmp_path / "part", *sets, epochs=4)
    assert (
        same(tmp_path / "whole", tmp_path / "part") and (tmp_path / "part/manifest.json").is_file()
    )


def test_equal_weights_have_equal_digests_of_the_folder(small, tmp_path, monkeypatch):
    """Run twice, in two processes' names of files, and stopped midway: every file is the same."""
    from tests.conftest import contents

    sets = ("train.ema=0.9", "train.also_best_by=ndcg")
    run(small.data, tmp_path / "one", *sets)
    monkeypatch.setattr("os.getpid", lambda: 77)
    run(small.data, tmp_path / "two", *sets)
    stopped(monkeypatch, "scored_batch", 15, lambda: run(small.data, tmp_path / "three", *sets))
    run(small.data, tmp_path / "three", *sets)
    whole = contents(tmp_path / "one")
    assert "state.pt" in whole and "manifest.json" in whole
    for other in ("two", "three"):
        again = contents(tmp_path / other)
        assert [name for name in whole if whole[name] != again[name]] == []


@pytest.mark.parametrize("name", ["model.safetensors", "model-ndcg.safetensors"])
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_the_state_is_not_believed_without_the_models_it_relies_on(
    name, how, small, tmp_path, monkeypatch
):
    """The first epoch is the best by both measures, and its models have to be there to go on."""
    sets = ("train.lr=1e-9", "train.also_best_by=ndcg")
    again = lambda: run(small.data, tmp_path, *sets, epochs=3)  # noqa: E731
    stopped(monkeypatch, "scored_batch", 13, again)
    file = work_of(tmp_path) / name
    file.unlink() if how == "missing" else file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=f"{name}: the model of the best epoch is {how} -> start"):
        again()


def test_a_kill_while_a_finished_run_is_copied_leaves_its_state(small, tmp_path, monkeypatch):
    """More epochs are asked for, and the copy of the state is cut short."""
    run(small.data, tmp_path, epochs=1)

    def cut(source, target):
        Path(target).write_bytes(Path(source).read_bytes()[:50])
        if Path(source).name == "state.pt":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "copyfile", cut)
        run(small.data, tmp_path, epochs=2)
    assert run(small.data, tmp_path, epochs=2)["epochs"] == 2
    run(small.data, tmp_path / "whole", epochs=2)
    assert same(tmp_path, tmp_path / "whole")


def test_patience_may_be_raised_as_well(small, tmp_path):
    # it learns nothing: the first epoch stays the best
    sets = (
        "train.lr=1e-9",
        "train.patience=1",
    )
    assert run(small.data, tmp_path, *sets, epochs=9)["epochs"] == 2
    summary = run(small.data, tmp_path, *sets[:1], "train.patience=3", epochs=9)
    assert summary["epochs"] == 4
    with pytest.raises(
        InputError, match="has trained 4 epochs, .* stop it after 2 -> ask for 4 epochs or more"
    ):
        run(small.data, tmp_path, *sets, epochs=9)
    with pytest.raises(InputError, match="a batch of 4000"):
        run(small.data, tmp_path, *sets[:1], "train.batch_size=4000", epochs=4, restart=True)
    assert run(small.data, tmp_path, *sets[:1], epochs=4) == summary, (
        "what is refused loses nothing"
    )


def test_an_extension_that_is_stopped_does_not_pass_for_the_shorter_run(
    small, tmp_path, monkeypatch
):
    run(small.data, tmp_path, epochs=2)
    stopped(monkeypatch, "scored_batch", 9, lambda: run(small.data, tmp_path, epochs=6))
    assert json.loads((tmp_path / "summary.json").read_text())["epochs"] == 2, (
        "the shorter run is whole until then"
    )
    assert not (work_of(tmp_path) / "summary.json").exists()
    assert load_run(work_of(tmp_path))[2]["params"]["epochs"] == 6, "what trains is a run too"
    with pytest.raises(InputError, match="has trained 3 epochs"):
        run(small.data, tmp_path, epochs=2)
    run(small.data, tmp_path, epochs=6)
    run(small.data, tmp_path / "whole", epochs=6)
    assert same(tmp_path, tmp_path / "whole")
    assert json.loads((tmp_path / "config.json").read_text())["params"]["epochs"] == 6


@pytest.mark.parametrize("at", [1, 8])  # in the first epoch, and in the second
def test_a_stopped_restart_leaves_nothing_of_the_old_run(small, tmp_path, monkeypatch, at):
    old = run(small.data, tmp_path, epochs=4)
    again = {"epochs": 2, "restart": True}
    stopped(
        monkeypatch, "scored_batch", at, lambda: run(small.data, tmp_path, "train.lr=0.02", **again)
    )
    for name in ("manifest.json", "summary.json"):
        assert not (work_of(tmp_path) / name).exists(), name
    if at == 1:
        assert not (work_of(tmp_path) / "steps.csv").exists()
        with pytest.raises(InputError, match="no model yet"):
            load_run(work_of(tmp_path))
    # none of its epochs has ended
    found = run(small.data, tmp_path, "train.lr=0.02", epochs=2, restart=at == 1)
    run(small.data, tmp_path / "fresh", "train.lr=0.02", epochs=2)
    assert found["key"] != old["key"] and same(tmp_path, tmp_path / "fresh")


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt"])
def test_a_finished_run_that_lost_a_file_is_not_reported(small, trained, tmp_path, name):
    copy = shutil.copytree(trained, tmp_path / "run")
    (copy / name).unlink()
    with pytest.raises(
        InputError, match="missing, though the manifest lists it -> start afresh with --restart"
    ):
        run(small.data, copy, epochs=12)


def test_a_stopped_run_that_lost_its_best_model_is_not_gone_on_with(small, tmp_path, monkeypatch):
    again = lambda: run(small.data, tmp_path, "train.lr=1e-9", epochs=3)  # noqa: E731  # the first epoch stays the best
    stopped(monkeypatch, "scored_batch", 13, again)
    (work_of(tmp_path) / "model.safetensors").unlink()
    with pytest.raises(
        InputError, match="the model of the best epoch is missing -> start afresh with --restart"
    ):
        again()


def key(data: Data, *sets: str, given: tuple[str, ...] = (), **more) -> str:
    """What tells a run from others, of these parameters and data."""
    measures = load_params(None, [f"measures.{each}" for each in given]).measures
    return run_key(prepare(data, params(*sets, **more), measures).run.made_of)


def test_a_run_is_of_its_measures_and_not_of_where_it_is_computed(small):
    plain, mixed = key(small.data), "mixtures={both: {rouge_l: 0.5, bleu: 0.5}}"
    assert plain != key(small.data, given=("rouge_l.references=mean",))
    assert plain == key(small.data, given=("sbert.references=mean",)), "another measure's"
    assert plain == key(
        small.data, "train.workers=3", "train.patience=4", "train.device=auto", epochs=9
    )
    both = [
        key(small.data, "train.measure=both", given=(mixed, *more)) for more in ((), ("bleu.n=2",))
    ]
    assert both[0] != both[1], "of a measure within a mixture"


@pytest.mark.parametrize("name", ["captions", "regions", "shards", "init"])
def test_other_data_under_the_same_path_are_another_run(small, trained, tmp_path, name):
    """Of a run to start from the words, too, that its weights are of."""
    folder = Path(
        shutil.copytree(
            trained if name == "init" else getattr(small.sampled, name), tmp_path / name
        )
    )
    data = small.sampled if name == "init" else replace(small.sampled, **{name: folder})
    sets = "train.composition=seeded", *([f"train.init={folder}"] if name == "init" else [])
    before = key(data, *sets)
    file = folder / ("vocabulary.json" if name == "init" else "manifest.json")
    file.write_text(file.read_text() + "\n")
    assert key(data, *sets) != before


def test_other_frequencies_and_another_matrix_under_the_same_path_are_another_run(small, tmp_path):
    counted, matrix, found = tmp_path / "frequencies.arrow", tmp_path / "m.npy", []
    given = {"cider": f"cider.document_frequency={counted}", "mine": f"imported={{mine: {matrix}}}"}
    for split, value in (("train", 0.25), ("val", 0.75)):
        assert (
            call(
                "frequencies",
                "--captions",
                small.data.captions,
                "--out",
                counted,
                "--split",
                split,
                "--force",
            )
            == 0
        )
        np.save(matrix, np.full((small.train.n_images, small.train.n_captions), value, np.float32))
        for measure, one in given.items():
            sets = f"train.measure={measure}", "train.validation=null"
            found.append(key(small.data, *sets, preset="sam", given=(one,)))
    assert len(set(found)) == 4


def test_what_a_model_reads_is_an_input_of_a_run(small, tmp_path, monkeypatch):
    """A folder, a model of the package or of the hub by its commit, a list of words; TERN's by
    default too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "english").write_text("another file of this name\n")
    tiny = (
        "embed_dim: 16, heads: 2, image_layers: 1, joint_layers: 1, feedforward: 16, text_layers: 1"
    )
    embedded = f"train.model={{name: teran, options: {{{tiny}, stop_words: english}}}}"
    found = prepare(small.data, params(embedded), MeasuresParams()).inputs
    assert found.keys() == {"captions", "regions", "text_model"}
    assert found["text_model"] == fingerprint("all-MiniLM-L6-v2")
    config = TeranConfig(text_model=str(tmp_path), stop_words="words.txt")
    (tmp_path / "words.txt").write_text("a\n")
    read = []
    for weights in (b"1", b"22"):
        (tmp_path / "model.safetensors").write_bytes(weights)
        read.append(model_inputs(config))
    assert (
        read[0].keys() == {"text_model", "stop_words"}
        and read[0]["stop_words"] == read[1]["stop_words"]
    )
    assert read[0]["text_model"] != read[1]["text_model"]
    for name, text in {"snapshots/4f3c/config.json": "{}", "refs/main": "4f3c"}.items():
        write_text(tmp_path / "hub/models--some--bert" / name, text)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert model_inputs(TeranConfig(text_model="some/bert")) == {"text_model": "some/bert 4f3c"}
    assert model_inputs(GruConfig()) == {}


def test_a_resume_on_the_processor_of_a_state_of_a_gpu(small, tmp_path, monkeypatch):
    """A run on a processor asks no GPU for its random state: that would take memory there."""

    def never(*_):
        raise AssertionError("a GPU was asked")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", never)
    monkeypatch.setattr(torch.cuda, "set_rng_state", never)
    stopped(monkeypatch, "finish_run", 1, lambda: run(small.data, tmp_path, epochs=1))
    state = torch.load(work_of(tmp_path) / "state.pt", weights_only=True)
    assert state["cuda_rng"] is None
    torch.save(
        {**state, "cuda_rng": torch.zeros(16, dtype=torch.uint8)},
        work_of(tmp_path) / "state.pt",
    )
    assert run(small.data, tmp_path, epochs=2)["epochs"] == 2


def test_a_run_does_not_go_on_under_another_version_of_its_measure(
    small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package brings the measure of the labels that validation uses."""
    monkeypatch.setattr(setup, "packages_of", lambda names: {"a-measure": "1.0"})
    run(small.data, tmp_path / "run", epochs=1)
    monkeypatch.setattr(setup, "packages_of", lambda names: {"a-measure": "2.0"})
    with pytest.raises(InputError, match="other parameters or data"):
        run(small.data, tmp_path / "run", epochs=2)
