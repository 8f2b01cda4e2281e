"""Where a run starts from, how it steps, what it keeps: each against plain loops."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from capgrade.measures import choose
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, TrainParams
from capgrade.trainer.fit import train as module
from capgrade.trainer.fit.setup import prepare
from capgrade.trainer.fit.train import scored_batch, train
from capgrade.trainer.fit.validation import validate
from capgrade.trainer.search.encode import similarity
from capgrade.trainer.search.index import embed
from tests.conftest import call
from tests.trainer.fit import runs

SMALL = ["train.model.options={embed: 16, word: 8}", "train.clip=null", "train.decay_after=[]", "train.min_count=1"]


def params(*more: str) -> TrainParams:
    return runs.params(*SMALL, *more, epochs=1)


def weights(run: Path, name: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(run / name)


def plain_run(small, asked: TrainParams, steps_of: int, decay: float | None = None) -> dict[str, torch.Tensor]:
    """An epoch written out: the mean gradient of `steps_of` batches makes a step of Adam; the mean of weights after."""
    torch.manual_seed(asked.seed)
    setup = prepare(small.data, asked, MeasuresParams())
    model = setup.model.train()
    optimiser = torch.optim.Adam(model.parameters(), lr=asked.lr)
    mean = {name: p.detach().clone() for name, p in model.named_parameters()}
    batches = [setup.pairs.collate(rows) for rows in setup.plan.epoch(0)]
    for at in range(0, len(batches), steps_of):
        some = batches[at : at + steps_of]
        optimiser.zero_grad()
        for batch in some:
            (setup.loss(scored_batch(model, batch, None, setup.needs)) / len(some)).backward()
        optimiser.step()
        for name, p in model.named_parameters():
            mean[name] = p.detach().clone() if decay is None else decay * mean[name] + (1 - decay) * p.detach()
    return mean


@pytest.mark.parametrize(
    ("sets", "together", "decay"), [("accumulate=1", 1, None), ("accumulate=4", 4, None), ("ema=0.7", 1, 0.7)]
)
def test_steps_of_several_batches_and_averaged_weights(small, tmp_path: Path, sets: str, together: int, decay) -> None:
    """48 pairs are six batches of eight: with four together, a step of four and one of two."""
    asked = params(f"train.{sets}")
    train(small.data, tmp_path / "run", asked, MeasuresParams())
    for name, value in plain_run(small, asked, together, decay).items():
        torch.testing.assert_close(weights(tmp_path / "run")[name], value, rtol=1e-5, atol=1e-6)
    twice = params(f"train.{sets}", "train.epochs=2")
    for run in ("whole", "run"):  # the second goes on after its first epoch
        train(small.data, tmp_path / run, twice, MeasuresParams())
    whole, again = ((tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "run"))
    assert whole == again


def test_a_run_starts_from_another(small, tmp_path: Path, capsys) -> None:
    train(small.data, tmp_path / "first", params(), MeasuresParams())
    frozen = params(f"train.init={tmp_path / 'first'}", "train.lr=1e-30", "train.seed=3")
    done = train(small.data, tmp_path / "second", frozen, MeasuresParams())
    assert done["not_initialised"] == []
    for name, value in weights(tmp_path / "first").items():
        torch.testing.assert_close(weights(tmp_path / "second")[name], value, rtol=0, atol=0)
    wider = params(f"train.init={tmp_path / 'first'}", "train.model.options={embed: 16, word: 12}")
    with pytest.raises(InputError, match="do not match: read.embed.weight"):
        train(small.data, tmp_path / "third", wider, MeasuresParams())
    loose = wider.model_copy(update={"init_strict": False, "lr": 1e-30})
    done = train(small.data, tmp_path / "third", loose, MeasuresParams())
    assert done["not_initialised"] == ["read.embed.weight", "read.gru.weight_ih_l0"]
    assert "2 do not match and start afresh: read.embed.weight" in capsys.readouterr().err
    torch.testing.assert_close(
        weights(tmp_path / "third")["project.weight"], weights(tmp_path / "first")["project.weight"]
    )
    less = params(f"train.init={tmp_path / 'first'}", "train.images=0.4")  # by itself it would number other words
    train(small.data, tmp_path / "less", less, MeasuresParams())
    read = [(tmp_path / run / "vocabulary.json").read_text() for run in ("first", "less")]
    assert read[0] == read[1]
    with pytest.raises(InputError, match="no model to start from"):
        train(small.data, tmp_path / "fourth", params(f"train.init={tmp_path / 'none'}"), MeasuresParams())


def test_validation_in_folds_is_the_mean_of_blocks(small) -> None:
    torch.manual_seed(0)
    setup = prepare(small.data, params("train.measure=rouge_l"), MeasuresParams())
    assert setup.validation is not None and setup.validation_relevance is not None
    found = validate(setup.model, setup.validation, setup.validation_relevance, 4)
    whole = similarity(setup.model.eval(), setup.validation)
    owner = setup.validation.captions.owner
    recalls = []
    for first in (0, 4):
        columns = np.flatnonzero((owner >= first) & (owner < first + 4))
        block = whole[first : first + 4, columns]
        own = owner[columns] - first
        for scores, right in (
            (block, own[None] == np.arange(4)[:, None]),
            (block.T, own[:, None] == np.arange(4)[None]),
        ):
            order = np.argsort(-scores, axis=1, kind="stable")
            ranked = np.take_along_axis(right, order, 1)
            recalls.append(sum(100 * ranked[:, :k].any(1).mean() for k in (1, 5, 10)))
    assert found["rsum"] == pytest.approx(sum(recalls) / 2, abs=1e-6)
    with pytest.raises(InputError, match="validation_fold 3 does not divide the 8 images"):
        prepare(small.data, params("train.validation_fold=3"), MeasuresParams())


def test_validation_is_on_the_first_images_alone(small, tmp_path: Path) -> None:
    """As the loaders that cut COCO's split to 1,000 images; labels are those of a split that has no others."""
    asked = params("train.measure=cider", "train.validation_images=5")
    torch.manual_seed(0)
    setup = prepare(small.data, asked, MeasuresParams())
    whole = read_captions(small.data.captions, "val")
    assert setup.validation is not None and setup.validation_relevance is not None and whole.n_images == 8
    assert setup.validation.captions.image_ids == whole.image_ids[:5]
    columns = np.flatnonzero(whole.owner < 5)
    assert setup.validation.captions.caption_ids == [whole.caption_ids[row] for row in columns]
    alone = choose(["cider"], MeasuresParams())["cider"].fit(setup.validation.captions).score(np.arange(5))
    np.testing.assert_array_equal(setup.validation_relevance, alone)
    more = prepare(small.data, params("train.validation_images=1000"), MeasuresParams())
    assert more.validation is not None and more.validation.captions.n_images == 8, "no more than there are"
    values = np.random.default_rng(0).random((whole.n_images, whole.n_captions)).astype(np.float32)
    np.save(tmp_path / "val.npy", values)  # what someone else computed is cut as the split is
    mine = MeasuresParams(imported={"mine": str(tmp_path / "val.npy")})
    found = prepare(small.data, params("train.measure=mine", "train.validation_images=5"), mine).validation_relevance
    np.testing.assert_array_equal(found, values[:5, columns])


