"""Other people's checkpoints, written out by hand under their names, against what their networks
compute."""

import pickle

import numpy as np
import pytest
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from capgrade.pipelines.detectors.checkpoint import convert, load_bottom_up
from capgrade.pipelines.detectors.layouts import CELL_ANCHORS
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest
from tests.published_weights import (
    ATTRIBUTES,
    CLASSES,
    Network,
    Writer,
    as_arrays,
    caffe_anchors,
    detectron_anchors,
)


def net_message():
    """caffe.proto's NetParameter, LayerParameter, BlobProto and BlobShape, by google's library."""
    file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package="caffe", syntax="proto2")
    for name, fields in {
        "BlobShape": [("dim", 1, 3, 3, "")],
        "BlobProto": [("shape", 7, 1, 11, "BlobShape"), ("data", 5, 3, 2, "")],
        "LayerParameter": [
            ("name", 1, 1, 9, ""),
            ("type", 2, 1, 9, ""),
            ("phase", 10, 1, 13, ""),
            ("blobs", 7, 3, 11, "BlobProto"),
        ],
        "NetParameter": [
            ("name", 1, 1, 9, ""),
            ("layer", 100, 3, 11, "LayerParameter"),
            ("old", 2, 3, 9, ""),
        ],
    }.items():
        message = file.message_type.add(name=name)
        for field, number, label, kind, of in fields:
            added = message.field.add(name=field, number=number, label=label, type=kind)
            if of:
                added.type_name = f".caffe.{of}"
            elif label == 3:
                added.options.packed = kind != 9
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.NetParameter"))


def caffemodel(tensors):
    net = net_message()(name="ResNet-101")
    net.layer.add(name="data", type="Input", phase=1)
    for name, blobs in tensors.items():
        layer = net.layer.add(name=name, type="Convolution")
        for blob in blobs:
            added = layer.blobs.add(data=blob.numpy().ravel().tolist())
            added.shape.dim.extend(blob.shape)
    return net.SerializeToString()


def write(path, layout, tensors, kind="", anchors=None):
    """A file as its authors wrote it; `kind` names a variant of it."""
    beside = {} if anchors is None else {CELL_ANCHORS: anchors}
    if layout == "milvlg":
        tracked = {
            f"{k[:-12]}num_batches_tracked": torch.tensor(7)
            for k in tensors
            if ".res4." in k and "mean" in k
        }
        content = {"model": {**tensors, **tracked, **beside}, "iteration": 4}
        torch.save(content, path, _use_new_zipfile_serialization=kind != "old")
    elif layout == "airsplay":
        beside |= {"pixel_mean": torch.zeros(3, 1, 1), "pixel_std": torch.ones(3, 1, 1)}
        content = {
            "model": as_arrays({**tensors, **beside}),
            "__author__": "airsplay",
            "matching_heuristics": True,
        }
        path.write_bytes(pickle.dumps(content, protocol=5 if kind == "new" else 2))
    else:
        path.write_bytes(
            pickle.dumps(as_arrays(tensors)) if kind == "lists" else caffemodel(tensors)
        )
    return path


def assert_same(model, writer, theirs):
    """Every output of one forward pass, anchor by anchor and class by class, within 1e-5."""
    network = Network(writer)
    torch.manual_seed(9)
    images = 100 * torch.rand(1, 3, 100, 132) - 50
    features, expected = model.backbone(images), network.backbone(images)
    close(features, expected)
    objects, deltas = network.rpn(expected)
    logits, ours = (x.reshape(*expected.shape[2:], 12, -1) for x in model.rpn.logits(features))
    order = [(model.anchors - anchor).abs().sum(dim=1).argmin().item() for anchor in theirs]
    assert sorted(order) == list(range(12))
    assert torch.equal(model.anchors[order], theirs)
    close(logits.softmax(-1)[..., order, 1].permute(2, 0, 1), objects)
    close(ours[..., order, :].permute(2, 3, 0, 1), deltas)
    boxes = torch.tensor([[0.0, 0, 60, 70], [20, 10, 120, 90], [90, 40, 131, 99]])
    regions = model.describe(features, [(boxes, torch.ones(3))])[0]
    rois = torch.cat([torch.zeros(3, 1), boxes], dim=1)
    vectors, classes, background, moves, attributes, none = network.head(expected, rois)
    close(regions.features, vectors)
    close(regions.classes, torch.cat([background[:, None], classes], dim=1))
    close(regions.deltas.unflatten(1, (-1, 4))[:, 1:], moves)
    close(regions.attributes, torch.cat([none[:, None], attributes], dim=1))


