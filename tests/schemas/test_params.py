"""params.yaml: the repository's own file, and one clear error for each thing that can be wrong in
one."""

from pathlib import Path

import pytest

from capgrade.params import load_params
from capgrade.pipelines.options import load
from capgrade.schemas.errors import InputError
from tests.conftest import ROOT


def test_the_repository_s_params_are_valid() -> None:
    assert load_params(ROOT / "params.yaml").publish.license == "apache-2.0"


def test_overrides_win(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("shards: {top: 3}")
    params = load_params(
        tmp_path / "p.yaml",
        ["shards.top=9", "publish.date=2026-11-27", r'publish.name="\ud83d\ude00"'],
    )
    assert (params.shards.top, params.publish.date, params.publish.name) == (9, "2026-11-27", "😀")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "shards: {tpo: 3}",
            (r"p.yaml: unknown parameter 'shards.tpo' -> near it: top"),
        ),
        (
            "shard: {}",
            "unknown parameter 'shard' -> near it: shards",
        ),
        (
            "shards: {top: -1}",
            "parameter 'shards.top' is -1: Input should be greater than or equal to 0",
        ),
        (
            "shards: {windows: {width: 2}}",
            "parameter 'shards.windows.width' is 2: Input should be less than or equal to 1",
        ),
        (
            "measures: {scene_graph: {attached: 1.0e-20}}",
            "measures.scene_graph.attached is 1e-20: give 0, or 1e-6 and more",
        ),
        (
            "measures: {scene_graph: {relations: 1.0e+20}}",
            r"'measures.scene_graph.relations' is 1e\+20: Input should be less",
        ),
        (
            "measures: {scene_graph: {beta: 1.0e+20}}",
            r"'measures.scene_graph.beta' is 1e\+20: Input should be less",
        ),
        (
            "captions: {tokenizer: nltk}",
            "parameter 'captions.tokenizer' is 'nltk' -> choose from: ptb_py, ptb",
        ),
        ("captions: {source: coco}", "source coco needs an input"),
        (
            "presets: [sam]\ntrain: {preset: sam}",
            r"parameter 'presets' is \['sam'\]: Input should be",
        ),
        (
            "train: {preset: [sam]}",
            r"unknown preset '\['sam'\]' -> near it: sam; all: capgrade list presets",
        ),
        ("shards: [1", "not valid YAML"),
        ("- 1", "not a mapping"),
        (
            "shards: {top: 1}\ntrain: {}\nshards: {top: 2}",
            "not valid YAML: 'shards' stands twice in one block, in line 1",
        ),
        (
            "train:\n  model:\n    name: vse\n    name: scan\n",
            "'name' stands twice in one block, in line 3 or below",
        ),
        ("publish: {date: 2024-13-45}", "not valid YAML: month must be in 1..12"),
        (r'publish: {name: "\ud83d"}', "not valid YAML: 'utf-16"),
        (
            "publish: {grades: {fits: .nan}}",
            "'publish.grades.fits' is nan: Input should be a finite number",
        ),
        (
            "publish: {version: 1.0}",
            "parameter 'publish.version' is 1.0: .* -> give text in quotes",
        ),
        (
            "publish: {authors: Ada}",
            r"parameter 'publish.authors' is 'Ada': .* -> give a list, \[ONE, TWO\]",
        ),
        ("shards: " + "[" * 5000, "not valid YAML: "),
        (
            "shards: {uniform: 10000000000000000000000}",
            "parameter 'shards.uniform' is 1.*: Input should be less than",
        ),
        (
            "shards: {windows: {stride: 0.00001}}",
            "'shards.windows.stride' is 1e-05: Input should be greater",
        ),
    ],
)
def test_one_error_names_file_key_and_remedy(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        load_params(tmp_path / "p.yaml")


def test_an_option_is_taken_as_it_was_typed_and_the_file_is_not_blamed_for_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "p.yaml").write_text("shards: {top: -1}\ntrain: {preset: sam}\n")
    for text in ("🐕.tsv", "a\x85b\u2028c", "true", "~"):
        assert load(None, [], captions={"source": "tsv", "input": text}).captions.input == text
    with pytest.raises(InputError, match=r"p\.yaml: parameter 'shards.top' is -1"):
        load(tmp_path / "p.yaml", [], shards={"uniform": 3})
    for sets, options, message in (
        (["shards.top=-2"], {}, "parameter 'shards.top' is -2"),
        ([], {"shards": {"top": -2}}, "parameter 'shards.top' is -2"),
        ([], {"captions": {"source": "coco"}}, "source coco needs an input"),
        (["shards.windows={width: 2}"], {}, "parameter 'shards.windows.width' is 2"),
        (["shards.tpo=1"], {"shards": {"top": 1}}, "unknown parameter 'shards.tpo'"),
        ([], {"train": {"preset": "sma"}}, "unknown preset 'sma'"),
    ):
        with pytest.raises(InputError, match=f"^{message}"):
            load(tmp_path / "p.yaml", ["shards.top=1", *sets], **options)


