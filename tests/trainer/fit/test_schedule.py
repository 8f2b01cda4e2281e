"""Where a run starts from, how it steps, what it keeps: each against plain loops."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from capgrade import evaluate
from capgrade.measures import choose
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import RegionStore, write_regions
from capgrade.schemas.say import CapgradeWarning
from capgrade.trainer.fit import train as module
from capgrade.trainer.fit.setup import prepare
from capgrade.trainer.fit.train import scored_batch, validate
from capgrade.trainer.search.encode import compute_scores, encode_split
from capgrade.trainer.search.index import embed
from capgrade.trainer.stages.embed import BestBy, EmbedParams
from capgrade.trainer.stages.train import TrainParams
from tests.conftest import call
from tests.trainer.fit import runs
from tests.trainer.fit.runs import train

SMALL = [
    "train.model.options={embed: 16, word: 8}",
    "train.clip=null",
    "train.decay_after=[]",
    "train.min_count=1",
]


def params(*more: str) -> TrainParams:
    return runs.params(*SMALL, *more, epochs=1)


def weights(run: Path, name: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(run / name)


def plain_run(
    small, asked: TrainParams, steps_of: int, decay: float | None = None
) -> dict[str, torch.Tensor]:
    """An epoch written out: the mean gradient of `steps_of` batches makes a step of Adam; the mean
    of weights after."""
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
            (setup.loss(scored_batch(model, batch, None, setup.loss.needs)) / len(some)).backward()
        optimiser.step()
        for name, p in model.named_parameters():
            mean[name] = (
                p.detach().clone()
                if decay is None
                else decay * mean[name] + (1 - decay) * p.detach()
            )
    return mean


@pytest.mark.parametrize(
    ("sets", "together", "decay"),
    [("accumulate=1", 1, None), ("accumulate=4", 4, None), ("ema=0.7", 1, 0.7)],
)
def test_steps_of_several_batches_and_averaged_weights(
    small, tmp_path: Path, sets: str, together: int, decay
) -> None:
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


def test_a_run_starts_from_another(small, trained, tmp_path: Path) -> None:
    def start(name: str, *sets: str, init: Path = trained) -> list[str]:
        given = f"train.init={init}", "train.lr=1e-30", *sets
        return runs.run(small.data, tmp_path / name, *given, epochs=1)["not_initialised"]

    assert start("same", "train.seed=3") == []
    for name, value in weights(trained).items():
        torch.testing.assert_close(weights(tmp_path / "same")[name], value, rtol=0, atol=0)
    wider = "train.model.options={embed: 32, word: 12}"
    with pytest.raises(InputError, match="do not match: read.embed.weight"):
        start("wider", wider)
    with pytest.warns(CapgradeWarning, match="2 do not match and start afresh: read.embed.weight"):
        assert start("wider", wider, "train.init_strict=false") == [
            "read.embed.weight",
            "read.gru.weight_ih_l0",
        ]
    torch.testing.assert_close(
        weights(tmp_path / "wider")["project.weight"], weights(trained)["project.weight"]
    )
    start("less", "train.share=0.4")  # by itself it would number other words
    assert (tmp_path / "less/vocabulary.json").read_text() == (
        trained / "vocabulary.json"
    ).read_text()
    with pytest.raises(InputError, match="no model to start from"):
        start("none", init=tmp_path / "none")


@pytest.mark.parametrize("fold", [None, 4])
def test_validation_is_the_mean_of_both_ways_and_of_folds(small, fold) -> None:
    torch.manual_seed(0)
    setup = prepare(small.data, params("train.measure=cider"), MeasuresParams())
    labels, names = setup.validation_relevance, ("ndcg_exp", "ncs", "ncs_ordered")
    asked = {
        "ndcg": ["ndcg@25"],
        "asp": ["asp"],
        "kendall_tau_b": ["kendall_tau_b"],
        "ndcg_exp": ["ndcg_exp@25"],
    }
    asked |= {
        name: [f"{name}@{k}" for k in (1, 5, 10)] for name in ("ncs", "ncs_ordered", "recall")
    }
    owner, folds = setup.validation.captions.owner, []
    found = validate(setup.model, setup.validation, labels, fold, names)
    whole = compute_scores(setup.model, *encode_split(setup.model.eval(), setup.validation))
    for first in range(0, 8, size := fold or 8):
        columns = np.flatnonzero(owner // size == first // size)
        part = np.ix_(range(first, first + size), columns)
        one = evaluate(
            whole[part], labels[part], sum(asked.values(), []), owner=owner[columns] - first
        )
        folds.append(
            {key: np.mean([way.mean[key] for way in one.scored.values()]) for key in one.i2t.mean}
        )
    for name, keys in asked.items():
        times = 1 if len(keys) == 1 else 200
        wanted = times * np.sum([np.mean([means[key] for means in folds]) for key in keys])
        assert found[{"recall": "rsum"}.get(name, name)] == pytest.approx(wanted, rel=1e-5), name
    assert not set(names) & validate(setup.model, setup.validation, labels).keys(), (
        "computed where it is asked for"
    )
    with pytest.raises(InputError, match="validation_fold 3 does not divide the 8 images"):
        prepare(small.data, params("train.validation_fold=3"), MeasuresParams())


def test_validation_is_on_the_first_images_alone(small, tmp_path: Path) -> None:
    """As the loaders that cut COCO's split to 1,000 images; labels are those of a split that has no
    others."""
    asked = params("train.measure=cider", "train.validation_images=5")
    torch.manual_seed(0)
    setup = prepare(small.data, asked, MeasuresParams())
    whole = read_captions(small.data.captions, "val")
    assert whole.n_images == 8
    assert setup.validation.captions.image_ids == whole.image_ids[:5]
    columns = np.flatnonzero(whole.owner < 5)
    assert setup.validation.captions.caption_ids == [whole.caption_ids[row] for row in columns]
    alone = (
        choose(["cider"], MeasuresParams())["cider"]
        .fit(setup.validation.captions)
        .score(np.arange(5))
    )
    np.testing.assert_array_equal(setup.validation_relevance, alone)
    more = prepare(small.data, params("train.validation_images=1000"), MeasuresParams())
    assert more.validation.captions.n_images == 8, "no more than there are"
    values = np.random.default_rng(0).random((whole.n_images, whole.n_captions)).astype(np.float32)
    np.save(tmp_path / "val.npy", values)  # what someone else computed is cut as the split is
    mine = MeasuresParams(imported={"mine": str(tmp_path / "val.npy")})
    found = prepare(
        small.data, params("train.measure=mine", "train.validation_images=5"), mine
    ).validation_relevance
    np.testing.assert_array_equal(found, values[:5, columns])


def test_both_best_epochs_are_kept(small, trained, tmp_path: Path, monkeypatch) -> None:
    """rsum is best after the first epoch, NDCG after the third."""
    values = iter([(9.0, 0.1), (5.0, 0.2), (7.0, 0.3), (8.0, 0.2)])
    kept = []
    keep = module.save_model
    monkeypatch.setattr(
        module, "validate", lambda *_: dict(zip(("rsum", "ndcg"), next(values), strict=True))
    )
    monkeypatch.setattr(
        module, "save_model", lambda out, model, name: (kept.append(name), keep(out, model, name))
    )
    run, files = tmp_path / "run", ["model.safetensors", "model-ndcg.safetensors"]
    train(small.data, run, params("train.also_best_by=ndcg", "train.epochs=4"), MeasuresParams())
    assert kept == [*files, files[1], files[1]]
    assert set(files) <= json.loads((run / "manifest.json").read_text())["files"].keys()

    def embedded(run: Path, best_by: BestBy) -> np.ndarray:
        told = EmbedParams(split="test", best_by=best_by)
        folders = {"run": run, "regions": small.data.regions}
        embed(small.data.captions, tmp_path / best_by, told, **folders)
        return np.load(tmp_path / best_by / "similarity.npy")

    assert not np.allclose(embedded(run, "rsum"), embedded(run, "ndcg"))
    with pytest.raises(InputError, match="train.also_best_by"):
        embedded(trained, "ndcg")
    with pytest.raises(InputError, match="name another"):
        params("train.also_best_by=rsum")


def test_features_of_another_size_are_refused(small, trained, tmp_path: Path, capsys) -> None:
    others = [
        replace(one, features=one.features[:, :8].copy()) for one in RegionStore(small.data.regions)
    ]
    write_regions(tmp_path / "others", others, dtype="float32")
    line = f"embed --run {trained} --captions {small.data.captions} --split test --out {tmp_path}/o"
    assert call(*line.split(), "--regions", str(tmp_path / "others")) == 2
    assert "8 numbers per region, 16 in training" in capsys.readouterr().err


def test_relevance_without_shards_is_refused_before_anything_is_read(small, monkeypatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("captions were read")

    monkeypatch.setattr("capgrade.trainer.fit.setup.read_captions", read)
    with pytest.raises(InputError, match="there are no shards -> give --shards"):
        prepare(small.data, params("train.relevance=shards", GRADED), MeasuresParams())


GRADED = "train.loss=[{name: kendall_windows, alpha: auto}]"
