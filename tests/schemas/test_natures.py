"""What a parameter is, told by its type: places, how work is done, how far a run goes."""

import ast
import re
import typing
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from capgrade.params import Params, load_params
from capgrade.schemas.errors import InputError
from capgrade.schemas.natures import (
    How,
    Manner,
    Nature,
    PartOf,
    Place,
    Where,
    WhereOrName,
    changed,
    keys_of,
    leaves_of,
    nature_of,
    of_parts,
    recorded,
)
from capgrade.trainer.models import MODELS
from capgrade.trainer.stages.train import ModelFiles
from tests.conftest import ROOT

LEAVES = dict(leaves_of(Params))
# Texts that are no place: names of things that stand in files, and words for people.
TEXTS = re.compile(
    r"(^|\.)(splits?|validation|measure|mixture|preset|detector|name|version|license\w*|language|description"
    r"|authors|date|citation|repository|scale|run|tokenizer|prompt|of|measures|runs|metric|pooling"
    r"|revision|config|boxes|part|image_column|image_id|caption_id|caption|image_file|candidate"
    r"|references|score|format|direction|stand_in|precision|best_by|also_best_by|loss)$"
)
HOW = re.compile(
    r"(^|\.)(device|\w*workers|block_\w+|exchange|timeout|retries|parallel|per_minute|host|port"
    r"|memory|cache|out)$"
)


def has_text(kind: Any) -> bool:
    """Whether any text may be a value."""
    if kind is str:
        return True
    if typing.get_origin(kind) is typing.Literal:
        return False
    arguments = typing.get_args(kind)
    return any(map(has_text, arguments[1:] if typing.get_origin(kind) is dict else arguments))


@pytest.mark.parametrize("key", LEAVES)
def test_a_key_that_looks_like_a_place_or_how_has_that_nature(key: str) -> None:
    field, nature = LEAVES[key], nature_of(LEAVES[key])
    if HOW.search(key):
        assert isinstance(nature, Manner), f"{key} is a How"
    elif has_text(field.annotation) and not TEXTS.search(key):
        named = "its type says what it is: Where, How, or a name that TEXTS lists"
        assert isinstance(nature, Place), f"{key}: {named}"


def test_the_options_of_models_that_name_files_are_those_of_the_block() -> None:
    """A model's options are no block; every text among them is a choice or one of `ModelFiles`."""
    for model in MODELS.values():
        kind = typing.get_type_hints(model.__init__)["config"]
        hints = typing.get_type_hints(kind)
        texts = {field.name for field in fields(kind) if has_text(hints[field.name])}
        assert texts <= {*ModelFiles.model_fields}, kind


def test_no_list_of_keys_by_hand_stands_beside_the_types() -> None:
    """Two places or more, or two of how, as texts in one collection, are such a list."""
    allowed = {"pipelines/detectors/catalogue.py"}  # what a detector does not read
    folders = ("capgrade", "schemas", "pipelines", "trainer", "apps")
    for nature in (Place, Manner):
        keys = {key for key, field in LEAVES.items() if isinstance(nature_of(field), nature)}
        names = {key.rpartition(".")[2] for key in keys}
        for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
            if path.relative_to(ROOT).as_posix() in allowed:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Set | ast.List | ast.Tuple):
                    texts = {one.value for one in node.elts if isinstance(one, ast.Constant)}
                    of_keys = len(texts & keys) > 1 or (texts <= names and len(texts) > 1)
                    assert not of_keys, f"{path}:{node.lineno}"


class Inner(BaseModel):
    model: WhereOrName = "name"
    threads: How[int] = 1
    depth: int = 2


class Outer(BaseModel):
    file: Where | None = None
    files: tuple[Where, ...] = ()
    by_name: dict[str, Where] = {}
    inner: Inner | None = None
    several: dict[str, Annotated[dict[str, Any], PartOf(Inner)]] = {}
    listed: tuple[Inner, ...] = ()


def test_every_leaf_is_met_through_blocks_unions_lists_and_mappings() -> None:
    found: dict[str, Nature | None] = {}
    tree = {
        "file": "a",
        "files": ["b", "c"],
        "by_name": {"x": "d"},
        "inner": {"model": "e", "depth": 3, "unknown": 1},
        "several": {"y": {"threads": 4, "base": "z"}},
        "listed": [{"model": "f"}],
    }

    def note(key: str, nature: Nature | None, value: Any) -> Any:
        found[key] = nature
        return value

    assert changed(Outer, tree, note) == tree
    assert {key for key, nature in found.items() if isinstance(nature, Place)} == {
        "file", "files", "by_name", "inner.model", "listed.0.model",
    }  # fmt: skip
    assert found["several.y.threads"] == Manner() and found["inner.depth"] is None
    assert [key for key, _ in leaves_of(Outer)] == [
        "file", "files", "by_name", "inner.model", "inner.threads", "inner.depth",
        "several.*.model", "several.*.threads", "several.*.depth",
        "listed.*.model", "listed.*.threads", "listed.*.depth",
    ]  # fmt: skip
    assert keys_of(Inner, Place) == ["model"] and keys_of(Inner, Manner) == ["threads"]


def test_what_parts_depend_on_and_what_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    given = ["regions.images=/d/pictures", f"regions.model={tmp_path}/m", "regions.workers=7"]
    block = load_params(None, [*given, "regions.config=COCO/x", "regions.split=val"]).regions
    parts, told = of_parts(block), recorded(block)
    assert (parts["images"], parts["model"], parts["config"]) == (None, None, "COCO/x")
    assert "workers" not in parts and "split" not in parts and "workers" not in told
    assert (told["images"], told["model"], told["split"]) == ("pictures", "m", "val")
    frequencies = load_params(None, ["measures.cider.document_frequency=/a/coco#train"]).measures
    assert frequencies.used(["cider"])["cider"]["document_frequency"] == "coco#train"


def test_paths_of_a_file_are_relative_to_it_and_those_of_options_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, here = tmp_path / "project", tmp_path / "here"
    for folder in (project / "encoder", here):
        folder.mkdir(parents=True)
    (project / "params.yaml").write_text(
        """
captions: {source: webdataset, input: ["d/{0..3}.tar", ../e.tar], scenes: {train: 3}}
regions: {model: someone/vit, features: f.npy, format: npy}
align: {images: https://HOST/x}
measures: {sbert: {model: encoder}, imported: {mine: m.npy}, cider: {document_frequency: c#val}}
presets: {own: {base: triplet, init: data/runs/x, model: {options: {words: xavier}}}}
judge: {prompt: [ask.yaml]}
"""
    )
    monkeypatch.chdir(here)
    found = load_params(Path("../project/params.yaml"), ["embed.coarse=s.npy"])
    at = str(project)
    assert found.captions.input == (f"{at}/d/{{0..3}}.tar", f"{tmp_path}/e.tar")
    assert (found.align.images, found.regions.model) == ("https://HOST/x", "someone/vit")
    assert found.regions.features == (f"{at}/f.npy",)
    assert found.measures.sbert.model == f"{at}/encoder"
    assert found.measures.imported == {"mine": f"{at}/m.npy"}
    assert found.measures.cider.document_frequency == f"{at}/c#val"
    assert found.presets["own"]["init"] == f"{at}/data/runs/x"
    assert found.presets["own"]["model"]["options"]["words"] == "xavier"
    assert found.embed.coarse == "s.npy" and found.judge.prompt == ("ask.yaml",)
    (here / "ask.yaml").touch()
    with pytest.raises(InputError, match=r"judge.prompt is 'ask.yaml', which lies in the current"):
        load_params(Path("../project/params.yaml"))
