"""A share of a stage's blocks: which, and the folders of all shares beside the output."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, read_manifest
from capgrade.schemas.numbered import in_order

KIND = "shards_part"


@dataclass(frozen=True)
class Part:
    """Number `number` of `of`, from 1."""

    number: int
    of: int

    @staticmethod
    def parse(text: str) -> Part:
        """From 3/8. InputError for anything that is no part."""
        found = re.fullmatch(r"(\d+)/(\d+)", text, re.ASCII)
        part = Part(int(found[1]), int(found[2])) if found else Part(0, 0)
        if not 1 <= part.number <= part.of:
            raise InputError(f"no part '{text}'", remedy="give its number and how many there are: 1/8 to 8/8")
        return part

    def blocks(self, n_blocks: int) -> range:
        """Its blocks; parts have consecutive ones, as many or one more than others. InputError when some would have
        none."""
        if self.of > n_blocks:
            problem = f"{self.of} parts of {n_blocks} blocks of images"
            raise InputError(problem, remedy="make fewer parts, or lower shards.block_images")
        return range((self.number - 1) * n_blocks // self.of, self.number * n_blocks // self.of)

    def folder(self, out: Path) -> Path:
        """OUT.parts/3-of-8."""
        return parts_folder(out) / f"{self.number}-of-{self.of}"


def parts_folder(out: Path) -> Path:
    """Beside the output, for all its parts."""
    return out.resolve().with_name(f"{out.resolve().name}.parts")


def block_name(part: Path) -> str:
    """In the folder of a share of the blocks, of a block's part file."""
    return f"{part.name.partition('-')[0]}.arrow"


def part_files(out: Path, made_with: Any, inputs: dict[str, str]) -> tuple[list[Path], dict[str, int]]:
    """The files of all blocks in order, and by measure how many pairs were scored.

    InputError when parts are missing, unfinished or damaged, were made with other parameters or of other inputs, or do
    not belong together.
    """
    again = "make it with `capgrade shards --part`, the same options and --out"
    found = {path.name: path for path in parts_folder(out).glob("*-of-*")}
    counts = {name.partition("-of-")[2] for name in found}
    if not counts:
        raise InputError("no parts to join", file=parts_folder(out), remedy=again)
    if len(counts) > 1:
        problem = f"parts of several divisions: {', '.join(sorted(f'N/{count}' for count in counts))}"
        raise InputError(problem, file=parts_folder(out), remedy="delete the folders of those that do not belong")
    count, expected = int(counts.pop()), json.loads(json.dumps(made_with))  # as manifests hold it
    files, scored = [], Counter[str]()
    for number in range(1, count + 1):
        folder = Part(number, count).folder(out)
        if not folder.is_dir():
            raise InputError(f"part {number}/{count} is missing", file=folder, remedy=again)
        manifest = read_manifest(folder, KIND)
        if (manifest["params"], manifest["inputs"]) != (expected, inputs):
            problem = f"part {number}/{count} was made with other parameters, or of other captions"
            raise InputError(problem, file=folder, remedy=again)
        for name in in_order(manifest["files"]):
            if digest(folder / name) != manifest["files"][name]["sha256"]:
                raise InputError("not as it was written", file=folder / name, remedy=again)
            files.append(folder / name)
        scored.update(manifest["scored"])
    return files, dict(scored)
