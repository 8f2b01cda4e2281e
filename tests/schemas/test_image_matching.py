"""One rule for which picture is which: the layouts people have, and a slow reading of the rule
beside it."""

import re
import time
import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.schemas.errors import InputError
from capgrade.schemas.image_matching import Candidate, by_name, match_images


def picture(path: str) -> Candidate:
    """As a folder of pictures lists it."""
    return Candidate(PurePosixPath(path).stem, path)


COCO = "COCO_val2014_000000391895"


@pytest.mark.parametrize(("image", "candidate"), [
    (("a.jpg", None), "a.jpg"),
    (("1000268201_693b08cb0e.jpg", None), picture("1000268201_693b08cb0e.jpg")),
    (("1000268201_693b08cb0e.jpg", "1000268201_693b08cb0e.jpg"), "1000268201_693b08cb0e"),
    (("1000268201_693b08cb0e.jpg", None), picture("Flicker8k_Dataset/1000268201_693b08cb0e.png")),
    (("batch 0/photo 003.jpg", None), picture("batch 0/photo 003.jpg")),
    (("batch 0/photo 003.jpg", "batch 0/photo 003.jpg"), picture("pictures/batch 0/photo 003.jpg")),
    (("batch 0/photo 003.jpg", None), picture("photo 003.jpg")),
    (("batch 0/photo 003.jpg", None), "photo 003"),
    (("batch 0\\photo 003.jpg", None), picture("batch 0/photo 003.jpg")),
    (("7", "photo 003.jpg"), picture("batch 0/photo 003.jpg")),
    (("7", "photo 003.jpg"), Candidate("7", "elsewhere/x.png")),
    (("391895", f"{COCO}.jpg"), picture(f"val2014/{COCO}.jpg")),
    (("391895", f"{COCO}.jpg"), COCO),
    (("391895", f"{COCO}.jpg"), "391895"),
    (("391895", None), COCO),
    (("391895", None), picture("val2017/000000391895.jpg")),
    (("391895", f"val2014/{COCO}.jpg"), picture("val2017/000000391895.jpg")),
    ((f"{COCO}.jpg", None), "391895"),
    ((COCO, None), "000000391895"),
])  # fmt: skip
def test_names_of_one_picture_meet(
    image: tuple[str, str | None], candidate: Candidate | str
) -> None:
    found = match_images(dict([image]), ["other", candidate])
    assert found.numbers == {image[0]: 1} and not found.missing and found.not_asked == [0]


@pytest.mark.parametrize(("image", "candidate"), [
    (("batch 0/photo 003.jpg", None), picture("batch 9/photo 003.jpg")),
    (("photo 003", "batch 0/photo 003.jpg"), picture("batch 9/photo 003.jpg")),
    (("v1.5", None), "v1.6"),
    (("5", None), "05"),
    (("391895", None), "photo_391895"),
    (("391895", None), picture("VizWiz_val_00391895.jpg")),
    (("a.jpg", None), "A.jpg"),
])  # fmt: skip
def test_names_of_two_pictures_do_not(
    image: tuple[str, str | None], candidate: Candidate | str
) -> None:
    assert match_images(dict([image]), [candidate]).missing == [image[0]]


def test_the_nearer_name_comes_first() -> None:
    images: dict[str, str | None] = {"1": "a/1.jpg", "2": "a/2.jpg", "a.png": None, "a.jpg": None}
    there = [
        picture("b/1.jpg"),
        picture("a/1.jpg"),
        Candidate("2", "x.jpg"),
        picture("a/2.jpg"),
        picture("a.jpg"),
    ]
    found = match_images(images, there)
    assert found.numbers == {"1": 1, "2": 3, "a.jpg": 4} and found.missing == ["a.png"]
    assert found.not_asked == [0, 2]


@pytest.mark.parametrize("stem", ["café", "Müller straße", "가", "ệ", "Å"])
def test_names_are_compared_as_unicode_composes_them(stem: str) -> None:
    """A Mac writes decomposed names; a name that is written as asked for comes first."""
    one, other = (unicodedata.normalize(form, f"{stem}.jpg") for form in ("NFC", "NFD"))
    assert one != other
    for asked, there in ((one, other), (other, one)):
        for candidate in (there, picture(there), picture(f"x/{there}"), there.removesuffix(".jpg")):
            assert match_images({asked: None}, ["z", candidate]).numbers == {asked: 1}
        assert match_images({"7": there}, [picture(asked)]).numbers == {"7": 0}
        both = [picture(one), picture(other)]
        assert match_images({asked: None}, both).numbers == {asked: both.index(picture(asked))}
        assert match_images({one: None, other: None}, [picture(there)]).missing == [asked]
        assert by_name({there: 1})[asked] == by_name({there: 2, asked: 1})[asked] == 1
    assert match_images({one: None, other: None}, both[::-1]).numbers == {one: 1, other: 0}
    with pytest.raises(InputError, match=rf"image '{one}' has two"):
        match_images({one: None}, [picture(f"x/{other}"), picture(f"y/{other}")])
    assert "z" not in by_name({one: 1})