def test_the_best_epoch_is_found_by_what_the_authors_code_prints(small) -> None:
    """TERAN's dcg.py (gain 2^rel - 1) and SAM's metric.py: `softer` (104-112) and `softer_order` (114-123)."""
    torch.manual_seed(0)
    setup = prepare(small.data, params("train.measure=cider"), MeasuresParams())
    labels = setup.validation_relevance
    assert labels is not None
    names = ("ndcg_exp", "ncs", "ncs_ordered")
    found = validate(setup.model, setup.validation, labels, None, names)
    scores = similarity(setup.model.eval(), setup.validation)
    want = dict.fromkeys(names, 0.0)
    for S, r in ((scores, labels), (scores.T, labels.T)):
        gained = np.take_along_axis(r, np.argsort(-S, axis=1, kind="stable"), 1).astype(np.float64)
        ideal = -np.sort(-r.astype(np.float64), axis=1)
        discount = np.log2(np.arange(min(25, r.shape[1])) + 2)
        dcg, best = (((2 ** x[:, : len(discount)] - 1) / discount).sum(1) for x in (gained, ideal))
        want["ndcg_exp"] += float((dcg / best).mean()) / 2
        for k in (1, 5, 10):
            weights = np.array([np.log2(k - place + 1) for place in range(k)])
            for name, w in (("ncs", np.ones(k)), ("ncs_ordered", weights)):
                w = w[: r.shape[1]]
                ratio = (gained[:, :k] * w).mean(1) / ((ideal[:, :k] * w).mean(1) + 1e-10)
                want[name] += 100 * float(ratio.mean())
    for name in names:
        assert found[name] == pytest.approx(want[name], rel=1e-5), name
    assert not set(names) & validate(setup.model, setup.validation, labels).keys(), "computed where it is asked for"


