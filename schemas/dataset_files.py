"""Hugging Face datasets as files: which files there are, and the names of splits and pictures."""

import re
from pathlib import PurePath

SAVED = ("dataset_dict.json", "state.json")  # files of save_to_disk: of a DatasetDict, a Dataset
SHARD = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}.*")  # the hub's own form
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


def row_id(split: str, row: int) -> str:
    """The id of an image in a dataset that has no ids: its row, counted from 0 in its split."""
    return f"{split}-{row}"


def path_here(path: str | None) -> str | None:
    """The path of a picture as a row has it; the file's name where the path is absolute.

    An absolute path is of a folder of another machine.
    """
    return path and (PurePath(path).name if PurePath(path).is_absolute() else path)