def test_two_of_one_are_an_error_that_shows_both() -> None:
    for images, there, said in (
        (
            {"a": None},
            [picture("a.jpg"), picture("b/a.png")],
            "image 'a' has two, 'a' (a.jpg) and 'a' (b/a.png)",
        ),
        ({"a.jpg": None, "a.png": None}, ["a"], "'a' belongs to two images, 'a.jpg' and 'a.png'"),
        (
            {"9": None},
            [COCO.replace("391895", "000009"), "000000000009"],
            "image '9' has two, 'COCO_val2014_",
        ),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            match_images(images, there)


def test_what_is_missing_and_not_asked_for_is_said_in_a_line_each() -> None:
    images = {f"{k}": f"x/{k}.jpg" for k in range(6)}
    found = match_images(images, [picture("y.jpg"), picture("x/5.jpg")])
    assert found.lines() == [
        "no pictures of 5 of the 6 images: '0' (x/0.jpg), '1' (x/1.jpg), '2' (x/2.jpg) and 2 more",
        "not asked for: 1 of 2 pictures: y.jpg",
    ]
    assert match_images({"5": None}, ["5"]).lines() == []


def slow(images: dict[str, str | None], candidates: list[Candidate]) -> dict[str, int] | None:
    """The rule as it is written, each image beside each candidate; None where it is not decided."""

    def name(path: str | None, image_id: str) -> list[str]:
        return (path or image_id).split("/")

    def stem(base: str) -> str:
        head, point, ending = base.rpartition(".")
        return head if point and head and ending[:1].isalpha() else base

    def number(*names: str) -> int | None:
        digits = [one.split("_")[-1] if one.startswith("COCO_val2014_") else one for one in names]
        return next((int(one) for one in digits if len(one) == 12 and one.isdigit()), None)

    def folders(a: list[str], b: list[str]) -> bool:
        return all(x == y for x, y in zip(a[-2::-1], b[-2::-1], strict=False))

    def fits(rule: int, image_id: str, candidate: Candidate) -> bool:
        a, b = name(images[image_id], image_id), name(candidate.path, candidate.image_id)
        same_id = image_id == candidate.image_id
        # as a folder is listed
        derived = candidate.path and candidate.image_id == PurePosixPath(b[-1]).stem
        if rule == 0:
            return same_id and a == b
        if rule == 1:
            return same_id and (not derived or folders(a, b))
        if rule == 2:
            return a == b
        if rule == 3:
            return a[-1] == b[-1] and folders(a, b)
        if rule == 4:
            return stem(a[-1]) == stem(b[-1]) and folders(a, b)
        one, other = number(stem(a[-1]), image_id), number(stem(b[-1]), candidate.image_id)
        plain = [x for x in (image_id, candidate.image_id) if x.isdigit() and x == str(int(x))]
        if one is None and other is not None:
            return bool(plain) and plain[0] == image_id and int(image_id) == other
        if other is None and one is not None:
            return (
                bool(plain) and plain[-1] == candidate.image_id and int(candidate.image_id) == one
            )
        return one is not None and one == other

    found: dict[str, int] = {}
    for rule in range(6):
        free = [k for k in range(len(candidates)) if k not in found.values()]
        rest = [image_id for image_id in images if image_id not in found]
        pairs = [(one, k) for one in rest for k in free if fits(rule, one, candidates[k])]
        if len({one for one, _ in pairs}) < len(pairs) or len({k for _, k in pairs}) < len(pairs):
            return None
        found |= dict(pairs)
    return found


IDS = ("a", "b", "a.jpg", "b.png", "v1.5", "9", "000000000009", "COCO_val2014_000000000009")
PATHS = st.tuples(st.sampled_from(("", "x/", "y/", "z/x/")), st.sampled_from(IDS)).map("".join)


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(st.sampled_from(IDS) | PATHS, st.none() | PATHS, max_size=4),
    st.lists(
        st.builds(Candidate, st.sampled_from(IDS) | PATHS, st.none() | PATHS) | PATHS.map(picture),
        max_size=4,
    ),
)
def test_it_is_the_rule_read_slowly(
    images: dict[str, str | None], candidates: list[Candidate]
) -> None:
    expected = slow(images, candidates)
    if expected is None:
        with pytest.raises(InputError, match="has two|belongs to two"):
            match_images(images, candidates)
        return
    found = match_images(images, candidates)
    assert found.numbers == expected and list(found.numbers) == [
        one for one in images if one in expected
    ]
    assert found.missing == [one for one in images if one not in expected]
    assert found.not_asked == [k for k in range(len(candidates)) if k not in expected.values()]


def test_a_large_table_takes_seconds() -> None:
    images = {f"{k}": f"train2014/COCO_train2014_{k:012d}.jpg" for k in range(200_000)}
    there = [picture(f"train2017/{k:012d}.jpg") for k in range(200_000)]
    start = time.process_time()
    assert len(match_images(images, there).numbers) == 200_000
    assert time.process_time() - start < 15
