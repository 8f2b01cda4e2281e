"""What the columns hold and the card says of them: who judged, own pairs, how values come about,
what they mean; and Parquet as `datasets` writes it, with chunks that stay when rows move."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pycocoevalcap.rouge.rouge import Rouge

import capgrade
from capgrade.agreement.calibration import load_calibration
from capgrade.labels import Labels
from capgrade.measures import MEASURES
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.agree import agree
from capgrade.pipelines.publish import card as card_module
from capgrade.pipelines.publish import tables
from capgrade.pipelines.publish.card import cell
from capgrade.pipelines.publish.check import check
from capgrade.pipelines.publish.folder import publish
from capgrade.pipelines.publish.tables import meaning
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.agree import AgreeParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.arrow import ArrowFile, metadata_of, with_metadata, write_arrow
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, entry_of, read_manifest
from capgrade.schemas.shards import read_shards
from tests.conftest import agreement, edit_manifest, write_matrix

from .conftest import BOTH, PARAMS
from .conftest import MEASURES as MADE_WITH

FIGURES = {
    "cider": {
        "pearson": {"all": 0.5, "non_original": 0.25},
        "spearman": {"all": 0.4},
        "kendall": {},
    }
}


def card(made: Path, out: Path, agreement: dict | None = None, **params: object) -> str:
    file = out.with_name("agreement.json") if agreement else None
    if file:
        file.write_text(json.dumps(agreement))
    told = PARAMS.model_copy(update=params)
    publish(made / "captions", [made / "train"], out, told, agreement=file)
    return (out / "README.md").read_text(encoding="utf-8")


def test_own_pairs_are_published_without_themselves_too(made: Path, tmp_path: Path) -> None:
    """Against pycocoevalcap's ROUGE-L of a caption and the other captions of its image."""
    said = card(made, tmp_path / "out")
    captions, own = read_captions(made / "captions", "train"), []
    texts = dict(zip(captions.caption_ids, captions.texts, strict=True))
    for pair in pq.read_table(tmp_path / "out" / "relevance").to_pylist():
        others = [
            text
            for c, text in texts.items()
            if c.startswith(f"{pair['image_id']}#") and c != pair["caption_id"]
        ]
        if not pair["original"] or not others:
            assert pair["rouge_l_left_out"] is None and pair["cider_left_out"] is None
            continue
        expected = Rouge().calc_score([texts[pair["caption_id"]]], others)
        assert pair["rouge_l_left_out"] == pytest.approx(expected, abs=1e-6)
        assert pair["rouge_l"] == 1
        own.append(pair["rouge_l_left_out"])
    assert (
        "self_reference: included" in said
        and "`rouge_l_left_out` hold own pairs the other way" in said
    )
    assert (
        f"| rouge_l | 1.000 | 1.000 | {np.median(own):.3f} | {min(own):.3f} |" in said.splitlines()
    )


