"""Splits that hang on an image's id."""

from collections import Counter

import pytest

from capgrade.pipelines.sources.divide import divide
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError

SHARES = {"val": 0.1, "test": 0.2}


def splits(images: list[str], sizes: dict[str, float]) -> dict[str, str]:
    captions = [
        Caption(image, f"{image}#{k}", "all", "A dog.", "f", k) for image in images for k in (0, 1)
    ]
    found = list(divide(captions, sizes, "f"))
    assert [c.caption_id for c in found] == [c.caption_id for c in captions]
    return {caption.image_id: caption.split for caption in found}


def test_a_share_hangs_on_the_id_alone() -> None:
    """One image more or less moves nobody."""
    images = [f"photo_{k:04d}.jpg" for k in range(2_000)]
    whole = splits(images, SHARES)
    counts = Counter(whole.values())
    for split, share in {**SHARES, "train": 0.7}.items():
        # Three standard errors of a binomial.
        assert abs(counts[split] - share * 2_000) < 3 * (2_000 * share * (1 - share)) ** 0.5
    for some in (images[:1_999], images[::-1], images[5::7], ["new.jpg", *images]):
        assert splits(some, SHARES) == {one: whole.get(one, split) for one, split in
                                        splits(some, SHARES).items()}  # fmt: skip
    assert (
        splits(["caf\u00e9.jpg", *images], SHARES)["caf\u00e9.jpg"]
        == (splits(["cafe\u0301.jpg", *images], SHARES)["cafe\u0301.jpg"])
    )


def test_a_number_moves_at_most_one_image_of_its_split() -> None:
    images = [f"{k}" for k in range(300)]
    sizes = {"val": 20, "test": 0.1}
    before = splits(images, sizes)
    assert Counter(before.values())["val"] == 20
    for k in range(300, 400):
        after = splits([*images, f"{k}"], sizes)
        moved = [one for one in images if after[one] != before[one]]
        assert Counter(after.values())["val"] == 20 and len(moved) <= 1
        assert all((before[one], after[one]) == ("val", "train") for one in moved)


def test_no_split_is_empty_and_some_images_are_left() -> None:
    for n in (3, 5, 8, 12):
        for at in range(20):
            found = splits([f"{at} {k}" for k in range(n)], {"val": 0.1, "test": 0.1})
            assert set(found.values()) == {"val", "test", "train"}
    for sizes in ({"val": 10}, {"val": 0.5, "test": 0.5}, {"val": 9, "test": 0.1}, {"val": 400}):
        with pytest.raises(InputError, match="f: captions.divide asks for val .* of 10 images"):
            splits([f"{k}" for k in range(10)], sizes)
    with pytest.raises(InputError, match="for a source that has splits: a, b -> leave"):
        list(divide([Caption(s, s, s, "A", "f", 1) for s in "ab"], SHARES, "f"))
