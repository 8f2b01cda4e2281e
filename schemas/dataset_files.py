"""Hugging Face datasets as files: which files there are, and the names of splits and pictures."""

import re
from collections.abc import Callable, Collection
from pathlib import Path, PurePath

SAVED = ("dataset_dict.json", "state.json")  # files of save_to_disk: of a DatasetDict, a Dataset
SHARD = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}.*")  # the hub's own form
_HEAD = re.compile(r"---\r?\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)  # of a card: YAML
# Files that say something about a dataset, and are none of its tables.
_ABOUT = {"config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json"}
_ABOUT |= {"state.json", "manifest.json", "croissant.json"}
_WORDS = {  # of folders and names that say a split, in the order in which `datasets` looks for them
    "train": {"train", "training"},
    "validation": {"validation", "valid", "dev", "val"},
    "test": {"test", "testing", "eval", "evaluation"},
}


def split_of(name: str) -> str | None:
    """The split that the hub reads off a file's name; None where nothing says it.

    That is SPLIT of data/SPLIT-00000-of-00004.parquet, else a word in its folders, else in its own
    name.
    """
    if match := SHARD.fullmatch(name):
        return match[1]
    folders, _, file = name.lower().rpartition("/")
    for part in (folders, file):
        words_of_part = set(re.split(r"[-._ 0-9/]+", part))
        for split, words in _WORDS.items():
            if words_of_part & words:
                return split
    return None


def order_of(split: str) -> tuple[int, str]:
    """What splits are sorted by: train, validation, test, then others by name."""
    names = list(_WORDS)
    return (names.index(split), "") if split in names else (len(names), split)


def tables_of(
    folder: Path, kinds: Collection[str], kind_of: Callable[[Path], str]
) -> tuple[list[Path], list[Path]]:
    """The files of these kinds in a folder and below it, sorted, and the others but for hidden
    ones and those that are for people: README and LICENSE."""
    tables, others = list[Path](), list[Path]()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.stem.upper() in ("README", "LICENSE"):
            continue
        (tables if kind_of(path) in kinds and is_table(path.name) else others).append(path)
    return tables, others


def is_table(name: str) -> bool:
    """Whether a file of a dataset is not one that says something about it."""
    return PurePath(name).name not in _ABOUT and not PurePath(name).name.startswith(".")


def has_configs(folder: Path) -> bool:
    """Whether the card of a dataset's folder, its README.md, says which files it has or what their
    columns are."""
    card = folder / "README.md"
    if not card.is_file():
        return False
    match = _HEAD.match(card.read_text(encoding="utf-8", errors="replace"))
    return match is not None and bool(re.search(r"^(configs|dataset_info):", match[1], re.M))


def row_id(split: str, row: int) -> str:
    """The id of an image in a dataset that has no ids: its row, counted from 0 in its split."""
    return f"{split}-{row}"


def path_here(path: str | None) -> str | None:
    """The path of a picture as a row has it; the file's name where the path is absolute.

    An absolute path is of a folder of another machine.
    """
    return path and (PurePath(path).name if PurePath(path).is_absolute() else path)
