"""Judgements of other kinds: pairs of captions, pairs of images, ECCV Caption's positives, a
review's folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from capgrade.agreement.calibration import scale_of
from capgrade.agreement.curve import Scale
from capgrade.agreement.judgement_files import (
    OTHERS,
    eccv_judgements,
    judged_digest,
    read_judgements,
    read_people,
)
from capgrade.agreement.judgements import Judgements, Within
from capgrade.apps.explorer.plans import write_plan
from capgrade.apps.explorer.ratings import ReviewRatings
from capgrade.measures.params import MeasuresParams
from capgrade.measures.rouge import RougeL, RougeParams
from capgrade.metrics.eccv import read_lists
from capgrade.pipelines.agree import agree
from capgrade.pipelines.stages.agree import AgreeParams
from capgrade.schemas.captions import SCHEMA, Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.reviews import INFORMATION, RATINGS, Item, ReviewPlan
from tests.conftest import (
    agreement,
    caption_table,
    make_captions,
    random_sets,
    write_captions_folder,
)

SETS = random_sets(5, seed=4, least=2, most=4)
IMAGE_IDS = ["100", "200", "300", "400", "500"]
STS = "caption1,caption2,agg_score,sampling_method"
SIS = "image1,image2,agg_score,sampling_method"


def coco_like() -> Captions:
    """SETS with ids as COCO has them: whole numbers."""
    table = caption_table(SETS)
    owner = make_captions(SETS).owner
    ids = {
        "image_id": [IMAGE_IDS[i] for i in owner],
        "caption_id": [str(7 + k) for k in range(len(owner))],
    }
    for name, values in ids.items():
        table = table.set_column(
            table.schema.get_field_index(name), table.schema.field(name), [values]
        )
    return Captions(table, "test", "words", "digest")


def sts(a: int, b: int, score: float) -> str:
    return f"COCO_val2014:sentid:{7 + a},COCO_val2014:sentid:{7 + b},{score},c2c_isim"


def sis(a: int, b: int, score: float) -> str:
    return f"COCO_val2014_{int(IMAGE_IDS[a]):012d}.jpg,COCO_val2014_{int(IMAGE_IDS[b]):012d}.jpg,{score},i2i_csim"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([*lines, ""]))
    return path


def test_captions_with_captions_are_scored_both_ways_by_one_reference(tmp_path: Path) -> None:
    """The reference: every caption as an image of its own, whose reference set it alone is."""
    captions, n = coco_like(), sum(map(len, SETS))
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b][::3]
    judged = read_people(
        write(tmp_path / "sts.csv", STS, *(sts(a, b, 1.5) for a, b in pairs)), captions
    )
    assert isinstance(judged, Within) and judged.of == "captions"
    alone = make_captions([[text] for row in SETS for text in row])
    matrix = RougeL(RougeParams()).fit(alone).score(np.arange(n))
    want = [(matrix[a, b] + matrix[b, a]) / 2 for a, b in pairs]
    assert judged.values(RougeL(RougeParams()).fit(captions), captions) == pytest.approx(want)
    own = captions.owner[judged.caption] == judged.image
    assert own.tolist() == [captions.owner[a] == captions.owner[b] for a, b in pairs]


def test_images_with_images_are_the_mean_over_captions_both_ways(tmp_path: Path) -> None:
    captions = coco_like()
    pairs = [(a, b) for a in range(5) for b in range(5) if a != b]
    judged = read_people(
        write(tmp_path / "sis.csv", SIS, *(sis(a, b, 4) for a, b in pairs)), captions
    )
    fitted = RougeL(RougeParams()).fit(captions)
    matrix = fitted.score(np.arange(5))
    want = [
        (np.mean(matrix[a, captions.owner == b]) + np.mean(matrix[b, captions.owner == a])) / 2
        for a, b in pairs
    ]
    assert judged.values(fitted, captions) == pytest.approx(want)
    assert not (captions.owner[judged.caption] == judged.image).any()
    with pytest.raises(
        InputError, match="judgements of pairs of images -> give pairs of an image and a caption"
    ):
        read_judgements(tmp_path / "sis.csv", captions)


def test_agree_takes_pairs_of_one_kind_and_says_so(tmp_path: Path) -> None:
    folder = write_captions_folder(tmp_path / "c", [coco_like().table])
    random = np.random.default_rng(0)
    lines = [
        sts(a, b, round(float(random.random() * 5), 2)) for a in range(6) for b in range(6, 10)
    ]
    file = write(tmp_path / "sts.csv", STS, sts(0, 1, 5.0), *lines)
    given = AgreeParams(judgements=str(file), measures=("rouge_l",))
    whole = agree(folder, tmp_path / "agree", given, measures=MeasuresParams())
    found = whole.measures
    assert (
        set(found) == {"rouge_l", "binary"}
        and -1 <= found["rouge_l"]["pearson"]["non_original"] <= 1
    )
    assert whole.judgements is not None and whole.judgements["of"] == "captions"
    assert not (tmp_path / "agree" / "judged.arrow").exists()
    for option in ({"calibrate": True}, {"calibration": "crisscrossed"}):
        with pytest.raises(InputError, match="of captions"):
            refused = given.model_copy(update=option)
            agree(folder, tmp_path / "new", refused, measures=MeasuresParams())
        assert not (tmp_path / "new").exists()
    matrix = tmp_path / "m.npy"
    np.save(matrix, np.zeros((5, sum(map(len, SETS))), np.float32))
    with pytest.raises(InputError, match="an imported matrix has no values between captions"):
        agreement(folder, file, ["m"], MeasuresParams(imported={"m": str(matrix)}))


PLAIN = "image_id,caption_id,score"
ANN = "100,7,1,ann"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([PLAIN, "100,7,high"], "row 2: score 'high' is not a number"),
        ([PLAIN, "100,7,1", "j,7,2"], "row 3: image 'j' is not among the captions"),
        ([PLAIN, ANN], "row 2: the row has 4 fields, the header 3"),
        ([f"{PLAIN},score", "100,7,1,2"], "row 1: column 'score' comes twice -> rename one"),
        (["a,b", "1,2"], "row 1: columns a, b -> give image_id, caption_id, score"),
        ([f"{PLAIN},rater", ANN, "100,7,3,"], "row 3: no rater"),
        ([f"{PLAIN},rater", ANN, ANN], "row 3: ann rated image '100', caption '7' twice"),
        (["100\t7#0\t0.5\t1\t2"], "row 1: 0.5, 1, 2 are neither"),
        (["100\t7#0\t0.5\t1"], "row 1: 4 fields between tabs"),
        ([STS, sts(0, 1, 3), "12,13,3,x"], "row 3: caption1 is no Crisscrossed Captions id: 12"),
        ([STS, sts(0, 99, 3)], "row 2: caption '106' is not among the captions"),
        ([STS, sts(1, 1, 3)], "row 2: COCO_val2014:sentid:8 with itself"),
        ([STS, sts(0, 1, float("nan"))], "row 2: score 'nan' is not a number"),
        (
            [SIS, sis(0, 1, 3), "a.jpg,b.jpg,1,x"],
            "row 3: image1 is no Crisscrossed Captions id: a.jpg",
        ),
        ([SIS], "no judgements, a header alone"),
    ],
)
def test_rows_that_cannot_be_used(lines: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"j.csv:? {message}"):
        read_people(write(tmp_path / "j.csv", *lines), coco_like())


@pytest.mark.parametrize(
    ("lines", "ratings"),
    [
        ([f"{PLAIN},rater", "i0,i1#0,1,ann", "i0,i1#0,3,bob", "i1,i1#0,5,ann"], [[1, 3], [5]]),
        (["i0\ti1#0\t0.333333333\t1\t2"], [[1, 0, 0]]),
        (["i0\ti1#0\t1\t3\t0"], [[1, 1, 1]]),
        (["i0\ti1#0\t1\t3\t2"], [[1, 3, 2]]),  # three experts
    ],
)
def test_every_rating_of_a_pair_is_read(
    lines: list[str], ratings: list[list[int]], tmp_path: Path
) -> None:
    found = read_judgements(write(tmp_path / "j.csv", *lines), make_captions(SETS))
    assert found.score.tolist() == pytest.approx([np.mean(of) for of in ratings])
    assert found.ratings is not None and found.ratings.value.tolist() == [
        one for of in ratings for one in of
    ]


def test_positives_of_eccv_caption_beside_random_pairs(coco: Captions) -> None:
    found = read_judgements(Path("eccv"), coco)
    pairs = list(zip(found.image.tolist(), found.caption.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    of_images, of_captions = (
        read_lists(f"eccv_{way}.json") for way in ("image_to_caption", "caption_to_image")
    )
    listed = {(int(image), caption) for image, row in of_images.items() for caption in row}
    listed |= {(image, int(caption)) for caption, row in of_captions.items() for image in row}
    yes = {pair for pair, score in zip(pairs, found.score, strict=True) if score}
    assert {(int(coco.image_ids[i]), int(coco.caption_ids[c])) for i, c in yes} == {
        (image, caption) for image, caption in listed if str(caption) in coco.caption_numbers
    }
    assert 0.95 * OTHERS < (len(pairs) - len(yes)) / (len(of_images) + len(of_captions)) < OTHERS
    assert (
        found.binary and found.uncalibrated is not None and len(judged_digest(Path("eccv"))) == 64
    )
    with pytest.raises(InputError, match="not in the captions table"):
        read_judgements(Path("eccv"), make_captions(SETS))


def test_the_random_pairs_of_eccv_caption_follow_ids_and_seed_alone() -> None:
    pytest.importorskip("eccv_caption")
    rows = [
        (image, str(one))
        for image, own in read_lists("original_image_to_caption.json").items()
        for one in own
    ]

    def judged(order: np.ndarray, seed: int) -> dict[tuple[str, str], float]:
        images, ids = zip(*(rows[k] for k in order), strict=True)
        columns = {
            "image_id": images,
            "caption_id": ids,
            "split": ["test"] * len(ids),
            "caption": ids,
        }
        table = pa.table(
            {**columns, "tokens": [[]] * len(ids), "image_file": pa.nulls(len(ids))}
        ).cast(SCHEMA)
        captions = Captions(table, "test", "words", "digest")
        found = eccv_judgements(captions, seed)
        pairs = [
            (captions.image_ids[i], ids[c]) for i, c in zip(found.image, found.caption, strict=True)
        ]
        return dict(zip(pairs, found.score.tolist(), strict=True))

    as_listed, shuffled = np.arange(len(rows)), np.random.default_rng(0).permutation(len(rows))
    assert judged(as_listed, 0) == judged(shuffled, 0) != judged(as_listed, 1)


def test_a_review_is_read_from_its_folder_with_every_rater(tmp_path: Path) -> None:
    """Ratings as the explorer writes them; the last click of a pair counts."""
    captions = make_captions(SETS)
    items = tuple(Item(f"i{k % 5}", captions.caption_ids[k]) for k in range(8))
    plan = ReviewPlan(INFORMATION, "corpus", 0, (*items, Item("i0", captions.caption_ids[0], "q")))
    write_plan(folder := tmp_path / "review", plan)
    with pytest.raises(InputError, match="nothing has been rated"):
        read_judgements(folder, captions)
    ratings = ReviewRatings.open(folder)
    for clicked in (("ann", 0, 1), ("ann", 0, 4), ("bob", 0, 2), ("ann", 3, 5), ("ann", 8, 3)):
        ratings.rate(*clicked)
    found = read_judgements(folder, captions)
    assert found.image.tolist() == [0, 3] and found.caption.tolist() == [0, 3]
    assert found.ratings is not None and sorted(found.ratings.value.tolist()) == [2, 3.5, 5]
    assert found.score.tolist() == [2.75, 5]
    assert scale_of(found) == Scale(3.0, 0.0, 5.0) and not found.binary, (
        "whichever scores were given"
    )
    before = judged_digest(folder)
    file = next(folder.glob(RATINGS))
    file.write_text(file.read_text() + '{"plan": "cut sh')
    assert (
        read_judgements(folder, captions).score.tolist() == [2.75, 5]
        and judged_digest(folder) != before
    )
    for name in ("ann", "bob"):
        ratings.rate(name, 4, 0)  # the explorer goes on behind it
    assert read_judgements(folder, captions).score.tolist() == [2.75, 5, 0]
    file.write_text(json.dumps({"plan": "other", "reviewer": "ann", "item": 0, "score": 1}) + "\n")
    with pytest.raises(InputError, match="row 1: a rating of another review"):
        read_judgements(folder, captions)


def test_the_scale_is_what_the_file_says_and_not_its_highest_score(tmp_path: Path) -> None:
    captions = make_captions(SETS)

    def read(*lines: str, **given: Any) -> Judgements:
        return read_judgements(write(tmp_path / "j.csv", *lines), captions, **given)

    rows, told = ("i0,i1#0,1", "i1,i0#0,0"), (f"{PLAIN},scale", "i0,i1#0,1,0..5")
    said = read(*told, "i1,i0#0,0,0..5")
    assert said.scale == (0, 5) == read(PLAIN, *rows, scale=(0.0, 5.0)).scale and not said.binary
    unknown = read(PLAIN, *rows)
    assert unknown.scale is None and unknown.binary and unknown.sampling == "chosen"
    for lines, given, message in (
        ((*told, "i1,i0#0,0,0..1"), {}, "row 3: two scales: 0..5 and 0..1"),
        (told, {"scale": (0.0, 1.0)}, "row 2: two scales: 0..1 and 0..5"),
        ((f"{PLAIN},rater,scale", "i0,i1#0,1,a,0..5", "i0,i1#0,1,b,0..1"), {}, "row 3: two scales"),
        (
            (PLAIN, *rows, "i2,i0#0,6"),
            {"scale": (0.0, 5.0)},
            "row 4: score 6 is off the scale 0..5",
        ),
        (
            (told[0], "i0,i1#0,1,five"),
            {},
            "no scale: 'five' -> give the lowest and the highest score",
        ),
        ((told[0], "i0,i1#0,1,5..0"), {}, "no scale: '5..0'"),
    ):
        with pytest.raises(InputError, match=message):
            read(*lines, **given)
