"""Our own checkpoint file: round trips to the bit, and what a damaged one is told."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpConfig
from capgrade.pipelines.detectors.checkpoint import (
    convert,
    load_bottom_up,
    save_bottom_up,
)
from capgrade.pipelines.detectors.faster_rcnn import ProposalRule
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest
from tests.conftest import ROOT

CONFIG = BottomUpConfig(
    n_classes=3,
    n_attributes=2,
    width=0.0625,
    blocks=(1, 2, 1, 1),
    rpn_channels=8,
    conventions="airsplay",
    proposals=ProposalRule(after_nms=7, min_side=3.5),
    embedding=4,
    attribute_hidden=5,
    anchor_scales=(2, 4.5),
    short_side=100,
)
NAMES = {"classes": ["cat", "dog", "naïve café"], "attributes": ["red", "wet"]}


@pytest.fixture
def model():
    torch.manual_seed(3)
    return BottomUp(CONFIG)


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "model.safetensors"
    save_bottom_up(model, path, **NAMES, metadata={"note": "kept"})
    return path


def test_a_round_trip_keeps_every_bit_the_configuration_and_the_names(model, saved):
    loaded, facts = load_bottom_up(saved)
    assert not loaded.training and loaded.config == CONFIG
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(model.anchors, loaded.anchors)
    expected = {
        "layout": "capgrade",
        "digest": digest(saved),
        "n_classes": 3,
        "n_attributes": 2,
        **NAMES,
    }
    assert facts == expected
    with safe_open(saved, framework="pt") as file:
        stored = json.loads(file.metadata()["capgrade"])
    assert stored["note"] == "kept" and stored["config"]["proposals"]["min_side"] == 3.5


def test_files_with_a_key_for_each_fact_are_read(saved):
    """As older versions wrote them."""
    model, facts = load_bottom_up(saved)
    with safe_open(saved, framework="pt") as file:
        stored = json.loads(file.metadata()["capgrade"])
    metadata = {key: json.dumps(stored[key]) for key in ("config", "classes", "attributes")}
    save_file(load_file(saved), saved, {"format": "capgrade", "note": "kept", **metadata})
    again, same_facts = load_bottom_up(saved)
    assert again.config == model.config
    assert {**same_facts, "digest": ""} == {**facts, "digest": ""}


def test_keys_of_older_versions_are_passed_over():
    """The small detector's file was written by one: its configuration has keys that are gone."""
    model = load_bottom_up(ROOT / "pipelines" / "detectors" / "scenes.safetensors")[0]
    assert (model.config.width, model.config.n_classes, model.config.proposals.after_nms) == (
        0.25,
        48,
        100,
    )


def test_equal_models_give_equal_bytes_and_tensors_need_not_be_contiguous(model, saved, tmp_path):
    model.head.cls_score.weight.data = model.head.cls_score.weight.data.t().contiguous().t()
    assert not model.head.cls_score.weight.is_contiguous()
    save_bottom_up(model, tmp_path / "again", **NAMES, metadata={"note": "kept"})
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()
    model.head.cls_score.bias.data[0] += 1
    save_bottom_up(model, tmp_path / "other", **NAMES, metadata={"note": "kept"})
    assert (tmp_path / "other").read_bytes() != saved.read_bytes()


@pytest.mark.parametrize(
    ("change", "metadata", "told"),
    [
        (lambda t: t.update(extra=torch.zeros(1)), {}, "1 tensors not of this model: extra"),
        (
            lambda t: t.update({"rpn.conv.bias": torch.zeros(8).long()}),
            {},
            "not of real numbers: rpn.conv.bias",
        ),
        (lambda t: [t.pop(name) for name in list(t)[:7]], {}, "7 tensors missing: .* and 2 more"),
        (len, {"config": {"blocks": "many"}}, "configuration that cannot be read .*blocks"),
        (len, {"classes": ["cat"]}, "1 names of 3 classes"),
        (len, {"attributes": 7}, "configuration that cannot be read"),
    ],
)
def test_wrong_tensors_and_metadata_are_named(saved, change, metadata, told):
    with safe_open(saved, framework="pt") as file:
        stored = json.loads(file.metadata()["capgrade"]) | metadata
    tensors = load_file(saved)
    change(tensors)
    save_file(tensors, saved, metadata={"capgrade": json.dumps(stored)})
    with pytest.raises(InputError, match=told) as error:
        load_bottom_up(saved)
    assert error.value.file == saved


def test_truncated_files_are_refused(saved):
    whole = saved.read_bytes()
    for part in (0.0001, 0.01, 0.5, 0.999):
        saved.write_bytes(whole[: max(16, int(len(whole) * part))])
        with pytest.raises(InputError, match="not a whole safetensors file"):
            load_bottom_up(saved)


def test_wrong_names_are_refused_with_their_row(saved, tmp_path):
    vocab = tmp_path / "vocab.txt"
    for content, told in [
        (b"cat\n\nbird\n", "row 2: a line without a name"),
        (b"cat\ndog\n", "2 names where the model has 3"),
        (b"cat\ndog\n\xff\n", "row 3: byte 0xff at position 1 is not UTF-8"),
    ]:
        vocab.write_bytes(content)
        with pytest.raises(InputError, match=told):
            convert(saved, tmp_path / "out", classes_file=vocab)
    assert not (tmp_path / "out").exists()
