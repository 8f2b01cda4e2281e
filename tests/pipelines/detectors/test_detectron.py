"""detectron2's models behind our interface: without detectron2 one line, with it a tiny C4 and FPN
end to end."""

import dataclasses
import importlib
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from capgrade.boxes import decode_boxes
from capgrade.pipelines.detectors import detectron
from capgrade.pipelines.detectors.checkpoint import load_bottom_up
from capgrade.pipelines.detectors.detectron import DetectronDetector, convert_predictions
from capgrade.schemas.errors import InputError
from tests.capgrade.test_pickles import WRITERS, Runs
from tests.tiny_detector import SELECTIONS

TINY = {
    "MODEL.RESNETS.RES2_OUT_CHANNELS": 16,
    "MODEL.RESNETS.STEM_OUT_CHANNELS": 8,
    "MODEL.RESNETS.WIDTH_PER_GROUP": 4,
    "MODEL.ROI_HEADS.NUM_CLASSES": 5,
    "MODEL.ROI_BOX_HEAD.FC_DIM": 32,
    "MODEL.RPN.POST_NMS_TOPK_TEST": 60,
    "INPUT.MIN_SIZE_TEST": 128,
    "INPUT.MAX_SIZE_TEST": 200,
}


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ModuleNotFoundError("No module named 'detectron2'", name="detectron2"),
            "detectron2 is not installed",
        ),
        (ModuleNotFoundError("No module named 'fvcore'", name="fvcore"), "detectron2 needs fvcore"),
        (
            RuntimeError("operator torchvision::nms does not exist\nmore"),
            "does not import \\(operator torchvision::nms",
        ),
    ],
)
def test_absence_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, says: str) -> None:
    def fails(name: str) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", fails)
    with pytest.raises(InputError, match=f"{says}.* -> .*--detector bottom_up") as raised:
        DetectronDetector(
            "COCO-Detection/faster_rcnn_R_50_C4_1x", "model.pkl", SELECTIONS["adaptive"]
        )
    assert "\n" not in str(raised.value)
    assert (detectron.INSTALL in str(raised.value)) == ("not installed" in says)


def test_predictions_are_ours() -> None:
    """Background moves to the front, deltas lose their weights; rows go to their pictures."""
    logits, deltas = torch.randn(5, 4), torch.randn(5, 12)
    weights = (10.0, 10.0, 5.0, 5.0)
    corners = [torch.rand(n, 2) * 50 for n in (3, 2)]
    boxes = [SimpleNamespace(tensor=torch.cat([corner, corner + 20], dim=1)) for corner in corners]
    proposals = [SimpleNamespace(proposal_boxes=each) for each in boxes]

    def predictor(_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return logits, deltas

    predictor.box2box_transform = SimpleNamespace(weights=weights)  # type: ignore[attr-defined]
    predictor.predict_probs = lambda said, _: said[0].softmax(dim=1).split([3, 2])  # type: ignore[attr-defined]
    found = convert_predictions(predictor, torch.rand(5, 8), proposals)
    assert [len(each.features) for each in found] == [3, 2]
    for i, (region, row) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]):
        each = found[region]
        expected = logits[i].softmax(dim=0)
        torch.testing.assert_close(each.classes[row], expected[[3, 0, 1, 2]])
        x1, y1, x2, y2 = each.boxes[row].tolist()
        # of class 1, our number 2
        dx, dy, dw, dh = (deltas[i, 4:8] / torch.tensor(weights)).tolist()
        w, h = (x2 - x1) * np.exp(dw), (y2 - y1) * np.exp(dh)
        cx, cy = (x1 + x2) / 2 + dx * (x2 - x1), (y1 + y2) / 2 + dy * (y2 - y1)
        moved = decode_boxes(each.boxes[row][None], each.deltas[row][None], caffe=False)[0, 8:12]
        np.testing.assert_allclose(
            moved.numpy(), [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], atol=1e-3
        )
        assert each.attributes is None


def there() -> None:
    try:
        detectron.require_detectron2()
    except InputError as absent:
        pytest.skip(absent.problem)


def make_files(folder: Path, kind: str, **changes: Any) -> tuple[str, Path]:
    """A config and a checkpoint of a tiny random model."""
    from detectron2.config import get_cfg
    from detectron2.modeling import build_model

    cfg = get_cfg()
    cfg.merge_from_file(str(detectron.find_config(f"COCO-Detection/faster_rcnn_R_50_{kind}_1x")))
    merged = TINY | {"MODEL.DEVICE": "cpu", "MODEL.WEIGHTS": ""} | changes
    cfg.merge_from_list([item for pair in merged.items() for item in pair])
    (folder / "model.yaml").write_text(cfg.dump())
    torch.manual_seed(0)
    model = build_model(cfg)
    torch.nn.init.normal_(model.roi_heads.box_predictor.cls_score.weight, std=1)
    torch.save({"model": model.state_dict()}, folder / "model.pth")
    return str(folder / "model.yaml"), folder / "model.pth"