def test_an_empty_block_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "shards:\ncaptions:\n  columns:\ntrain:\n  preset: sam\n  model:\n"
    )
    (tmp_path / "same.yaml").write_text("train: {preset: sam}\n")
    assert load_params(tmp_path / "p.yaml") == load_params(tmp_path / "same.yaml")
    assert load_params(tmp_path / "p.yaml", ["shards.top=3"]).shards.top == 3


def test_bad_overrides() -> None:
    with pytest.raises(InputError, match="'shards.top' is not KEY=VALUE"):
        load_params(None, ["shards.top"])
    with pytest.raises(InputError, match="'top' is a value, not a block"):
        load_params(None, ["shards.top=1", "shards.top.x=1"])
    with pytest.raises(InputError, match="no such file"):
        load_params(Path("nowhere.yaml"))


@pytest.mark.parametrize("given", [
    "relevance.block_images=true", "shards.windows.width=yes", "evaluate.k=[1, on]",
    "evaluate.above={sbert: true}", "measures.mixtures={x: {sbert: yes}}", "shards.windows.among=on",
    "captions.divide={val: yes}", "train.clip=off", "measures.bleu.n=true",
])  # fmt: skip
def test_yes_and_on_are_no_numbers(given: str) -> None:
    with pytest.raises(InputError, match=rf"parameter '{given.partition('=')[0]}.* is .*a number"):
        load_params(None, [given])


def test_texts_that_are_numbers_stay_numbers() -> None:
    """YAML reads 1e-3, without a point, as a text."""
    assert load_params(None, ["train.lr=1e-3", "shards.top='64'"]).train.lr == 1e-3


def test_options_of_losses_and_models_take_no_truth_for_a_number() -> None:
    from capgrade.losses import LossTerms
    from capgrade.trainer.models import configure

    for term in ({"margin": True}, {"weight": True}):
        with pytest.raises(InputError, match="is True: Input should be a number"):
            LossTerms([{"name": "triplet", **term}])
    with pytest.raises(InputError, match="options.embed is True: Input should be a number"):
        configure("vse", {"embed": True}, 8, 3)


def test_an_option_that_the_data_decide_is_no_other() -> None:
    """Layers over regions have the width of the regions' vectors, which nothing narrows."""
    from capgrade.trainer.models import configure

    assert configure("teran", {"feature_dim": 8}, 8, 3) == configure("teran", {}, 8, 3)
    said = "options.feature_dim is 256, and 8 in the data -> leave it out"
    with pytest.raises(InputError, match=said):
        configure("teran", {"feature_dim": 256}, 8, 3)


def test_a_key_that_is_not_given_is_as_another_key() -> None:
    """Pictures that a model reads are those that regions are made of, unless others are named."""
    of_regions = load_params(None, ["regions.images=a"])
    assert (of_regions.train.images, load_params().train.images) == ("a", None)
    assert load_params(None, ["regions.images=a", "train.images=b"]).train.images == "b"
