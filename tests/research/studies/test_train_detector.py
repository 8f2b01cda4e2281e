"""The small detector's training, on a world of a few scenes; the figures of the one that is
shipped."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.boxes import iou
from capgrade.pipelines.captions import captions
from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpConfig, make_backbone
from capgrade.pipelines.detectors.catalogue import DETECTORS
from capgrade.pipelines.detectors.checkpoint import load_bottom_up
from capgrade.pipelines.stages.captions import CaptionsParams, ScenesParams
from capgrade.schemas.errors import InputError
from research.studies import scene_objects, train_detector
from research.studies.scene_objects import Truth, measure, read_annotated
from research.studies.train_detector import (
    IGNORE,
    Training,
    batches,
    label_anchors,
    losses_of,
    sample_regions,
    small_config,
    train,
)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    params = ScenesParams(train=12, val=2, test=3, captions_per_image=1)
    captions(folder, CaptionsParams(source="scenes", scenes=params))
    return folder


def test_a_split_without_scenes_and_a_folder_without_pictures_are_refused(scenes, tmp_path):
    with pytest.raises(InputError, match="no scenes of split 'none'"):
        read_annotated(scenes, "none")
    with pytest.raises(InputError, match="no pictures with known objects"):
        read_annotated(tmp_path, "train")


def test_mirrored_pictures_carry_mirrored_boxes(scenes):
    """Every second one: what is at a box, mirrored back, is what was there."""
    data = read_annotated(scenes, "train")
    torch.manual_seed(0)
    known = [truth.boxes * (320 / 224) for truth in data.truths]
    seen = {False: 0, True: 0}
    for images, _, truths in batches(data, 4, "cpu"):
        for image, truth in zip(images, truths, strict=True):
            heights = truth.boxes[:, [1, 3]]
            plain = next(
                b for b in known if len(b) == len(heights) and torch.allclose(b[:, [1, 3]], heights)
            )
            flipped = not torch.allclose(plain, truth.boxes)
            seen[flipped] += 1
            x1, _, x2, _ = truth.boxes.unbind(dim=1)
            assert (x2 > x1).all() and (
                not flipped or torch.allclose(x1, image.shape[2] - 1 - plain[:, 2])
            )
    assert sum(seen.values()) == 12 and min(seen.values()) > 0


def test_every_parameter_learns(scenes):
    data = read_annotated(scenes, "train")
    torch.manual_seed(0)
    model = BottomUp(small_config(48, 11)).train()
    train_detector.unfreeze(model)
    losses = losses_of(model, *next(batches(data, 2, "cpu")))
    assert set(losses) == {"objectness", "anchor_deltas", "classes", "box_deltas", "attributes"}
    sum(losses.values()).backward()
    still = [
        name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0
    ]
    assert still == []


def test_training_lowers_the_loss_and_repeats_by_its_seed(scenes, tmp_path):
    whole = read_annotated(scenes, "train")
    data = dataclasses.replace(whole, truths=whole.truths[:4])
    params = Training(epochs=3, batch=2, lr=3e-3)
    model, history = train(data, params)
    assert sum(history[-1].values()) < 0.8 * sum(history[0].values()), history
    assert model.state_dict().keys() == BottomUp(model.config).state_dict().keys(), (
        "norms are folded"
    )
    again, _ = train(data, params)
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True)
    )


def test_a_loss_that_is_no_number_stops(scenes):
    with pytest.raises(InputError, match="the loss is"):
        train(read_annotated(scenes, "train"), Training(epochs=1, batch=2, lr=1e30))


def test_precision_of_the_truth_is_one_and_of_nothing_zero(scenes, monkeypatch):
    """The yardstick itself: a detector that says the truth."""
    data = read_annotated(scenes, "test")
    model = BottomUp(small_config(48, 11)).eval()
    told = iter(data.truths)

    def truth(regions, image):
        objects = next(told).rescale(image.shape[1] / 224, "cpu")
        return objects.boxes.numpy(), [1.0] * len(objects.boxes), objects.classes.tolist()

    monkeypatch.setattr(scene_objects, "detections", truth)
    found = measure(model, data)
    assert found.ap > 0.999 and found.ap50 > 0.999
    assert found.objects == sum(len(one.boxes) for one in data.truths)
    monkeypatch.setattr(scene_objects, "detections", lambda regions, image: ([], [], []))
    assert measure(model, data).ap == 0


def test_a_trained_detector_is_written_with_its_names_and_figures(scenes, tmp_path, monkeypatch):
    trained = BottomUp(small_config(48, 11)).eval()
    monkeypatch.setattr(train_detector, "train", lambda *_, **__: (trained, []))
    found = train_detector.train_and_measure(
        scenes, tmp_path / "small.safetensors", Training(epochs=1, batch=4)
    )
    model, facts = load_bottom_up(tmp_path / "small.safetensors")
    assert facts["classes"][0] == "dog" and facts["attributes"][0] == "red"
    again = measure(model, read_annotated(scenes, "test"))
    assert dataclasses.asdict(again) == {
        key: value for key, value in found.items() if key != "losses"
    }


def test_the_detector_of_the_package_finds_what_is_there(tmp_path):
    """Scenes of a world it was not trained on; docs/regions.md has the figures of a thousand."""
    captions(
        tmp_path,
        CaptionsParams(
            source="scenes",
            scenes=ScenesParams(train=0, val=0, test=20, captions_per_image=1, seed=5),
        ),
    )
    weights = DETECTORS["scenes"].weights
    assert weights is not None and weights.stat().st_size <= 8 * 2**20
    found = measure(load_bottom_up(weights)[0], read_annotated(tmp_path, "test"))
    assert found.ap50 > 0.8 and found.proposal_recall > 0.95
    assert found.class_accuracy > 0.85 and found.attribute_accuracy > 0.9


def boxes_of(rng, n, side=100):
    corner = rng.integers(0, side - 20, (n, 2))
    return torch.tensor(
        np.concatenate([corner, corner + rng.integers(8, 60, (n, 2))], 1), dtype=torch.float32
    )


def truth_of(rng, n):
    return Truth(
        boxes_of(rng, n), torch.tensor(rng.integers(1, 9, n)), torch.tensor(rng.integers(1, 4, n))
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_what_is_learnt_from_is_chosen_by_the_rule_and_within_its_limits(seed, objects):
    rng = np.random.default_rng(seed)
    anchors, truth = boxes_of(rng, 80), truth_of(rng, objects)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_detector, "ANCHORS", 10**6)
        labels, boxes = label_anchors(anchors, truth, (90, 80))
        patch.setattr(train_detector, "ANCHORS", 12)
        few, _ = label_anchors(anchors, truth, (90, 80))
        patch.setattr(train_detector, "REGIONS", 24)
        regions, chosen = sample_regions(anchors[:60], truth)
    inside = (anchors[:, 2] < 80) & (anchors[:, 3] < 90)
    overlap = iou(anchors, truth.boxes) * inside[:, None]
    of_object = overlap.amax(dim=0)
    for a, best in enumerate(overlap.amax(dim=1)):
        best_of_one = ((overlap[a] == of_object) & (of_object > 0)).any()
        assert labels[a] == (
            1 if best >= 0.7 or best_of_one else 0 if inside[a] and best < 0.3 else IGNORE
        )
        assert not inside[a] or iou(anchors[a : a + 1], boxes[a : a + 1]) == best
    assert (
        (few == 1).sum() <= 6
        and (few >= 0).sum() <= 12
        and ((few == labels) | (few == IGNORE)).all()
    )
    assert len(regions) <= 24 and 0 < (chosen.classes > 0).sum() <= 12, (
        "true boxes are among the candidates"
    )
    overlap = iou(regions, truth.boxes)
    for r, best in enumerate(overlap.amax(dim=1)):
        covered = next(g for g in range(objects) if torch.equal(truth.boxes[g], chosen.boxes[r]))
        assert overlap[r, covered] == best and chosen.attributes[r] == truth.attributes[covered]
        assert chosen.classes[r] == (truth.classes[covered] if best >= 0.5 else 0)


def test_folded_norms_give_what_the_trained_ones_give_in_eval_mode():
    torch.manual_seed(0)
    model = make_backbone(BottomUpConfig(width=0.125, blocks=(1, 2, 1, 1)))
    train_detector.unfreeze(model)
    for _ in range(3):  # statistics of this data, away from 0 and 1
        model.train()(torch.randn(4, 3, 64, 64) * 50 + 20)
    norms = [layer for layer in model.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    for norm in norms:
        torch.nn.init.uniform_(norm.bias, -0.2, 0.2)
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    x = torch.randn(2, 3, 80, 64) * 50
    before = model.eval()(x)
    train_detector.freeze(model)
    assert len(norms) > 9 and not {*norms} & {*model.modules()}
    torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-4)


def test_the_command_says_what_is_wrong_in_one_line(scenes, tmp_path, monkeypatch):
    line = [
        "train_detector",
        "--captions",
        str(scenes),
        "--out",
        str(tmp_path / "o"),
        "--device",
        "gpu",
    ]
    monkeypatch.setattr("sys.argv", line)
    with pytest.raises(
        SystemExit, match="unknown device 'gpu' -> choose from: auto, cpu, cuda, cuda:N"
    ):
        train_detector.main()