def close(ours, theirs):
    scale = theirs.abs().max()
    assert 1e-3 < scale < 1e3  # nothing has died out or blown up
    assert (ours.double() - theirs).abs().max() <= 1e-5 * max(scale, 1)


CASES = {
    "caffemodel": ("caffe", "", None, caffe_anchors),
    "caffe, a pickle of lists": ("caffe", "lists", None, caffe_anchors),
    "milvlg": ("milvlg", "", None, caffe_anchors),
    "milvlg, by torch 1.4": ("milvlg", "old", None, caffe_anchors),
    "milvlg, anchors in another order": ("milvlg", "", lambda: size_by_size(caffe_anchors()), None),
    "airsplay": ("airsplay", "", None, detectron_anchors),
    "airsplay, by numpy 2": ("airsplay", "new", detectron_anchors, None),
    "airsplay, Caffe's anchors": ("airsplay", "", caffe_anchors, None),
}


def size_by_size(anchors):
    """Ratio by ratio to size by size."""
    return anchors.reshape(3, 4, 4).transpose(0, 1).reshape(12, 4)


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_a_published_file_computes_what_its_own_network_does(tmp_path, case):
    layout, kind, anchors, assumed = CASES[case]
    writer = Writer(layout)
    path = write(tmp_path / "weights", layout, writer.tensors, kind, anchors and anchors())
    model, facts = load_bottom_up(path)
    counts = {"n_classes": CLASSES, "n_attributes": ATTRIBUTES, "classes": None, "attributes": None}
    assert facts == {"layout": layout, "digest": digest(path), **counts}
    assert model.config.blocks == (2, 3, 3, 2) and not model.training
    rounded = case == "airsplay, Caffe's anchors"
    expected = {"airsplay": "airsplay_rounded" if rounded else "airsplay"}.get(layout, "caffe")
    assert model.config.conventions == expected
    assert_same(model, writer, (anchors or assumed)())


@torch.no_grad()
@pytest.mark.parametrize("layout", ["airsplay", "caffe"])
def test_a_file_without_an_attribute_head(tmp_path, layout):
    """airsplay's faster_rcnn_from_caffe.pkl: all the same but attributes, also after a
    conversion."""
    writer = Writer(layout)
    whole, _ = load_bottom_up(write(tmp_path / "whole", layout, writer.tensors))
    head = ("cls_embed", "fc_attr", "attr_score", "attr_linear")
    bare = {name: t for name, t in writer.tensors.items() if not any(part in name for part in head)}
    assert len(writer.tensors) - len(bare) == (3 if layout == "caffe" else 5)
    model, facts = load_bottom_up(write(tmp_path / "bare", layout, bare))
    assert (facts["n_classes"], facts["n_attributes"]) == (CLASSES, 0)
    convert(tmp_path / "bare", tmp_path / "bare.safetensors")
    again, _ = load_bottom_up(tmp_path / "bare.safetensors")
    images = 100 * torch.rand(1, 3, 100, 132, generator=torch.Generator().manual_seed(9)) - 50
    expected, *found = ([*each(images, [1.0])][0] for each in (whole, model, again))
    for one in found:
        assert one.attributes is None and len(one.boxes) > 5
        assert all(
            torch.equal(getattr(one, k), getattr(expected, k))
            for k in ("boxes", "features", "classes")
        )
    names = tmp_path / "attributes_vocab.txt"
    names.write_text("red\n")
    with pytest.raises(InputError, match="1 names where the model has 0"):
        convert(tmp_path / "bare", tmp_path / "x.safetensors", attributes_file=names)


def test_a_factor_of_zero_leaves_no_statistics(tmp_path):
    writer = Writer("caffe")
    writer.tensors["bn_conv1"][2].zero_()
    state = load_bottom_up(write(tmp_path / "w", "caffe", writer.tensors))[0].state_dict()
    weight, bias = writer.tensors["scale_conv1"]
    assert torch.allclose(state["backbone.stem.conv1.scale"], weight / 1e-5**0.5)
    assert torch.equal(state["backbone.stem.conv1.shift"], bias)


