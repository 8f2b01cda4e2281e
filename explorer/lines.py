"""The pairs of a review for machines: `pairs.jsonl` in its folder, all that is needed to judge a pair in each line."""

from __future__ import annotations

import json
from pathlib import Path

from capgrade.schemas.captions import Captions
from capgrade.schemas.files import write_text
from capgrade.schemas.reviews import Plan

FILE = "pairs.jsonl"


def write_lines(folder: Path, plan: Plan, captions: Captions) -> None:
    """image_id, image_file, caption_id, caption, captions (the image's, without this one), and of a pooled pair its
    stratum and the probability with which it was chosen."""
    image_at = {key: k for k, key in enumerate(captions.image_ids)}
    caption_at = {key: k for k, key in enumerate(captions.caption_ids)}
    files = captions.table["image_file"]
    lines = []
    for item in plan.items:
        image, caption = image_at[item.image_id], caption_at[item.caption_id]
        own = captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]].tolist()
        line = {
            "image_id": item.image_id,
            "image_file": files[own[0]].as_py(),
            "caption_id": item.caption_id,
            "caption": captions.texts[caption],
            "captions": [captions.texts[c] for c in own if c != caption],
        }
        if item.stratum is not None:
            line |= {"stratum": item.stratum, "probability": plan.probability(item)}
        lines.append(json.dumps(line, ensure_ascii=False))
    write_text(folder / FILE, "".join(f"{line}\n" for line in lines))
