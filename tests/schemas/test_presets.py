"""Presets beside what the authors' files and papers say: authors.yaml, which was read from
these."""

from collections.abc import Iterator
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from capgrade.losses import LossTerms
from capgrade.params import load_params
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import PRESETS, with_preset
from capgrade.trainer.models import configure
from capgrade.trainer.stages.train import TrainParams

AUTHORS = yaml.safe_load((Path(__file__).parent / "authors.yaml").read_text())
SHIPPED = yaml.safe_load(PRESETS.read_text())
# What every preset under a paper's name must have a source or a reason for, set or not.
ALWAYS = (
    "model.name",
    "batch_size",
    "epochs",
    "lr",
    "decay_every",
    "clip",
    "min_count",
    "drop_last",
    "best_by",
)
ALWAYS += ("validation_images",)
HERE = ("base", "model", "loss", "decay_after")  # flattened, or another word for a field


def facts_of(preset: str) -> dict[str, Any]:
    """Field -> its value here, by the groups that hold, of the parts that the preset has."""
    found: dict[str, Any] = {}
    for group in AUTHORS["presets"][preset]["groups"]:
        facts = {key: fact for key, fact in AUTHORS["facts"][group].items() if key != "source"}
        found |= {field: fact[3] if len(fact) > 3 else fact[1] for field, fact in facts.items()}
    return found


def reasons_of(preset: str) -> dict[str, str]:
    return AUTHORS["presets"][preset].get("ours", {})


def value_of(train: TrainParams, field: str) -> Any:
    """Of a field as authors.yaml names it; LookupError where the preset has no such part."""
    first, _, rest = field.partition(".")
    if field == "decay_every":
        ends = [epoch for epoch in train.decay_after if epoch < train.epochs]
        step = train.decay_after[0] if train.decay_after else None
        return (
            step
            if step is None or ends == list(range(step, train.epochs, step))
            else train.decay_after
        )
    if first == "loss":
        name, option = rest.split(".")
        return {"weight": 1.0, **terms(train)[name]}[option]
    if field == "model.name" or first != "model":
        return train.model.name if first == "model" else getattr(train, field)
    return asdict(configure(train.model.name, train.model.options, 2048, 10))[rest]


def terms(train: TrainParams) -> dict[str, dict[str, Any]]:
    return {term["name"] + (f":{term['of']}" if "of" in term else ""): term for term in train.loss}


@pytest.mark.parametrize("preset", SHIPPED)
def test_a_preset_is_what_its_authors_files_say(preset):
    train = load_params(None, [f"train.preset={preset}"]).train
    compared = 0
    for field, theirs in facts_of(preset).items():
        if any(fnmatch(field, pattern) for pattern in reasons_of(preset)):
            continue
        try:
            ours = value_of(train, field)
        except (
            LookupError
        ):  # a host's loss that another stands in for, an option of another model of the repository
            assert field.startswith(("loss.triplet", "model.", "loss.daa")), field
            continue
        compared += 1
        same = (
            ours == pytest.approx(theirs, rel=1e-9)
            if isinstance(theirs, float | int)
            else ours == theirs
        )
        assert same and isinstance(ours, bool) == isinstance(theirs, bool), (
            f"{field}: {ours!r}, theirs {theirs!r}"
        )
    assert compared >= min(5, len(facts_of(preset)))
    LossTerms(train.loss)


def settings(preset: str) -> Iterator[str]:
    """The fields that a preset sets, itself or by its base."""
    found = with_preset({"preset": preset}, {})
    yield from (key for key in found if key not in (*HERE, "preset"))
    yield from ("decay_every" for key in found if key == "decay_after" and found[key])
    yield from (f"model.{key}" for key in found["model"].get("options", {}))
    for term in found["loss"]:
        name = term["name"] + (f":{term['of']}" if "of" in term else "")
        yield from (f"loss.{name}.{key}" for key in term if key != "name")


@pytest.mark.parametrize("preset", SHIPPED)
def test_every_hyper_parameter_has_a_source_or_a_reason(preset):
    known = {*facts_of(preset), *reasons_of(preset)}
    without = [
        field
        for field in {*ALWAYS, *settings(preset)}
        if not any(fnmatch(field, pattern) for pattern in known)
    ]
    assert not without, "cite the authors' line in authors.yaml, or say there why it is ours"


@pytest.mark.parametrize("preset", SHIPPED)
def test_every_reason_is_for_something(preset):
    model = load_params(None, [f"train.preset={preset}"]).train.model
    config = configure(model.name, model.options, 2048, 10)
    fields = {
        *ALWAYS,
        *settings(preset),
        *facts_of(preset),
        *(f"model.{name}" for name in asdict(config)),
    }
    unused = [
        pattern
        for pattern in reasons_of(preset)
        if not any(fnmatch(field, pattern) for field in fields)
    ]
    assert not unused, "a reason for what the preset does not have"


def test_every_fact_is_of_a_preset_and_has_its_place():
    assert AUTHORS["presets"].keys() == SHIPPED.keys()
    used = {group for preset in AUTHORS["presets"].values() for group in preset["groups"]}
    assert used == AUTHORS["facts"].keys()
    for group, facts in AUTHORS["facts"].items():
        source = AUTHORS["sources"][facts["source"]]
        for field, fact in facts.items():
            if field == "source":
                continue
            option, _, place, *ours = fact
            assert option and len(ours) <= 1, (group, field)
            file, _, line = place.rpartition(":")
            assert "paper" in source or (file and int(line) > 0 and len(source["commit"]) == 40), (
                group,
                field,
            )


def test_presets_of_params_yaml_change_single_options(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(
        "presets:\n  small: {base: teran, model: {options: {embed_dim: 64}}}\ntrain: {preset:"
        " small}\n"
    )
    model = load_params(path).train.model
    assert model.name == "teran"
    assert model.options == {"pooling": "MrSw", "shared_joint": False, "embed_dim": 64}


def test_a_preset_upon_itself_is_refused():
    with pytest.raises(InputError, match="stands upon itself"):
        with_preset({"preset": "a"}, {"a": {"base": "b"}, "b": {"base": "a"}})