@pytest.mark.parametrize("layout", ["caffe", "milvlg", "airsplay"])
def test_wrong_tensors_are_named_as_in_the_file(tmp_path, layout):
    name, norm = {
        "caffe": ("rpn_conv/3x3", "bn4b1_branch2a"),
        "milvlg": (
            "proposal_generator.rpn_head.conv.weight",
            "backbone.res4.1.conv1.norm.running_var",
        ),
        "airsplay": ("roi_heads.box_predictor.fc_attr.weight", "roi_heads.res5.0.shortcut.weight"),
    }[layout]

    def first(value):
        return value[0] if isinstance(value, list) else value

    def misshapen(tensors):
        value = tensors[norm]
        tensors[norm] = [t[:-1] for t in value] if isinstance(value, list) else value[:-1]

    for change, told in [
        (lambda t: t.pop(name), f"tensors missing: .*{name}"),
        (misshapen, f"misshapen: .*{norm}.* is "),
        (lambda t: first(t[norm]).view(-1)[1].fill_(float("nan")), f"not finite: {norm}"),
    ]:
        tensors = Writer(layout).tensors
        change(tensors)
        path = write(tmp_path / "w", layout, tensors)
        with pytest.raises(InputError, match=told) as error:
            load_bottom_up(path)
        assert error.value.file == path


def test_negative_variances_and_unknown_anchors_are_refused(tmp_path):
    tensors = Writer("milvlg").tensors
    with pytest.raises(InputError, match="other anchors than caffe's"):
        load_bottom_up(write(tmp_path / "w", "milvlg", tensors, anchors=detectron_anchors()))
    with pytest.raises(InputError, match="other anchors than airsplay's"):
        load_bottom_up(
            write(
                tmp_path / "w", "airsplay", Writer("airsplay").tensors, anchors=caffe_anchors()[:11]
            )
        )
    tensors["backbone.res2.0.conv1.norm.running_var"][0] = -1
    with pytest.raises(
        InputError, match="not finite: backbone.res2.0.conv1.scale, backbone.res2.0.conv1.shift"
    ):
        load_bottom_up(write(tmp_path / "w", "milvlg", tensors))


@pytest.mark.parametrize("case", ["caffemodel", "milvlg", "milvlg, by torch 1.4", "airsplay"])
def test_truncated_files_are_refused(tmp_path, case):
    layout, kind = CASES[case][:2]
    path = write(tmp_path / "w", layout, Writer(layout).tensors, kind)
    whole = path.read_bytes()
    for part in (20, len(whole) // 3, len(whole) - 1):
        path.write_bytes(whole[:part])
        with pytest.raises(InputError) as error:
            load_bottom_up(path)
        assert error.value.file == path


def test_files_of_other_things_are_refused(tmp_path):
    old = net_message()(name="net", old=["layers of an older Caffe"]).SerializeToString()
    for content, told in [
        (pickle.dumps([1, 2]), "no tensors by name"),
        (pickle.dumps({"model": {}}), "no tensors by name"),
        (pickle.dumps({"model": {"a": "text"}}), "a is no tensor but str"),
        (pickle.dumps({"model": {"a": np.array(["text"])}}), "an array of 'U4', not of numbers"),
        (
            pickle.dumps({"model": {"layer1.0.weight": np.ones(2)}}),
            "no layout .* it has layer1.0.weight",
        ),
        (old, "no layers of caffe.proto's present form"),
        *(
            (content, "neither a safetensors, torch, pickle nor Caffe")
            for content in (b"", b"\0", b"<html>none</html>")
        ),
    ]:
        (tmp_path / "w").write_bytes(content)
        with pytest.raises(InputError, match=told):
            load_bottom_up(tmp_path / "w")
    with pytest.raises(InputError, match="no such file"):
        load_bottom_up(tmp_path / "none")


@torch.no_grad()
def test_a_converted_file_is_the_same_model_with_names(tmp_path):
    path = write(
        tmp_path / "w.pkl", "airsplay", Writer("airsplay").tensors, anchors=caffe_anchors()
    )
    (tmp_path / "objects_vocab.txt").write_text("yolk\ngoal\nbathroom,washroom\nmacaroni\numpire")
    (tmp_path / "attributes_vocab.txt").write_text("floral\nout of focus,blurry\nred\n")
    out = tmp_path / "out.safetensors"
    files = {
        "classes_file": tmp_path / "objects_vocab.txt",
        "attributes_file": tmp_path / "attributes_vocab.txt",
    }
    assert convert(path, out, **files) == {
        "layout": "airsplay",
        "n_classes": CLASSES,
        "n_attributes": ATTRIBUTES,
    }
    (before, _), (after, facts) = load_bottom_up(path), load_bottom_up(out)
    assert before.config == after.config and torch.equal(before.anchors, after.anchors)
    assert all(torch.equal(x, after.state_dict()[name]) for name, x in before.state_dict().items())
    assert facts["classes"] == ["yolk", "goal", "bathroom", "macaroni", "umpire"]
    assert facts["attributes"] == ["floral", "out of focus", "red"]