HOSTILE = {
    "the file": {"top.yaml": "MODEL: !!python/object/apply:os.mkdir ['{marker}']\n"},
    "its base": {"top.yaml": "_BASE_: middle.yaml\n", "middle.yaml": "_BASE_: [base.yaml]\n",
                 "base.yaml": "A: !!python/object/apply:os.system ['touch {marker}']\n"},
}  # fmt: skip


def hostile_config(folder: Path, where: str) -> str:
    for name, text in HOSTILE[where].items():
        (folder / name).write_text(text.format(marker=folder / "ran"))
    return str(folder / "top.yaml")


@pytest.mark.parametrize("kind", WRITERS)
def test_no_code_of_weights_is_run(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("w.pkl" if kind == "pickle" else "w.pth")
    WRITERS[kind]({"model": {"a": np.zeros(2, np.float32)}, "more": Runs(tmp_path / "ran")}, path)
    with pytest.raises(
        InputError, match=f"{path.name}: a (pickle|torch file) of more than .*, not read: it names"
    ):
        detectron.read_weights(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("where", HOSTILE)
def test_no_code_of_a_config_is_run(where: str, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="not a detectron2 config .*could not determine a constructor"
    ):
        detectron.list_config_files(Path(hostile_config(tmp_path, where)))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("base", "says"),
    [
        (
            "https://example.org/base.yaml",
            "starts from https://example.org/base.yaml, which is no file",
        ),
        ("none.yaml", "starts from none.yaml, which is no file"),
        ("top.yaml", "starts from itself"),
        ("[a.yaml, 3]", "_BASE_ is neither"),
    ],
)
def test_bases_are_files_on_the_disk(base: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("VERSION: 2\n")
    (tmp_path / "top.yaml").write_text(f"_BASE_: {base}\n")
    with pytest.raises(InputError, match=says):
        detectron.list_config_files(tmp_path / "top.yaml")


def test_weights_of_the_zoo_are_read(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "zoo.pkl").write_bytes(
        pickle.dumps({"model": {"a": array}, "__author__": "Detectron2 Model Zoo"})
    )
    (tmp_path / "caffe2.pkl").write_bytes(
        pickle.dumps({"blobs": {"a_w": array, "a_w_momentum": array}}, protocol=2)
    )
    torch.save({"a": torch.from_numpy(array)}, tmp_path / "state.pth")
    zoo, caffe2, state = (
        detectron.read_weights(tmp_path / n) for n in ("zoo.pkl", "caffe2.pkl", "state.pth")
    )
    for found, name in ((zoo, "a"), (caffe2, "a_w"), (state, "a")):
        assert list(found["model"]) == [name]
        np.testing.assert_array_equal(np.asarray(found["model"][name]), array)
    assert caffe2["matching_heuristics"] and not zoo.get("matching_heuristics")
    (tmp_path / "text.pkl").write_bytes(pickle.dumps({"model": {"a": "text"}}))
    with pytest.raises(InputError, match="a is no array but str"):
        detectron.read_weights(tmp_path / "text.pkl")


def picture(height: int = 90, width: int = 120) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize(("kind", "features"), [("C4", 128), ("FPN", 32)])
@pytest.mark.parametrize("rule", sorted(SELECTIONS))
def test_picture_to_detections(tmp_path: Path, kind: str, features: int, rule: str) -> None:
    there()
    detector = DetectronDetector(*make_files(tmp_path, kind), SELECTIONS[rule], proposals=20)
    assert detector.n_features == features and detector.classes is None
    image, scale = pickle.loads(pickle.dumps(detector.prepare))(picture())
    assert image.shape == (3, 128, 171) and scale == 171 / 120
    first, second = detector.detect(
        torch.stack([image, image.flip(2)]), [scale] * 2, [(120, 90)] * 2, ["a", "b"]
    )
    assert (
        len(first) > 5
        and first.attributes is None
        and first.features.shape == (len(first), features)
    )
    assert first.boxes.min() >= 0 and (first.boxes.max(axis=0) <= [121, 91, 121, 91]).all()
    assert first.classes.max() < 5 and not np.array_equal(first.boxes, second.boxes)
    assert len(detector.describe_proposals(image[None], [scale])[0].boxes) == 20


@pytest.mark.parametrize("kind", ["C4", "FPN"])
@pytest.mark.parametrize("switch", [None, "CLS_AGNOSTIC_BBOX_REG", "USE_SIGMOID_CE"])
def test_scores_and_boxes_are_detectron2_s(tmp_path: Path, kind: str, switch: str | None) -> None:
    """Of every region and class, when detectron2 suppresses nothing."""
    there()
    nothing = {"MODEL.ROI_HEADS.NMS_THRESH_TEST": 1.0, "MODEL.ROI_HEADS.SCORE_THRESH_TEST": 0.0}
    changes = {
        "TEST.DETECTIONS_PER_IMAGE": 10**6,
        **({f"MODEL.ROI_BOX_HEAD.{switch}": True} if switch else {}),
    }
    detector = DetectronDetector(
        *make_files(tmp_path, kind, **nothing, **changes), SELECTIONS["adaptive"]
    )
    image, scale = detector.prepare(picture())
    # scores between 0 and 1
    torch.nn.init.normal_(detector.model.roi_heads.box_predictor.cls_score.weight, std=1e-3)
    with torch.inference_mode():
        theirs = detector.model.inference([{"image": image}], do_postprocess=False)[0]
        ours = detector.describe_proposals(image[None], [scale])[0]
    assert ours.deltas is not None
    scores, order = ours.classes[:, 1:].flatten().sort(descending=True, stable=True)
    boxes = (
        decode_boxes(ours.boxes, ours.deltas, caffe=False)
        .unflatten(1, (-1, 4))[:, 1:]
        .flatten(0, 1)[order]
    )
    boxes = torch.minimum(boxes.clamp(min=0), boxes.new_tensor([171, 128, 171, 128]))
    assert len(theirs) == len(scores) > 100
    torch.testing.assert_close(scores, theirs.scores)
    torch.testing.assert_close(boxes, theirs.pred_boxes.tensor, rtol=1e-4, atol=1e-3)


def test_bottom_up_computes_what_detectron2_does(tmp_path: Path) -> None:
    """The same proposals, features, classes and moves, of one file in airsplay's layout: a C4 model
    whose first pool and last stage are Caffe's."""
    there()
    from detectron2.modeling.backbone.resnet import BottleneckBlock, ResNet

    changes = {
        "MODEL.ANCHOR_GENERATOR.SIZES": [[64, 128, 256, 512]],
        "MODEL.ROI_BOX_HEAD.POOLER_TYPE": "ROIPool",
        "MODEL.RESNETS.RES2_OUT_CHANNELS": 32,
        "MODEL.RESNETS.WIDTH_PER_GROUP": 8,
        "MODEL.RPN.CONV_DIMS": [32],
    }
    detector = DetectronDetector(*make_files(tmp_path, "C4", **changes), SELECTIONS["airsplay"])
    model = detector.model
    stem = detector.model.backbone.stem
    random = torch.Generator().manual_seed(0)
    stem.forward = lambda x: functional.max_pool2d(
        stem.conv1(x).relu(), 3, stride=2, ceil_mode=True
    )
    wide = {"in_channels": 128, "bottleneck_channels": 64, "out_channels": 256, "norm": "FrozenBN"}
    res5 = ResNet.make_stage(
        BottleneckBlock, 3, stride_per_block=[1, 1, 1], stride_in_1x1=True, dilation=2, **wide
    )
    model.roi_heads.res5 = torch.nn.Sequential(*res5)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if ".norm." in name:  # statistics that differ, and activations of about 1
                spread = torch.rand(tensor.shape, generator=random)
                size = 1 / 64 if "stem" in name else 0.3 if "conv3" in name else 1.0
                tensor.copy_(
                    {"weight": size * (0.8 + 0.4 * spread), "running_var": 0.5 + spread}.get(
                        name.rsplit(".", 1)[1], 0.1 * (spread - 0.5)
                    )
                )
    predictor, rpn = model.roi_heads.box_predictor, model.proposal_generator.rpn_head
    for layer, std in (
        (predictor.cls_score, 0.5),
        (predictor.bbox_pred, 0.3),
        (rpn.objectness_logits, 0.3),
        (rpn.anchor_deltas, 0.05),
    ):
        torch.nn.init.normal_(layer.weight, std=std, generator=random)
    torch.save({"model": model.state_dict()}, tmp_path / "airsplay.pth")
    ours, facts = load_bottom_up(tmp_path / "airsplay.pth")
    assert facts["layout"] == "airsplay" and facts["n_classes"] == 5
    limits = dataclasses.replace(ours.config.proposals, after_nms=60)
    ours.config = dataclasses.replace(ours.config, proposals=limits)

    image = torch.from_numpy(picture(250, 331).transpose(2, 0, 1).astype(np.float32))
    with torch.inference_mode():
        (theirs,) = detector.describe_proposals(image[None], [1.0])
        (own,) = ours(model.preprocess_image([{"image": image}]).tensor, [1.0])
    assert len(own.boxes) == len(theirs.boxes) > 20 and own.classes[:, 1:].amax(dim=1).std() > 0.01
    torch.testing.assert_close(own.boxes, theirs.boxes, rtol=0, atol=1e-3)
    for name in ("features", "classes", "deltas"):
        torch.testing.assert_close(getattr(own, name), getattr(theirs, name), rtol=1e-4, atol=1e-5)


def test_narrow_pictures(tmp_path: Path) -> None:
    there()
    prepare = DetectronDetector(*make_files(tmp_path, "C4"), SELECTIONS["adaptive"]).prepare
    for height, width, shape in ((1, 1, (128, 128)), (2, 150, (3, 200)), (150, 2, (200, 3))):
        image, scale = prepare(picture(height, width))
        assert image.shape == (3, *shape)
        assert scale * max(height, width) == pytest.approx(
            max(shape)
        )  # boxes end where the picture does
    with pytest.raises(InputError, match="5000 x 1 pixels are too narrow"):
        prepare(picture(1, 5000))


BAD = {
    "": "not a detectron2 config",
    "- a\n": "not a detectron2 config",
    "VERSION: x\n": "not a detectron2 config",
    "VERSION: 2\nMODEL: null\n": "not a detectron2 config",
    "VERSION: 2\nINPUT: {FORMAT: L}\n": "pictures as L",
    "VERSION: 2\nMODEL: {META_ARCHITECTURE: Mine}\n": "no model of this config .*Mine",
    "VERSION: 2\nMODEL: {RESNETS: {DEPTH: 51}}\n": "no model of this config",
    "VERSION: 2\nMODEL: {ROI_HEADS: {NUM_CLASSES: -3}}\n": "no model of this config",
}


@pytest.mark.parametrize("text", BAD)
def test_configs_that_no_model_can_have(text: str, tmp_path: Path) -> None:
    there()
    _, weights = make_files(tmp_path, "C4")
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(InputError, match=f"bad.yaml: {BAD[text]}") as raised:
        DetectronDetector(str(tmp_path / "bad.yaml"), weights, SELECTIONS["adaptive"])
    assert "\n" not in str(raised.value) and len(raised.value.problem) < 250


def test_what_cannot_be_loaded_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there()
    # detectron2.model_zoo needs it; newer setuptools lack it
    monkeypatch.setitem(sys.modules, "pkg_resources", None)
    config, weights = make_files(tmp_path, "C4")
    rule = SELECTIONS["adaptive"]
    with pytest.raises(InputError, match="no such checkpoint"):
        DetectronDetector(config, tmp_path / "none.pth", rule)
    with pytest.raises(InputError, match="not a detectron2 config"):
        DetectronDetector("COCO-Detection/none", weights, rule)
    state = torch.load(weights)["model"]
    torch.save({"model": {k: v for k, v in state.items() if "cls_score" not in k}}, weights)
    with pytest.raises(
        InputError,
        match="lacks 2 parameters of the config, such as roi_heads.box_predictor.cls_score",
    ):
        DetectronDetector(config, weights, rule)
    torch.save({"model": {k: v for k, v in state.items() if "running_mean" not in k}}, weights)
    with pytest.raises(InputError, match="lacks .* such as backbone.stem.conv1.norm.running_mean"):
        DetectronDetector(config, weights, rule)
    torch.save(
        {"model": {k: v * np.nan if "cls_score" in k else v for k, v in state.items()}}, weights
    )
    with pytest.raises(InputError, match="cls_score.weight is not finite"):
        DetectronDetector(config, weights, rule)
    conv = {"MODEL.ROI_BOX_HEAD.NUM_FC": 0, "MODEL.ROI_BOX_HEAD.NUM_CONV": 1}
    (tmp_path / "conv").mkdir()
    zoo = (
        "Misc/cascade_mask_rcnn_R_50_FPN_1x",
        "COCO-Detection/fast_rcnn_R_50_FPN_1x",
        "COCO-Detection/rpn_R_50_C4_1x",
    )
    for name in (*zoo, make_files(tmp_path / "conv", "FPN", **conv)[0]):
        with pytest.raises(InputError, match="no region with a single vector"):
            DetectronDetector(name, weights, rule)
    torch.save({"model": {}, "more": Runs(tmp_path / "ran")}, weights)
    with pytest.raises(InputError, match="not read: it names"):
        DetectronDetector(config, weights, rule)
    for where in HOSTILE:
        with pytest.raises(InputError, match="not a detectron2 config"):
            DetectronDetector(hostile_config(tmp_path, where), weights, rule)
    assert not (tmp_path / "ran").exists()