def test_both_best_epochs_are_kept(small, tmp_path: Path, monkeypatch) -> None:
    """rsum is best after the first epoch, NDCG after the third."""
    values = iter(
        [{"rsum": 9.0, "ndcg": 0.1}, {"rsum": 5.0, "ndcg": 0.2}, {"rsum": 7.0, "ndcg": 0.3}, {"rsum": 8.0, "ndcg": 0.2}]
    )
    monkeypatch.setattr(module, "validate", lambda *_: next(values))
    kept = []
    keep = module.save_model
    monkeypatch.setattr(module, "save_model", lambda out, model, name: (kept.append(name), keep(out, model, name)))
    run = tmp_path / "run"
    train(small.data, run, params("train.also_best_by=ndcg", "train.epochs=4"), MeasuresParams())
    assert kept == ["model.safetensors", "model-ndcg.safetensors", "model-ndcg.safetensors", "model-ndcg.safetensors"]
    assert {"model.safetensors", "model-ndcg.safetensors"} <= json.loads((run / "manifest.json").read_text())[
        "files"
    ].keys()
    found = [np.load(_embedded(small, run, tmp_path / name, name) / "similarity.npy") for name in ("rsum", "ndcg")]
    assert not np.allclose(*found)
    plain = tmp_path / "plain"
    monkeypatch.undo()
    train(small.data, plain, params(), MeasuresParams())
    with pytest.raises(InputError, match="train.also_best_by"):
        _embedded(small, plain, tmp_path / "none", "ndcg")
    with pytest.raises(InputError, match="name another"):
        params("train.also_best_by=rsum")


def _embedded(small, run: Path, out: Path, best_by: str) -> Path:
    embed(run, small.data.captions, small.data.regions, "test", out, best_by=best_by)
    return out


def test_features_of_another_size_are_refused(small, tmp_path: Path, capsys) -> None:
    from capgrade.schemas.region_store import RegionStore
    from capgrade.schemas.regions import write_regions

    train(small.data, tmp_path / "run", params(), MeasuresParams())
    others = [replace(one, features=one.features[:, :8].copy()) for one in RegionStore(small.data.regions)]
    write_regions(tmp_path / "others", others, dtype="float32")
    line = "evaluate", "--run", str(tmp_path / "run"), "--captions", str(small.data.captions), "--split", "test"
    assert call(*line, "--regions", str(tmp_path / "others")) == 2
    assert "8 numbers per region, 16 in training" in capsys.readouterr().err
    with pytest.raises(InputError, match="do not match: project.weight"):
        other = replace(small.data, regions=tmp_path / "others")
        train(other, tmp_path / "next", params(f"train.init={tmp_path / 'run'}"), MeasuresParams())
