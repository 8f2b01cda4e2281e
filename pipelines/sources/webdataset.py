"""Captions of WebDataset tars, where a sample is a picture and its texts under one key."""

import codecs
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import Field, create_model

from capgrade.pictures.picture import SUFFIXES
from capgrade.pipelines.sources.fields import TextList, is_absent, validate_entry
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import decoded, parse_json
from capgrade.schemas.tars import Member, list_tars, tar_members

_NO_PICTURE, NO_CAPTION = "samples without a picture", "samples without a caption"
KEY_OF_JSON = "name the key of KEY.json that holds it: --columns caption=NAME"


def read_webdataset(name: str, params: CaptionsParams, left_out: Counter[str]) -> Iterator[Caption]:
    """Captions of a tar, a folder of tars or a pattern such as {00000..00331}.tar, in their order.

    The image id is the sample's KEY, its image_file the picture's name, caption ids KEY#0, KEY#1.
    The text is KEY.txt, a caption a line, or the key `params.columns.caption` of KEY.json, a text
    or a list of them. Samples without a picture or without a caption are left out, and members that
    are no files (`tar_members`). InputError for a tar that is not whole, a KEY that comes twice,
    and where no sample has a caption.
    """
    key_of_json = params.columns.caption
    ending = "txt" if key_of_json is None else "json"
    tar_of = dict[str, Path]()
    endings = Counter[str]()
    has_captions = False

    def leave_out(reason: str, _: str) -> None:
        left_out[reason] += 1

    for tar in list_tars([name]):
        for key, members in groupby(tar_members(tar, leave_out), key=lambda member: member.key):
            if key in tar_of:
                problem = f"sample '{key}' is in {tar_of[key]} already"
                remedy = "give every sample a key of its own"
                if tar_of[key] == tar:
                    problem = f"sample '{key}' is in two places: its members have to stand together"
                    remedy = "write the tar again in order of name: tar --sort=name -cf ..."
                raise InputError(problem, file=tar, row=key, remedy=remedy)
            tar_of[key] = tar
            sample = {member.ending: member for member in members}
            endings.update(sample.keys())
            pictures = (file.name for end, file in sample.items() if f".{end}" in SUFFIXES)
            picture = next(pictures, None)
            texts = _read_texts(sample[ending], key_of_json) if ending in sample else []
            has_captions = has_captions or bool(texts)
            if not texts or picture is None:
                left_out[_NO_PICTURE if texts else NO_CAPTION] += 1
                continue
            split = params.split or "all"
            for k, text in enumerate(texts):
                yield Caption(key, f"{key}#{k}", split, text, str(tar), picture, picture)
    if not has_captions:
        counts = ", ".join(f"{end} {count:,}" for end, count in endings.most_common(5))
        what = "a KEY.txt" if key_of_json is None else f"'{key_of_json}' in a KEY.json"
        problem = f"no sample has {what}; members: {counts or 'nothing'}"
        raise InputError(problem, file=name, remedy=KEY_OF_JSON)


def _read_texts(member: Member, key_of_json: str | None) -> list[str]:
    path = Path(f"{member.tar} {member.name}")
    text = decoded(member.read().removeprefix(codecs.BOM_UTF8), path, first_row=1)
    if key_of_json is None:
        lines = (line.removesuffix("\r") for line in text.split("\n"))
        return [line for line in lines if line.strip()]
    value = parse_json(text, path, first_row=1)
    if isinstance(value, dict):
        given = value.get(key_of_json)
        # NaN, which pandas writes for none, differs from itself.
        if is_absent(given) or given in ("", []):
            return []
    fields: Any = create_model("Fields", caption=(TextList, Field(alias=key_of_json)))
    return validate_entry(fields, value, member.tar, member.name, KEY_OF_JSON).caption
