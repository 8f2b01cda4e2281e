"""Who may rate under a name: whoever has the key that the name was first taken with."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from pathlib import Path

from capgrade.explorer.ratings import reviewer_name
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_json, writing

MOST = 1000  # names of a review: whoever opens the page can take one
SHOWN = "shown when the name was first given, and kept by that browser"


def admitted(folder: Path, name: str, key: str) -> tuple[str, str]:
    """The name as it is kept, and its key: a new one for a new name, which is on the disk on return.

    InputError for a name that is taken and another key, for one that no name can be, and if there are too many names.
    """
    name = reviewer_name(name)
    path = folder / f"reviewer-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
    if not path.exists():
        if sum(1 for _ in folder.glob("reviewer-*.json")) >= MOST:
            raise InputError(f"{MOST} names have been taken", file=folder, remedy="whoever serves this can remove some")
        try:
            return name, _take(path, name)
        except FileExistsError:  # by another tab, meanwhile
            pass
    if not hmac.compare_digest(str(read_json(path)["key"]), _kept(key)):
        remedy = f"give its key ({SHOWN}) or another name; whoever serves this can free it: delete {path.name}"
        raise InputError(f"the name '{name}' is taken", remedy=remedy)
    return name, key.strip()


def _take(path: Path, name: str) -> str:
    key = secrets.token_hex(6)
    with writing(path), path.open("x", encoding="utf-8") as file:
        file.write(json.dumps({"reviewer": name, "key": _kept(key)}, ensure_ascii=False) + "\n")
    return key


def _kept(key: str) -> str:
    """What is kept of a key does not tell it."""
    return hashlib.sha256(key.strip().encode()).hexdigest()