@pytest.fixture(scope="module")
def imported(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of a matrix of somebody else, also in a mixture; nobody needs the file any more."""
    root = tmp_path_factory.mktemp("imported")
    np.save(
        root / "m.npy",
        np.zeros((13, read_captions(made / "captions", "train").n_captions), np.float32),
    )
    params = ShardsParams(split="train", measures=("mixed", "theirs"), top=2, uniform=2)
    theirs, mixed = {"theirs": str(root / "m.npy")}, {"mixed": {"rouge_l": 0.5, "theirs": 0.5}}
    shards(
        made / "captions", root / "theirs", params, MeasuresParams(imported=theirs, mixtures=mixed)
    )
    (root / "m.npy").unlink()
    return root


def test_the_other_form_is_left_out_where_it_is_not_wanted_or_not_there(
    made: Path, imported: Path, tmp_path: Path
) -> None:
    said = card(made, tmp_path / "out", left_out=False)
    assert "_left_out`" not in said and "Here: `included`." in said
    publish(made / "captions", [imported / "theirs"], tmp_path / "imported", PARAMS)
    said = (tmp_path / "imported" / "README.md").read_text(encoding="utf-8")
    assert "_left_out`" not in said and "relevance that another program computed" in said


def test_shards_of_before_say_what_they_lack(made: Path, tmp_path: Path) -> None:
    """Those of format 1 have no values of own captions without themselves; all else is read and
    published."""
    old = tmp_path / "old"
    shutil.copytree(made / "train", old)
    files = read_shards(old).files
    for path in files:
        table = ArrowFile(path).read_all()
        facts = {**metadata_of(table.schema), "format": 1}
        table = table.select(
            [name for name in table.schema.names if not name.endswith("_left_out")]
        )
        write_arrow(path, with_metadata(table.schema, facts), table.to_batches())
    edit_manifest(old, files={path.name: entry_of(path, rows=13) for path in files})
    assert (
        read_shards(old).left_out("cider") is None
        and read_shards(made / "train").left_out("cider") is not None
    )
    with pytest.raises(
        InputError, match="without themselves -> make the shards again, or publish without"
    ) as error:
        publish(made / "captions", [old], tmp_path / "out", PARAMS)
    assert str(error.value).startswith(str(old))
    said = PARAMS.model_copy(update={"left_out": False})
    for name, folder in {"train": made / "train", "old": old}.items():
        publish(made / "captions", [folder], tmp_path / f"of {name}", said)
    new, before = (
        read_manifest(tmp_path / f"of {name}", "publish")["files"] for name in ("train", "old")
    )
    tables = [name for name in new if name.endswith(".parquet")]
    assert tables and all(new[name]["sha256"] == before[name]["sha256"] for name in tables)


@pytest.mark.parametrize(("other", "sentence"), [
    ({"by": "people"}, "## Agreement with human judgements\n"),
    ({"by": "truth"}, "## Agreement with the truth of the scenes, not with people\n"),
    ({"by": "values"}, "## Agreement with another matrix, not with people\n"),
    ({"split": "val"}, "on split `val` of these captions. **Published here is `train`**, which was not judged."),
    ({"captions": "0" * 64}, "of **other captions** than those published here"),
])  # fmt: skip
def test_the_card_says_who_judged_and_what(
    other: dict, sentence: str, made: Path, tmp_path: Path
) -> None:
    digest = read_captions(made / "captions", "train").digest
    facts = {"by": "people", "file": "f", "pairs": 7, "split": "train", "captions": digest, **other}
    figures = {"judgements": facts, "params": MADE_WITH.used(["cider"]), "measures": FIGURES}
    said = card(made, tmp_path / "out", figures)
    assert sentence in said and "| cider | 0.500 | 0.250 | 0.400 | – |" in said
    assert said.count("human judgements") == (facts["by"] == "people")
    assert ("which is published here" in said) == ("by" in other)
    assert "--shards shards-train --agreement agreement.json --out dataset" in said
    analysis = json.loads((tmp_path / "out" / "croissant.json").read_text())[
        "rai:dataAnnotationAnalysis"
    ]
    assert ("of other captions than these" in analysis) == ("captions" in other)


@pytest.mark.parametrize(("block", "told"), [
    ({"cider": {"sigma": 5.0}}, None),
    ({"cider": {"sigma": 5.0}, "rouge_l": {"references": "mean"}}, "rouge_l has other parameters than in train"),
    ({"cider": {"sigma": 20.0}, "rouge_l": {"beta": 2.0}}, "cider and rouge_l have other parameters than in train"),
])  # fmt: skip
def test_agreement_is_of_the_published_measures(
    block: dict[str, Any], told: str | None, made: Path, tmp_path: Path
) -> None:
    """Those of other parameters are refused, and other measures' are not asked for."""
    judged, out = made / "dense" / "rouge_l.arrow", tmp_path / "agree"
    measures = MeasuresParams.model_validate({**block, "bleu": {"n": 2}})
    agreement(made / "captions", judged, [*BOTH, "bleu"], measures, out=out, split="train")
    given = out / "agreement.json"
    if told is None:
        publish(made / "captions", [made / "train"], tmp_path / "out", PARAMS, agreement=given)
        said = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
        assert "\n| bleu | " in said and "\n| rouge_l | " in said
        return
    with pytest.raises(
        InputError, match=f"{told} -> make it with those of train: .*, or leave it out"
    ) as error:
        publish(made / "captions", [made / "train"], tmp_path / "out", PARAMS, agreement=given)
    assert str(error.value).startswith(str(given))
    assert not (tmp_path / "out").exists()


def test_own_pairs_of_agreement_are_valued_as_the_published_ones(
    made: Path, tmp_path: Path
) -> None:
    digest, params = read_captions(made / "captions", "train").digest, MADE_WITH.used(["cider"])
    params["cider"]["self_reference"] = "left_out"
    facts = {"by": "people", "file": "f", "pairs": 7, "split": "train", "captions": digest}
    with pytest.raises(InputError, match="cider has other parameters than in train"):
        card(made, tmp_path / "out", {"judgements": facts, "params": params, "measures": FIGURES})


def test_agreement_that_does_not_say_its_parameters(made: Path, tmp_path: Path) -> None:
    """As files were before they had them."""
    digest = read_captions(made / "captions", "train").digest
    facts = {"by": "people", "file": "f", "pairs": 7, "split": "train", "captions": digest}
    with pytest.raises(InputError, match="does not say with which parameters cider was .* -> make"):
        card(made, tmp_path / "out", {"judgements": facts, "measures": FIGURES})
    with pytest.raises(InputError, match="not agreement figures of captions"):
        card(made, tmp_path / "out", {"judgements": facts, "params": 3, "measures": FIGURES})


def test_who_judged_is_read_off_the_judgements(made: Path, tmp_path: Path) -> None:
    captions = read_captions(made / "captions", "val")
    (tmp_path / "scores.csv").write_text(
        "image_id,caption_id,score\nvi0,vi0#0,4\n", encoding="utf-8"
    )

    def who(file: Path) -> dict[str, Any]:
        of = AgreeParams(judgements=str(file), split="val", measures=("rouge_l",))
        found = agree(made / "captions", None, of, measures=MeasuresParams()).judgements
        assert found is not None
        return found

    found = who(tmp_path / "scores.csv")
    facts = {
        "by": "people",
        "file": "scores.csv",
        "pairs": 1,
        "split": "val",
        "captions": captions.digest,
    }
    assert found == facts
    for measure, by in (("truth", "truth"), ("rouge_l", "values")):
        write_matrix(
            tmp_path / "dense.arrow",
            np.zeros((3, 4), np.float32),
            captions.image_ids,
            measure=measure,
        )
        found = who(tmp_path / "dense.arrow")
        assert (found["by"], found["pairs"]) == (by, 12)


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_says_how_its_value_comes_about(name: str) -> None:
    said = meaning(name, MeasuresParams().used([name]))
    assert "reference" in said and "another program" not in said


@pytest.mark.parametrize(("name", "sbert", "parts"), [
    ("sbert", "max", ["the largest over the references"]),
    ("sbert", "mean", ["the mean over the references"]),
    ("bleu", "mean", ["BLEU-2"]),
    ("people", "mean", ["weighted sum: 0.53 `sbert` (cosine of ", " + 0.23 `scene_graph` (F-score"]),
])  # fmt: skip
def test_the_meaning_follows_the_parameters(name: str, sbert: str, parts: list[str]) -> None:
    given = MeasuresParams.model_validate({"sbert": {"references": sbert}, "bleu": {"n": 2}})
    said = meaning(name, given.used([name]))
    assert all(part in said for part in parts)


def test_a_hostile_caption_stays_in_its_cell() -> None:
    assert cell("a | <b>\n[x](y) `c`") == "a \\| \\<b\\> \\[x\\]\\(y\\) \\`c\\`"


@pytest.fixture(scope="module")
def world(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibration of one of two measures, and what is published with it."""
    folder: Path = tmp_path_factory.mktemp("calibrated")
    judged, out = made / "dense" / "rouge_l.arrow", folder / "agree"
    given: dict[str, Any] = {"split": "train", "calibrate": True, "accept": 0.3}
    agreement(made / "captions", judged, ["rouge_l"], MeasuresParams(), out=out, **given)
    out = (out / "calibration.json").rename(folder / "calibration.json")
    told = PARAMS.model_copy(update={"calibration": str(out)})
    publish(made / "captions", [made / "train"], folder / "out", told)
    return folder


def test_columns_are_the_curves_at_each_value(world: Path) -> None:
    table = pq.read_table(world / "out" / "relevance")
    curve = load_calibration(world / "calibration.json").curves["rouge_l"]
    for name, curve_values in (("score", curve.score), ("accepted", curve.accepted)):
        expected = np.interp(table["rouge_l"].to_numpy(), curve.value, curve_values)
        assert table[f"rouge_l_{name}"].to_numpy() == pytest.approx(expected)
    assert not {"cider_score", "cider_accepted"} & set(table.column_names)
    assert (
        not table["rouge_l_score"].null_count and table["original"].to_numpy().any()
    )  # own pairs too


def test_the_manifest_and_the_card_say_which_calibration(made: Path, world: Path) -> None:
    sha, manifest = digest(world / "calibration.json"), read_manifest(world / "out", "publish")
    facts = manifest["calibration"]
    assert (
        facts["sha256"] == sha == manifest["inputs"]["calibration"]
        and facts["file"] == "calibration.json"
    )
    assert facts["judgements"]["file"] == "rouge_l.arrow" and facts["judgements"]["sha256"]
    assert facts["accept"] == 0.3 and facts["package"] and facts["measures"]["rouge_l"]["ece"] >= 0
    assert facts["columns"] == {"rouge_l_score": "rouge_l", "rouge_l_accepted": "rouge_l"}
    said = (world / "out" / "README.md").read_text()
    assert sha in said and "## What a value means to people" in said
    assert "# calibration.json: what `capgrade agree --calibrate` wrote" in said
    assert "  calibration: calibration.json\n" in said
    assert "| `rouge_l_accepted` | float32 | probability" in said
    assert not any(str(place) in said + json.dumps(manifest) for place in (made, world))
    assert '/rouge_l_accepted"' in (world / "out" / "croissant.json").read_text()
    assert not check(str(world / "out"), None).problems


def test_the_one_that_comes_with_capgrade_is_named_in_the_commands(
    made: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs the commands of the card has no crisscrossed.json, and has the name."""
    for one in (tables, card_module):
        monkeypatch.setattr(one, "SHIPPED", world / "calibration.json")
    told = PARAMS.model_copy(update={"calibration": str(world / "calibration.json")})
    publish(made / "captions", [made / "train"], tmp_path / "out", told)
    said = (tmp_path / "out" / "README.md").read_text()
    assert "  calibration: calibration\n" in said and "# calibration" not in said


def test_labels_load_them_beside_the_measures(world: Path) -> None:
    labels = Labels.load(world / "out")
    assert labels.measures == [*BOTH, "rouge_l_accepted", "rouge_l_score"]
    curve = load_calibration(world / "calibration.json").curves["rouge_l"]
    some = labels.image_ids[:4], labels.caption_ids
    values, known, _ = labels.block(*some, "rouge_l")
    accepted, also, _ = labels.block(*some, "rouge_l_accepted")
    assert (known == also).all() and known.any()
    assert accepted[known] == pytest.approx(curve.probability(values[known]), abs=1e-6)
    assert Labels.load(world / "out", measures=["rouge_l_score"]).measures == ["rouge_l_score"]
    with pytest.raises(
        InputError, match="rouge_l_accepted is known of published pairs alone -> ask for rouge_l"
    ):
        capgrade.exact(labels, "rouge_l_accepted")
    assert capgrade.exact(labels, "rouge_l").block(*some)[1].all()


def test_a_calibration_that_does_not_fit(made: Path, world: Path, tmp_path: Path) -> None:
    found = json.loads((world / "calibration.json").read_text())
    found["params"]["rouge_l"]["beta"] = 7.0
    (tmp_path / "c.json").write_text(json.dumps(found))

    with pytest.raises(InputError, match="rouge_l has other parameters than in c.json"):
        told = PARAMS.model_copy(update={"calibration": str(tmp_path / "c.json")})
        publish(made / "captions", [made / "train"], tmp_path / "out", told)
    assert not (tmp_path / "out" / "manifest.json").exists()


ROWS, INSERTED, BATCH = 400_000, 101, 10_000


def test_every_column_has_a_page_index(made: Path) -> None:
    files = list((made / "out").glob("*/*.parquet"))
    assert len(files) == 4
    for file in files:
        metadata = pq.ParquetFile(file).metadata
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            columns = [group.column(k) for k in range(group.num_columns)]
            assert all(one.has_offset_index and one.has_column_index for one in columns)


def written(table: pa.Table, path: Path) -> bytes:
    """By small batches, as of shards."""
    assert (
        tables.write_parquet(path, table.schema, iter(table.to_batches(BATCH)))[0] == table.num_rows
    )
    assert pq.read_table(path).equals(table)
    return path.read_bytes()


def share_kept(old: bytes, new: bytes) -> float:
    """The part of 500 places in the new file whose next 64 bytes stand somewhere in the old one."""
    starts = np.linspace(0, len(new) - 64, 500, dtype=int)
    return float(np.mean([new[start : start + 64] in old for start in starts]))


@pytest.mark.parametrize("chunked", [True, False])
def test_most_bytes_stay_where_rows_are_put_in_at_the_beginning(
    chunked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Xet does not send again (https://huggingface.co/blog/parquet-cdc); without chunks by
    content it sends nearly all. The first rows are repeated, as new values would number the
    dictionaries anew, which no chunking helps against."""
    monkeypatch.setitem(tables.AS_DATASETS, "use_content_defined_chunking", chunked)
    rng = np.random.default_rng(0)
    captions, values = rng.integers(0, 5000, (2, ROWS))
    table = pa.table(
        {"caption_id": captions.astype(str), "rouge_l": (values / 5000).astype(np.float32)}
    )
    old = written(table, tmp_path / "old.parquet")
    new = written(pa.concat_tables([table.slice(0, INSERTED), table]), tmp_path / "new.parquet")
    share = share_kept(old, new)
    assert share > 0.7 if chunked else share < 0.1


def test_groups_have_so_many_rows_however_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP", 25_000)
    table = pa.table({"row": np.arange(60_000)})
    written(table, tmp_path / "small.parquet")
    metadata = pq.ParquetFile(tmp_path / "small.parquet").metadata
    assert [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)] == [
        25_000,
        25_000,
        10_000,
    ]


@pytest.mark.parametrize(
    "layout", [{}, {"layout": "mteb", "measure": "rouge_l", "grades": {"related": 0.5}}]
)
def test_splits_of_other_parameters_are_refused(made: Path, tmp_path: Path, layout: dict) -> None:
    """A card and a manifest tell of one kind of labels."""
    blocks = {"cider": {"sigma": 5.0}, "rouge_l": {"references": "mean"}}
    kept = ShardsParams(split="val", measures=BOTH, top=2, uniform=3)
    shards(made / "captions", tmp_path / "val", kept, MeasuresParams.model_validate(blocks))
    told = PARAMS.model_copy(update=layout)
    with pytest.raises(InputError, match="/val: rouge_l: other parameters than in the first"):
        publish(made / "captions", [made / "train", tmp_path / "val"], tmp_path / "out", told)
    assert not (tmp_path / "out").exists()
