"""A trained model as a measure: cosines of vectors by plain products, each image by models that
never saw it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from capgrade.measures.base import state_of
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.trainer.data.pairs import fold_of
from capgrade.trainer.fit import IMAGES
from capgrade.trainer.trained import Trained, TrainedParams, unseen_images
from tests.trainer.conftest import Small
from tests.trainer.fit.runs import run

FOLDS = 3


@pytest.fixture(scope="module")
def folded(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folded")
    summaries = run(small.data, folder, f"train.folds={FOLDS}", epochs=1)
    assert list(summaries) == [f"fold-{k}" for k in range(FOLDS)]
    return folder


def measure_of(folder: Path, small: Small) -> Trained:
    return Trained(TrainedParams(run=str(folder), regions=str(small.data.regions)))


def test_a_fold_trains_on_the_images_of_the_others(small: Small, folded: Path) -> None:
    parts = fold_of(small.train.image_ids, FOLDS)
    for k in range(FOLDS):
        learnt = (folded / f"fold-{k}" / IMAGES).read_text().splitlines()
        expected = [i for i, part in zip(small.train.image_ids, parts, strict=True) if part != k]
        assert learnt == expected
        assert json.loads((folded / f"fold-{k}" / "config.json").read_text())["params"]["fold"] == k


def test_each_image_is_scored_by_the_model_that_never_saw_it(small: Small, folded: Path) -> None:
    fitted = measure_of(folded, small).fit(small.train)
    parts = fold_of(small.train.image_ids, FOLDS)
    np.testing.assert_array_equal(fitted.unseen, np.arange(FOLDS)[:, None] == parts)
    whole = fitted.score(np.arange(small.train.n_images))
    for i, part in enumerate(parts):
        learnt = (folded / f"fold-{part}" / IMAGES).read_text().splitlines()
        assert small.train.image_ids[i] not in learnt
        expected = fitted.captions[part].astype(float) @ fitted.images[part, i].astype(float)
        np.testing.assert_allclose(whole[i], expected, rtol=0, atol=2e-6)


def test_images_that_none_saw_have_the_mean_of_all(small: Small, folded: Path) -> None:
    test = read_captions(small.data.captions, "test")
    fitted = measure_of(folded, small).fit(test)
    assert fitted.unseen.all()
    cosines = np.einsum("kid,kcd->kic", fitted.images.astype(float), fitted.captions.astype(float))
    images = np.arange(test.n_images)
    np.testing.assert_allclose(fitted.score(images), cosines.mean(0), rtol=0, atol=2e-6)


def test_pairs_cells_and_blocks_agree_and_a_worker_opens_it(
    small: Small, folded: Path, tmp_path: Path
) -> None:
    fitted = measure_of(folded, small).fit(small.train)
    images, captions = np.array([5, 0, 17, 5]), np.array([3, 40, 3, 11, 0])
    block = fitted.score(images)
    np.testing.assert_array_equal(fitted.score(images, captions), block[:, captions])
    np.testing.assert_array_equal(fitted.score(images[2:]), block[2:])
    pairs = fitted.pairwise(images, captions)
    np.testing.assert_allclose(pairs, block[:, captions], rtol=0, atol=2e-6)
    fitted.save(tmp_path / "state")
    again = state_of(fitted.kind()).load(tmp_path / "state")
    np.testing.assert_array_equal(again.score(images), block)


def test_a_model_of_these_images_is_refused(small: Small, tmp_path: Path) -> None:
    run(small.data, tmp_path / "whole", epochs=1)
    measure = measure_of(tmp_path / "whole", small)
    with pytest.raises(InputError, match="trained on 24 of these 24 images, 'train-i0' the first"):
        measure.fit(small.train)
    test = read_captions(small.data.captions, "test")
    assert measure.fit(test).unseen.all() and unseen_images([tmp_path / "whole"], test).all()
    assert measure.meaning().endswith("by a model that was not trained on the image")


def test_a_model_that_aligns_sets_is_refused(small: Small, tmp_path: Path) -> None:
    options = "train.model.options={embed: 8, word: 8}"
    run(small.data, tmp_path / "scan", options, preset="scan", epochs=1)
    test = read_captions(small.data.captions, "test")
    with pytest.raises(InputError, match="no cosine .* import its similarity"):
        measure_of(tmp_path / "scan", small).fit(test)


@pytest.mark.parametrize("changed", [{"folds": 4}, {"lr": 0.5}, {"fold": 1}])
def test_folds_of_two_trainings_are_no_model(
    changed: dict, small: Small, folded: Path, tmp_path: Path
) -> None:
    """As `--restart` with fewer folds leaves them beside each other."""
    shutil.copytree(folded, tmp_path / "folded")
    assert measure_of(tmp_path / "folded", small).files()
    file = tmp_path / "folded" / "fold-2" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "params": {**config["params"], **changed}}))
    with pytest.raises(InputError, match="fold-.: these 3 folds are not of one training"):
        measure_of(tmp_path / "folded", small).files()


def test_what_is_no_run_is_named(small: Small, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="measures.trained.run"):
        Trained().fit(small.train)
    with pytest.raises(InputError, match="not a trained run"):
        measure_of(small.data.captions, small).fit(small.train)
