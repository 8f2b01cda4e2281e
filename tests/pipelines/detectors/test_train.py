"""The small detector's training, on a world of a few scenes."""

import dataclasses

import numpy as np
import pytest
import torch

from capgrade.pipelines.captions import captions
from capgrade.pipelines.detectors.annotated import read_annotated
from capgrade.pipelines.detectors.bottom_up import BottomUp
from capgrade.pipelines.detectors.catalogue import SCENES
from capgrade.pipelines.detectors.norm import unfreeze
from capgrade.pipelines.detectors.precision import measure
from capgrade.pipelines.detectors.targets import SampleRule
from capgrade.pipelines.detectors.train import Training, batches, losses_of, small_config, train, train_and_measure
from capgrade.pipelines.detectors.weights import load_bottom_up
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams, ScenesParams


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    params = ScenesParams(train=12, val=2, test=3, captions_per_image=1)
    captions(folder, CaptionsParams(source="scenes", scenes=params))
    return folder


def test_pictures_and_objects_are_those_of_the_scenes(scenes):
    data = read_annotated(scenes, "train")
    assert len(data) == 12 and len(data.classes) == 48 and len(data.attributes) == 11
    assert data.picture(3).shape == (224, 224, 3)
    truth = data.truth(3, 2.0)
    assert np.allclose(truth.boxes.numpy(), data.boxes[3] * 2)
    assert (truth.classes >= 1).all() and (truth.classes <= 48).all()


def test_a_split_without_scenes_and_a_folder_without_pictures_are_refused(scenes, tmp_path):
    with pytest.raises(InputError, match="no scenes of split 'none'"):
        read_annotated(scenes, "none")
    with pytest.raises(InputError, match="no pictures with known objects"):
        read_annotated(tmp_path, "train")


def test_mirrored_pictures_carry_mirrored_boxes(scenes):
    data = read_annotated(scenes, "train")
    torch.manual_seed(0)
    seen = {False: 0, True: 0}
    known = [data.truth(k, 320 / 224).boxes for k in range(12)]

    def same_rows(a, b):
        return torch.allclose(a[:, [1, 3]], b[:, [1, 3]])

    for images, _, truths in batches(data, Training(batch=4), "cpu"):
        for image, truth in zip(images, truths, strict=True):
            plain = next(b for b in known if len(b) == len(truth.boxes) and same_rows(b, truth.boxes))
            flipped = not torch.allclose(plain, truth.boxes)
            seen[flipped] += 1
            if flipped:
                assert torch.allclose(truth.boxes[:, 0], image.shape[2] - 1 - plain[:, 2])
            assert (truth.boxes[:, 2] > truth.boxes[:, 0]).all()
    assert seen[True] and seen[False]


def test_every_parameter_learns(scenes):
    data = read_annotated(scenes, "train")
    torch.manual_seed(0)
    model = BottomUp(small_config(48, 11)).train()
    unfreeze(model)
    losses = losses_of(model, *next(batches(data, Training(batch=2), "cpu")), SampleRule())
    assert set(losses) == {"objectness", "anchor_deltas", "classes", "box_deltas", "attributes"}
    sum(losses.values()).backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert still == []


def test_training_lowers_the_loss_repeats_by_its_seed_and_ends_with_folded_norms(scenes):
    whole = read_annotated(scenes, "train")
    data = dataclasses.replace(whole, boxes=whole.boxes[:4])
    params = Training(epochs=4, batch=2, lr=3e-3)
    model, history = train(data, params)
    assert sum(history[-1].values()) < 0.8 * sum(history[0].values()), history
    assert model.state_dict().keys() == BottomUp(model.config).state_dict().keys()
    again, _ = train(data, params)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))


def test_a_loss_that_is_no_number_stops(scenes):
    with pytest.raises(InputError, match="the loss is"):
        train(read_annotated(scenes, "train"), Training(epochs=1, batch=2, lr=1e30))


def test_precision_of_the_truth_is_one_and_of_nothing_zero(scenes, monkeypatch):
    """The yardstick itself: a detector that says the truth."""
    from capgrade.pipelines.detectors import precision

    data = read_annotated(scenes, "test")
    model = BottomUp(small_config(48, 11)).eval()
    told = iter(range(len(data)))

    def truth(regions, image):
        k = next(told)
        scale = image.shape[1] / 224
        return data.boxes[k] * np.float32(scale), [1.0] * len(data.boxes[k]), data.kinds[k].tolist()

    monkeypatch.setattr(precision, "detections", truth)
    found = measure(model, data)
    assert found.ap > 0.999 and found.ap50 > 0.999
    assert found.objects == sum(map(len, data.boxes))
    monkeypatch.setattr(precision, "detections", lambda regions, image: ([], [], []))
    assert measure(model, dataclasses.replace(data, boxes=data.boxes)).ap == 0


def test_a_trained_detector_is_written_with_its_names_and_figures(scenes, tmp_path):
    out = tmp_path / "small.safetensors"
    found = train_and_measure(scenes, out, Training(epochs=1, batch=4))
    model, facts = load_bottom_up(out)
    assert facts["classes"][0] == "dog" and facts["attributes"][0] == "red"
    again = measure(model, read_annotated(scenes, "test"))
    assert dataclasses.asdict(again) == {key: value for key, value in found.items() if key != "losses"}


def test_the_detector_of_the_package_finds_what_is_there(tmp_path):
    """Scenes of a world it was not trained on; docs/regions.md has the figures of a thousand."""
    captions(
        tmp_path,
        CaptionsParams(source="scenes", scenes=ScenesParams(train=0, val=0, test=20, captions_per_image=1, seed=5)),
    )
    assert SCENES.stat().st_size <= 8 * 2**20
    found = measure(load_bottom_up(SCENES)[0], read_annotated(tmp_path, "test"))
    assert found.ap50 > 0.8 and found.proposal_recall > 0.95
    assert found.class_accuracy > 0.85 and found.attribute_accuracy > 0.9
