"""Hugging Face datasets as files: what saved ones leave, and what their splits, rows and pictures
are called."""

import re
from pathlib import PurePath

# what save_to_disk leaves, for a DatasetDict and for a Dataset
SAVED = (
    "dataset_dict.json",
    "state.json",
)
SHARD = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}.*")  # the hub's own form
_WORDS = {  # of folders and names that say a split, in the order in which `datasets` looks for them
    "train": {"train", "training"},
    "validation": {"validation", "valid", "dev", "val"},
    "test": {"test", "testing", "eval", "evaluation"},
}


def split_of(name: str) -> str | None:
    """The split that the hub reads off a file of a dataset: data/SPLIT-00000-of-00004.parquet, else
    a word in its folders, else in its own name; None where nothing says it."""
    if found := SHARD.fullmatch(name):
        return found[1]
    folders, _, file = name.lower().rpartition("/")
    for part in (folders, file):
        said = set(re.split(r"[-._ 0-9/]+", part))
        for split, words in _WORDS.items():
            if said & words:
                return split
    return None


def row_id(split: str, row: int) -> str:
    """The id of an image in a dataset that has no ids: its row, counted from 0 in its split."""
    return f"{split}-{row}"


def path_here(path: str | None) -> str | None:
    """The path that a row has of its picture; of one in another machine's folders its file's
    name."""
    return path and (PurePath(path).name if PurePath(path).is_absolute() else path)
