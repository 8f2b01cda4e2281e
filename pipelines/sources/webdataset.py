"""Captions of WebDataset tars: one sample of a picture and its texts a key, as img2dataset writes
them."""

import codecs
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import Field, create_model

from capgrade.pipelines.sources.fields import TextList, entry
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import decoded, parse_json
from capgrade.schemas.params import CaptionsParams
from capgrade.schemas.pictures import SUFFIXES
from capgrade.schemas.tars import Member, list_tars, tar_members

_NO_PICTURE, NO_CAPTION = "samples without a picture", "samples without a caption"
KEY_OF_JSON = "name the key of KEY.json that holds it: --column caption=NAME"


def read_webdataset(name: str, params: CaptionsParams, left_out: Counter[str]) -> Iterator[Caption]:
    """Captions of a tar, a folder of tars or a pattern such as {00000..00331}.tar, sample by
    sample; the image id is the sample's KEY, its image_file the picture's name, and caption ids are
    KEY#0, KEY#1.

    The text is KEY.txt, a caption a line, or the key `params.columns.caption` of KEY.json, a text
    or a list of them. Samples without a picture or without a caption are left out. InputError for a
    tar that is not whole, a KEY that comes twice, and where no sample has a caption.
    """
    key_of_json, tar_of = params.columns.caption, dict[str, Path]()
    kind, empty, endings = "txt" if key_of_json is None else "json", True, Counter[str]()
    for tar in list_tars([name]):
        for key, members in groupby(tar_members(tar), key=lambda one: one.key):
            if key in tar_of:
                problem = f"sample '{key}' is in {tar_of[key]} already"
                raise InputError(
                    problem, file=tar, row=key, remedy="give every sample a key of its own"
                )
            tar_of[key] = tar
            sample = {one.ending: one for one in members}
            endings.update(sample.keys())
            picture = next((one.name for end, one in sample.items() if f".{end}" in SUFFIXES), None)
            texts = _texts(sample[kind], key_of_json) if kind in sample else []
            empty = empty and not texts
            if not texts or picture is None:
                left_out[_NO_PICTURE if texts else NO_CAPTION] += 1
                continue
            for k, text in enumerate(texts):
                yield Caption(
                    key, f"{key}#{k}", params.split or "all", text, str(tar), picture, picture
                )
    if empty:
        there = (
            ", ".join(f"{ending} {count:,}" for ending, count in endings.most_common(5))
            or "nothing"
        )
        what = "a KEY.txt" if key_of_json is None else f"'{key_of_json}' in a KEY.json"
        raise InputError(f"no sample has {what}; members: {there}", file=name, remedy=KEY_OF_JSON)


def _texts(member: Member, key_of_json: str | None) -> list[str]:
    path = Path(f"{member.tar} {member.name}")
    text = decoded(member.read().removeprefix(codecs.BOM_UTF8), path, first_row=1)
    if key_of_json is None:
        lines = (line.removesuffix("\r") for line in text.split("\n"))
        return [line for line in lines if line.strip()]
    value = parse_json(text, path, first_row=1)
    if isinstance(value, dict) and value.get(key_of_json) in (None, "", []):
        return []
    fields: Any = create_model("Fields", caption=(TextList, Field(alias=key_of_json)))
    return entry(fields, value, member.tar, member.name, KEY_OF_JSON).caption
