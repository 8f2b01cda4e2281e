"""Made regions, and equality to the last bit."""

import numpy as np

from capgrade.schemas.regions import Regions

NAMES = ("boxes", "features", "classes", "confidences", "attributes", "attribute_confidences")


def made(image_id: str, n: int = 3, d: int = 4, *, seed: int = 0, plain: bool = False) -> Regions:
    """An image of 640 x 480 with n regions; `plain`: no classes, attributes and confidences."""
    rng = np.random.default_rng([seed, n, d])
    corner = rng.uniform(0, 200, (n, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(1, 200, (n, 2))], 1).astype(np.float32)
    features = np.maximum(rng.normal(size=(n, d)), 0).astype(np.float32)
    if plain:
        return Regions(image_id, 640, 480, boxes, features)
    classes, attributes = rng.integers(0, 1600, n, np.int32), rng.integers(0, 400, n, np.int32)
    first, second = rng.random((2, n), np.float32)
    return Regions(image_id, 640, 480, boxes, features, classes, first, attributes, second)


def assert_same(a: Regions, b: Regions, names: tuple[str, ...] = NAMES) -> None:
    assert (a.image_id, a.width, a.height) == (b.image_id, b.width, b.height)
    for name in names:
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None), name
        if x is not None:
            assert (
                x.flags.c_contiguous
                and x.dtype == y.dtype
                and x.shape == y.shape
                and x.tobytes() == y.tobytes()
            ), name
