"""Runs on a small world: they learn, go on after a stop, and refuse what does not fit."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from capgrade.losses import LossTerms
from capgrade.measures.embeddings import embed as embed_texts
from capgrade.measures.params import MeasuresParams
from capgrade.measures.sbert import SbertParams
from capgrade.params import load_params
from capgrade.pipelines.publish.push import push
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, read_manifest, work_folders
from capgrade.trainer.fit.checkpoint import load_run
from capgrade.trainer.fit.setup import prepare
from capgrade.trainer.fit.train import epoch_lines, scored_batch
from capgrade.trainer.search.index import search, search_captions
from research.reproduce.recipe import SMALL
from tests.apps.judging.stand_in import Chat, served
from tests.apps.judging.tiny import random_model
from tests.conftest import call, work_of
from tests.pipelines.publish.conftest import hub  # noqa: F401  # a stand-in for the hub
from tests.pipelines.publish.stand_in import Hub
from tests.trainer.fit.runs import column, params, run, train


def losses(out):
    return column(out, "loss")


PRESETS = (
    "sam bcls daa daa_authors_f30k sam_authors infonce vse_infinity vse_infinity_bert vsrn_f30k"
    " cvse"
)
TINY = yaml.safe_load(SMALL.read_text())["models"]


@pytest.mark.parametrize(
    "preset", [*PRESETS.split(), "sam_cvse_f30k", "scan", "scan_i2t_f30k", "semanticmap", "teran"]
)
def test_every_preset_trains(small, tmp_path, preset):
    options = TINY[load_params(None, [f"train.preset={preset}"]).train.model.name]
    sets = f"train.model.options={options}", "train.model.options.text_layers=1"
    summary = run(small.data, tmp_path, *sets[: 1 + ("bert" in preset)], preset=preset, epochs=1)
    asked = params(preset=preset).best_by
    assert np.isfinite(summary["loss"]) and {"rsum", "ndcg", "asp", asked} <= summary["best"].keys()
    if preset == "cvse":  # its concepts are of the captions learnt from
        model, tokens, _ = load_run(tmp_path)
        assert not model.training
        words = {tokens.words[number - 4] for number in model.concept_words}
        assert len(words) == 4 and not {"a", "the", "and"} & words
        assert not model.graph.edges.equal(torch.eye(4)), "the graph comes back with the run"


def test_the_first_epochs_sum_over_all_negatives(small, tmp_path):
    runs = {
        "first": "all_negatives_first=1",
        "sum": "loss=[{name: triplet, negatives: sum}]",
        "hard": "seed=0",
    }
    for name, one in runs.items():
        run(small.data, tmp_path / name, f"train.{one}", epochs=2)
    found = {name: losses(tmp_path / name) for name in runs}
    an_epoch = len(found["sum"]) // 2
    assert found["first"][:an_epoch] == found["sum"][:an_epoch] != found["hard"][:an_epoch]
    assert float(found["first"][an_epoch]) < 0.5 * float(found["sum"][an_epoch])


def test_a_folder_with_another_run_is_refused_unless_restarted(small, tmp_path):
    done = run(small.data, tmp_path, epochs=1)
    with pytest.raises(InputError, match="a run of other parameters"):
        run(small.data, tmp_path, "train.lr=0.02", epochs=1)
    before = (tmp_path / "model.safetensors").stat().st_mtime_ns
    assert (
        run(small.data, tmp_path, epochs=1)
        == done
        == json.loads((tmp_path / "summary.json").read_text())
    )
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == before, (
        "a finished run is not trained again"
    )
    (tmp_path / "mine.csv").write_text("of somebody else")
    run(small.data, tmp_path, "train.lr=0.02", epochs=1, restart=True)
    assert json.loads((tmp_path / "config.json").read_text())["params"]["lr"] == 0.02
    assert (
        "mine.csv" not in read_manifest(tmp_path, "train")["files"]
        and (tmp_path / "mine.csv").exists()
    )


def test_a_device_that_is_out_of_memory_is_one_error(small, tmp_path, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("capgrade.trainer.fit.train.scored_batch", full)
    with pytest.raises(
        InputError,
        match="cpu is out of memory -> lower train.batch_size, or set train.precision=bf16",
    ):
        run(small.data, tmp_path, epochs=1)


def test_a_loss_that_is_no_number_stops_and_keeps_its_batch(small, tmp_path):
    with pytest.raises(InputError, match="the loss is (nan|inf) at step") as error:
        run(small.data, tmp_path, "train.loss=[{name: triplet, margin: .inf}]")
    unfit = work_of(tmp_path) / "unfit_batch.json"
    assert len(json.loads(unfit.read_text())["captions"]) == 8 and error.value.file == unfit
    again = lambda: run(small.data, tmp_path, "train.lr=.inf", "train.batch_size=48", epochs=1)  # noqa: E731  # its one step is the last
    with pytest.raises(
        InputError, match="a weight is NaN or infinite after epoch 1 -> lower train.lr"
    ):
        again()
    for work in work_folders(tmp_path):
        (work / "state.pt").write_bytes(b"x" * 100)
    with pytest.raises(InputError, match="not a state to go on from"):
        again()


LOOKED_UP = ("train.relevance=shards", "train.relevance_of=image_set")
READS = {  # preset and settings, and what a run tells of pairs that were not sampled
    "partners": ("triplet", ("train.composition=seeded",), {}),
    "a look-up from the hub": ("sam", LOOKED_UP, {"unknown": "estimate"}),
    "a looked-up mask": ("daa", (*LOOKED_UP, "train.unknown=mask"), {"unknown": "mask"}),
}
NO_TRIPLET = "no triplet of the hardest negative .* train.all_negatives_first=0"
REFUSED = {  # what does not fit: preset and settings, whether with shards, and part of the error
    "tf32 on a processor": (
        "triplet",
        ("train.precision=tf32",),
        False,
        "tf32 on device cpu -> use float32 or bf16",
    ),
    "another range": (
        "triplet",
        ("train.measure=cider", "train.loss=[{name: kendall_windows}]"),
        False,
        "'kendall_windows' is written for relevance in -1..1, and cider is in 0..10",
    ),
    "between captions": (
        "bcls",
        ("train.relevance=shards",),
        False,
        "shards hold no relevance between captions",
    ),
    "windows alone": (
        "triplet",
        ("train.all_negatives_first=3", "train.loss=[{name: kendall_windows}]"),
        False,
        NO_TRIPLET,
    ),
    "random negatives": (
        "triplet",
        ("train.all_negatives_first=3", "train.loss=[{name: triplet, negatives: random}]"),
        False,
        NO_TRIPLET,
    ),
    "labels of other captions than those learnt from": (
        "sam",
        (*LOOKED_UP, "train.captions_per_image=1"),
        True,
        "relevance by all captions of the split, where 24 of 48 are learnt from",
    ),
    "an unknown preset": ("samm", (), False, "samm"),
    "no shards for a look-up": ("sam", ("train.relevance=shards",), False, "give --shards"),
    "a batch larger than the split": (
        "triplet",
        ("train.batch_size=500",),
        False,
        "a batch of 500 from 48 pairs -> lower the size of batches",
    ),
    "an unknown measure": ("sam", ("train.measure=cidr",), False, "unknown measure 'cidr'"),
    "regions of any number": (
        "saf",
        ("train.model.options={region_norm: authors}",),
        False,
        "region_norm authors takes 36",
    ),
    "too few concepts": (
        "cvse",
        ("train.model.options={concepts: 300}",),
        False,
        "300 concepts are asked for, and captions say 8 words that can be one",
    ),
    "a model that is not there": (
        "triplet",
        ("train.model.name=clap",),
        False,
        "unknown model 'clap' -> near it: clip",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(small, tmp_path, case):
    preset, sets, with_shards, problem = REFUSED[case]
    data = small.sampled if with_shards else small.data
    with pytest.raises(InputError, match=problem):
        run(data, tmp_path, *sets, preset=preset, epochs=1)


@pytest.mark.parametrize(
    ("preset", "sets"), [("sam", ()), ("triplet", ("train.relevance=shards",))]
)
def test_labels_that_a_run_does_not_read_are_named(small, tmp_path, preset, sets, capsys):
    """A pipeline gives all runs the same; what is not read is no input."""
    run(small.sampled, tmp_path / "given", *sets, preset=preset, epochs=1)
    assert (
        f"{small.sampled.shards}: these labels are not read: batches are random"
        in capsys.readouterr().err
    )
    assert "shards" not in json.loads((tmp_path / "given" / "config.json").read_text())["inputs"]


@pytest.mark.parametrize("case", READS)
def test_a_published_dataset_trains_as_the_shards_it_was_made_of(
    small,
    tmp_path,
    case,
    hub: Hub,  # noqa: F811
    monkeypatch,
):
    preset, sets, unknown = READS[case]
    told = [
        "--captions",
        str(small.data.captions),
        "--shards",
        str(small.sampled.shards),
        "--license",
        "cc-by-4.0",
    ]
    assert call("publish", *told, "--out", str(tmp_path / "dataset")) == 0
    where, runs = tmp_path / "dataset", (tmp_path / "a", tmp_path / "b")
    if "hub" in case:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        push(where, "user/labels")
        where = Path("user/labels")
    for data, out in zip((small.sampled, replace(small.sampled, shards=where)), runs, strict=True):
        summary = run(data, out, *sets, preset=preset, epochs=1)
    known = {
        "measure": "rouge_l",
        "sha256": digest(tmp_path / "dataset" / "manifest.json"),
        **unknown,
    }
    assert summary["labels"] == known and np.isfinite(summary["loss"])
    assert losses(runs[0]) == losses(runs[1]) and len(losses(runs[0])) == 6
    assert column(runs[0], "rsum", "epochs.csv") == column(runs[1], "rsum", "epochs.csv")
    inputs = [json.loads((out / "manifest.json").read_text())["inputs"] for out in runs]
    assert inputs[1]["shards"] == known["sha256"] != inputs[0]["shards"]


def test_a_measure_that_only_the_labels_know_trains(small, tmp_path, capsys):
    """By recall alone; what shards of a matrix that is not given again cannot tell is refused
    before the first step."""
    np.save(tmp_path / "m.npy", np.random.default_rng(0).random((24, 48)).astype(np.float32))
    told = [
        "--captions",
        str(small.data.captions),
        "--split",
        "train",
        "--measures",
        "judge",
        "--set",
        "shards.top=0",
    ]
    told += [
        "--set",
        "shards.uniform=8",
        "--set",
        f"measures.imported={{judge: {tmp_path / 'm.npy'}}}",
    ]
    assert (
        call(
            "shards",
            *told,
            "--set",
            "shards.windows.per_window=1",
            "--out",
            str(tmp_path / "shards"),
        )
        == 0
    )
    judged = replace(small.sampled, shards=tmp_path / "shards")

    def asked(*more: str):
        return params("train.measure=judge", *LOOKED_UP, *more, preset="sam", epochs=1)

    found = train(judged, tmp_path / "a", asked(), MeasuresParams())
    assert np.isfinite(found["loss"]) and "rsum" in found["best"] and "ndcg" not in found["best"]
    assert (
        "validation: recall alone, as judge is known in the labels alone" in capsys.readouterr().err
    )
    assert (
        train(judged, tmp_path / "b", asked("train.validation=null"), MeasuresParams())["loss"]
        == found["loss"]
    )
    for more, problem in (
        ("best_by=ndcg", "train.best_by is ndcg, and judge is known in the labels alone"),
        (
            "unknown=bound",
            r"no top captions of judge, so nothing bounds .* sample\['top'\] above 0",
        ),
    ):
        with pytest.raises(InputError, match=problem):
            prepare(judged, asked(f"train.{more}"), MeasuresParams())


def test_a_measure_of_some_pairs_trains(small, tmp_path, capsys):
    """What a reranker did not score is masked, and beside captions that it scored are batches;
    nothing stands for the others."""
    random_model(tmp_path / "model")
    block = {"model": str(tmp_path / "model"), "of": "rouge_l", "top": 6}
    measures = MeasuresParams.model_validate({"reranker": block})
    sample = ShardsParams(split="train", measures=("reranker",), uniform=4)
    shards(small.data.captions, tmp_path / "shards", sample, measures)
    data = replace(small.sampled, shards=tmp_path / "shards")

    def asked(*more: str):
        sets = "train.measure=reranker", *LOOKED_UP, "train.composition=seeded", *more
        return params(*sets, preset="sam", epochs=1)

    found = train(data, tmp_path / "a", asked("train.unknown=mask"), measures)
    assert np.isfinite(found["loss"]) and "rsum" in found["best"] and "ndcg" not in found["best"]
    said = "validation: recall alone, as reranker is known in the labels alone"
    assert said in capsys.readouterr().err
    for unknown in ("estimate", "bound"):
        with pytest.raises(InputError, match="reranker scores some pairs alone"):
            prepare(data, asked(f"train.unknown={unknown}"), measures)
    exact = params("train.measure=reranker", preset="sam", epochs=1)
    with pytest.raises(InputError, match="scores the first 6 of .* and a matrix has all"):
        prepare(small.data, exact, measures)


def test_targets_of_a_judge_train(small, tmp_path, monkeypatch):
    """What `capgrade regrade` wrote is looked up: what nobody judged is masked."""
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    np.save(tmp_path / "s.npy", np.random.default_rng(0).random((24, 48)).astype(np.float32))
    line = ["regrade", "--captions", small.data.captions, "--split", "train", "--judge-model", "m"]
    line += ["--similarity", tmp_path / "s.npy", "--budget", 200, "--out", tmp_path / "out"]
    with served(Chat(lambda body: str(len(str(body)) % 6))) as chat:
        assert call(*line, "--endpoint", chat.address) == 0
    targets = replace(small.data, shards=tmp_path / "out" / "targets")
    sets = (*LOOKED_UP, "train.unknown=mask", "train.measure=judge")
    asked = params(*sets, "train.loss=[{name: soft_info_nce}]", preset="triplet", epochs=1)
    block = prepare(targets, asked, MeasuresParams()).relevance.block(np.arange(24), np.arange(48))
    own = np.arange(24)[:, None] == small.train.owner[None]
    assert block.known.sum() == 48 + 200 and (block.relevance[own] == 1).all()
    assert 0 < (block.relevance[block.known & ~own] > 0).mean() < 1
    assert np.isfinite(train(targets, tmp_path / "run", asked, MeasuresParams())["loss"])


def test_bcls_sees_the_cosine_of_paired_captions(small):
    """r_ij = cos(T_i, T_j): captions of one image have their cosine, as any others, and only the
    diagonal is 1."""
    options = "train.model.options={embed: 8, word: 8, similarity: 8}"
    measures = MeasuresParams(sbert=SbertParams(references="mean"))
    setup = prepare(
        small.data,
        params("train.measure=sbert", "train.batch_size=48", options, preset="bcls"),
        measures,
    )
    batch = setup.pairs.collate(setup.plan.epoch(0)[0])
    scored = scored_batch(setup.model, batch, setup.relevance, setup.loss.needs)
    paired = embed_texts(small.train.texts, "all-MiniLM-L6-v2")[batch.caption_rows]
    assert (
        np.abs(scored.relevance.numpy() - paired @ paired.T).max() < 1e-5 and scored.known is None
    )


VSE = "train.model={name: vse, options: {embed: 16, word: 8}}"


def test_a_batch_has_the_weights_of_its_shards(small) -> None:
    asked = params(
        "train.relevance=shards", "train.unknown=mask", "train.batch_size=16", VSE, preset="daa"
    )
    setup = prepare(small.sampled, asked, MeasuresParams())
    one = setup.pairs.collate(setup.plan.epoch(0)[0])
    found = scored_batch(setup.model, one, setup.relevance, setup.loss.needs)
    wanted = setup.relevance.labels.block(one.image_numbers, one.caption_rows, "rouge_l")
    for ours, theirs in zip((found.relevance, found.known, found.weights), wanted, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    assert (found.weights > 1.01).any()


def test_less_data_by_parameter(small, tmp_path):
    less = "train.share=0.5", "train.captions_per_image=1", "train.batch_size=4"
    run(small.data, tmp_path, *less, epochs=1)
    assert len(losses(tmp_path)) == 12 // 4
    relevance = prepare(small.data, params(*less, preset="sam"), MeasuresParams()).relevance
    assert relevance.captions.n_captions == 12, "frequencies are those of the captions learnt from"
    of_all = MeasuresParams(imported={"mine": "all.npy"})
    with pytest.raises(InputError, match="relevance by all captions of the split"):
        prepare(small.data, params(*less, "train.measure=mine", preset="sam"), of_all)


def test_a_run_learns_to_find_what_it_is_told(trained):
    assert 300 < json.loads((trained / "summary.json").read_text())["best"]["rsum"] <= 600
    found = search(trained, trained / "index", "a dog and a boat", top=8)
    scores = [hit.similarity for hit in found]
    assert len(found) == 8 and scores == sorted(scores, reverse=True)
    assert "dog" in found[0].text or "boat" in found[0].text
    similarity = np.load(trained / "index/similarity.npy")
    captions = search_captions(trained, trained / "index", found[0].id, top=3)
    image = int(found[0].id.split("-i")[1])
    assert captions[0].similarity == pytest.approx(float(similarity[image].max()), abs=1e-5)
    assert captions[0].own == (captions[0].id.split("#")[0] == found[0].id)
    with pytest.raises(InputError, match="no image 'x'"):
        search_captions(trained, trained / "index", "x")


@pytest.mark.parametrize(
    "change", [{"owner": [0]}, {"owner": [99] * 16}, {"owner": "x"}, {"image_ids": 3}, {"image_ids": ["a"]},
               {"captions": [1] * 16}]
)  # fmt: skip
def test_a_damaged_index_is_refused(trained, tmp_path, change):
    index = Path(shutil.copytree(trained / "index", tmp_path / "index"))
    text = (index / "items.json").read_text()
    changed = json.dumps({**json.loads(text), **change})
    # of the same size, as the manifest asks
    (index / "items.json").write_text(changed.ljust(len(text)))
    with pytest.raises(InputError, match="index: damaged: .* -> run `capgrade embed` again"):
        search(trained, index, "a dog")


@pytest.mark.parametrize(
    ("name", "whole", "damaged"),
    [("model.safetensors", b"{", b"["), ("config.json", b'"embed": 32', b'"embed": 16')],
)
def test_a_damaged_run_is_refused(trained, tmp_path, name, whole, damaged):
    path = shutil.copytree(trained, tmp_path / "copy") / name
    path.write_bytes(path.read_bytes().replace(whole, damaged))
    with pytest.raises(InputError, match="not the model of config.json"):
        load_run(path.parent)


@pytest.mark.parametrize("option", ["precision=bf16", "unique_images=true"])
def test_a_run_learns_otherwise_computed(small, tmp_path, option, trained, monkeypatch):
    """Losses are computed outside of autocast."""
    cast, real, casting = [], LossTerms.__call__, torch.is_autocast_enabled
    monkeypatch.setattr(
        LossTerms,
        "__call__",
        lambda terms, batch: cast.append(casting("cpu")) or real(terms, batch),
    )
    assert run(small.data, tmp_path, f"train.{option}", epochs=8)["best"]["rsum"] > 200
    assert losses(tmp_path) != losses(trained)[:48] and cast == [False] * 48


def test_the_logged_rate_is_the_steps_own(small, tmp_path):
    run(small.data, tmp_path, "train.warmup=4", "train.decay_after=[1]", "train.lr=0.008", epochs=2)
    rates = [float(rate) for rate in column(tmp_path, "lr")]
    assert rates == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.008, 0.008] + [0.0008] * 6)


def test_the_share_of_active_hinges_is_kept_and_said(small, tmp_path, capsys):
    """A margin of 3 leaves every hinge above 0, one of -3 none; the other loss has none to
    count."""
    shares = {}
    for margin in (3, 0, -3):
        terms = f"train.loss=[{{name: triplet, margin: {margin}}}, {{name: info_nce}}]"
        run(small.data, tmp_path / str(margin), terms, epochs=2)
        shares[margin] = [
            float(share) for share in column(tmp_path / str(margin), "active_triplet", "epochs.csv")
        ]
        header = (tmp_path / str(margin) / "epochs.csv").read_text().splitlines()[0]
        assert header.startswith("epoch,loss,active_triplet,rsum")
    assert (
        shares[3] == [1, 1] and shares[-3] == [0, 0] and all(0 < share < 1 for share in shares[0])
    )
    lines = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith(("epoch", "triplet"))
    ]
    for line, share in zip(
        [k for k in lines if k.startswith("epoch")][::2], ("100.0", None, "0.0"), strict=True
    ):
        assert re.match(
            r"epoch 1: loss [\d.]+, rsum [\d.]+, ndcg [\d.]+, .*; active hinges: ", line
        )
        assert share is None or line.endswith(f"; active hinges: {share}% of triplet")
    assert [line.split(" of active")[0] for line in lines if line.startswith("triplet")] == [
        "triplet has had 100%", "triplet has had 0%",
    ]  # fmt: skip


def test_a_term_that_idles_is_told_once_with_its_key():
    """SAM with the furthest negative after an epoch over all negatives, 441 of rsum: 0.0 % of sam
    from epoch 3 on."""
    sam = (0.4, 0.02, 0.0004, 0.0, 0.0, 0.3, 1.0, 0.9996)
    epochs = [
        {"epoch": k + 1, "loss": 12.345678, "active_sam": x, "rsum": 96.0}
        for k, x in enumerate(sam)
    ]
    said = [epoch_lines(epochs[: k + 1]) for k in range(len(sam))]
    assert said[0] == ["epoch 1: loss 12.35, rsum 96; active hinges: 40.0% of sam"]
    assert [len(lines) for lines in said] == [1, 1, 1, 2, 1, 1, 1, 2]
    assert "nothing is learnt" in said[3][1] and "tau" in said[3][1]
    assert "all_negatives_first" in said[7][1]
