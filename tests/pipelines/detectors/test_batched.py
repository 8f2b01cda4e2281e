"""The bottom-up model as a detector: batches, bfloat16 and fewer proposals beside one picture in float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from capgrade.pipelines.detectors.batched import BottomUpDetector
from capgrade.pipelines.detectors.catalogue import make_detector, precision_for, random_model, rule_of
from capgrade.pipelines.detectors.selection import AirsplayRule, Detector, RegionRule, SelectionRule
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import RegionsParams
from tests.tiny_detector import detect, tiny_model

RULE = SelectionRule(5, 8)


def pictures(count: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.integers(0, 256, (96, 128, 3), np.uint8) for _ in range(count)]


def run(detector: Detector, images: list[np.ndarray]) -> list:
    prepared, scales = zip(*map(detector.prepare, images), strict=True)
    return detector.detect(torch.stack(prepared), scales, [(image.shape[1], image.shape[0]) for image in images])


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_batch_is_its_pictures(channels_last: bool) -> None:
    detector = BottomUpDetector(tiny_model(), RULE, channels_last=channels_last)
    images = pictures()
    for found, image in zip(run(detector, images), images, strict=True):
        alone = detect(tiny_model(), image, RULE)
        assert (found.width, found.height) == (128, 96)
        assert (found.classes == alone.classes).all() and (found.attributes == alone.attributes).all()
        np.testing.assert_allclose(found.boxes, alone.boxes, atol=1e-3)
        np.testing.assert_allclose(found.features, alone.features, rtol=1e-3, atol=1e-4)


def test_bfloat16_is_near_float32_on_the_same_boxes() -> None:
    """bfloat16 has 8 bits: the features of given boxes differ by about 1 %; each keeps its direction."""
    image, scale = BottomUpDetector(tiny_model(), RULE).prepare(pictures(1)[0])
    model = tiny_model()
    with torch.inference_mode():
        maps = model.backbone(image[None])
        proposals = model.propose(maps, (image.shape[1], image.shape[2]), [scale])
        expected = model.describe(maps, proposals)[0].features
        with torch.autocast("cpu", torch.bfloat16):
            found = model.describe(model.backbone(image[None]), proposals)[0].features
    assert found.dtype == torch.float32 and not torch.equal(found, expected)
    error = (found - expected).norm() / expected.norm()
    assert error < 0.03, error
    cosine = torch.nn.functional.cosine_similarity(found, expected).min()
    assert cosine > 0.999, cosine
    regions = BottomUpDetector(tiny_model(), RULE, precision="bf16").regions(image[None], [scale])
    assert all(getattr(regions[0], name).dtype == torch.float32 for name in ("boxes", "features", "classes"))


def test_scores_and_boxes_are_computed_in_float32_under_bfloat16() -> None:
    """A class score of 8 bits ties with its neighbours, and a box of 8 bits moves by pixels."""
    detector = BottomUpDetector(tiny_model(), AirsplayRule(6), precision="bf16")
    image, scale = detector.prepare(pictures(1)[0])
    head, (found,) = detector.model.head, detector.regions(image[None], [scale])
    assert found.deltas is not None and found.attributes is not None
    with torch.inference_mode():
        torch.testing.assert_close(found.classes, head.cls_score(found.features).softmax(dim=1), rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(found.deltas, head.bbox_pred(found.features), rtol=1e-5, atol=1e-7)
        with detector.arithmetic():
            features = detector.model.backbone(image[None])
            logits, deltas = detector.model.rpn.logits(features)
    assert features.dtype == torch.bfloat16 and logits.dtype == deltas.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float()) and not torch.equal(deltas, deltas.bfloat16().float())


@pytest.mark.parametrize(("rule", "regressed"), [(RULE, False), (AirsplayRule(6), True)])
def test_boxes_are_regressed_for_a_rule_that_takes_them(rule: RegionRule, regressed: bool) -> None:
    detector, calls = BottomUpDetector(tiny_model(), rule), []
    detector.model.head.bbox_pred.register_forward_hook(lambda *_: calls.append(1))
    assert len(run(detector, pictures())) == 3
    assert bool(calls) == regressed


def test_the_precision_without_a_name() -> None:
    gpu, processor = torch.device("cuda", 0), torch.device("cpu")
    assert precision_for(RegionsParams(), gpu) == "bf16" and precision_for(RegionsParams(), processor) == "float32"
    assert precision_for(RegionsParams(precision="tf32"), gpu) == "tf32"
    assert precision_for(RegionsParams(detector="detectron2"), gpu) == "float32"
    with pytest.raises(InputError, match="precision is tf32 on device cpu -> use float32 or bf16, or a GPU"):
        make_detector(RegionsParams(precision="tf32", device="cpu"))


def test_fewer_proposals_are_the_first_ones() -> None:
    """Their number changes what there is to choose from, not the features."""
    image, scale = BottomUpDetector(tiny_model(), RULE).prepare(pictures(1)[0])
    many, few = (
        BottomUpDetector(tiny_model(), RULE, proposals=count).regions(image[None], [scale])[0] for count in (20, 7)
    )
    assert (len(many.boxes), len(few.boxes)) == (20, 7)
    torch.testing.assert_close(few.boxes, many.boxes[:7])
    torch.testing.assert_close(few.features, many.features[:7], rtol=1e-3, atol=1e-4)


def test_out_of_memory_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = BottomUpDetector(tiny_model(), RULE)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(detector, "regions", full)
    with pytest.raises(InputError, match=r"cpu is out of memory with 3 pictures of \(64, 85\) -> lower regions.batch"):
        run(detector, pictures())


def test_random_weights_follow_their_seed() -> None:
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    first, again, other = (random_model(seed).backbone.res2[0].conv1.weight for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_small_detector_takes_no_weights() -> None:
    with pytest.raises(InputError, match="x.pth: detector scenes has weights of its own -> give --detector bottom_up"):
        make_detector(RegionsParams(weights="x.pth"))


def test_what_detectron2_needs() -> None:
    with pytest.raises(InputError, match="detector detectron2 needs a config and a checkpoint -> give --weights FILE"):
        make_detector(RegionsParams(detector="detectron2", weights="x.pkl"))
    with pytest.raises(InputError, match="detector detectron2 runs in float32, not compiled"):
        make_detector(RegionsParams(detector="detectron2", weights="x.pkl", config="x.yaml", precision="bf16"))


def test_rules_by_name() -> None:
    assert rule_of(RegionsParams(boxes="10-100", confidence=0.3)) == SelectionRule(10, 100, confidence=0.3)
    assert rule_of(RegionsParams(boxes="20", selection="airsplay")) == AirsplayRule(20)
