"""The audit's page: findings, lists with pictures, and how far the probabilities hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from capgrade.pipelines.agreement.calibration import Calibration
from capgrade.pipelines.agreement.curve import Curve
from capgrade.pipelines.audit.candidates import Pairs
from capgrade.pipelines.audit.errors import Errors
from capgrade.pipelines.audit.estimate import LIKELY
from capgrade.pipelines.audit.page_lists import duplicates_section, likely_section, model_section, suspects_section
from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.parts import Chart, Facts, Note, Section, Table, text
from capgrade.pipelines.report.thumbnails import Thumbnails
from capgrade.schemas.captions import Captions

MEANING = (
    "A likely positive is a pair that was not given and that a person accepts with a probability P of at least "
    "{likely:g}. To accept is to give a score of at least {accept:g} on a scale from {low:g} to {high:g}. P at each "
    "value of the measure “{measure}” was learnt from {pairs:,} judged pairs of {which} captions ({file}). "
)
OF_RANDOM = "Any pair was as likely to be judged, so P holds for all pairs. Intervals are 95%."
OF_CHOSEN = (
    "The judged pairs were chosen because they looked similar. People accept more of such pairs than of other pairs "
    "with the same value. So P is too high, by an unknown amount. The number of accepted pairs is told as “at most”."
)


def sections(
    found: dict[str, Any], calibration: Calibration, captions: Captions, pairs: Pairs,
    duplicates: list[tuple[int, int]], equal: list[list[int]], low: np.ndarray | None, errors: Mapping[str, Errors],
    thumbnails: Thumbnails,
) -> list[Section]:  # fmt: skip
    """What `audit` found, as sections of a page."""
    measure, kind = found["measure"], found["calibration"]
    curve = calibration.curves[measure]
    which = "these very" if kind["same_captions"] else "other"
    said = MEANING.format(measure=measure, likely=LIKELY, which=which, **kind)
    said += OF_RANDOM if calibration.random else OF_CHOSEN
    bands = [_bands(found["bands"])] if found["bands"] else []
    return [
        Section("findings", "Findings", said, [Note(headline(found)), _facts(found), *bands]),
        *([model_section(found["model"], errors, curve, captions, thumbnails)] if errors else []),
        likely_section(curve, captions, pairs, thumbnails),
        duplicates_section(captions, duplicates, equal),
        suspects_section(captions, low, found.get("suspects_unknown", "")),
        Section("calibration", "How far to trust P", _trust(curve, calibration.random), [_diagram(curve, measure)]),
    ]


def accepted(one: Mapping[str, Any]) -> str:
    """How many of some pairs people accept, per image or caption."""
    if one["accepted"] is None:
        return f"at most {one['high']:.2f}"
    return f"{one['accepted']:.2f} ({one['low']:.2f} to {one['high']:.2f})"


def headline(found: dict[str, Any]) -> str:
    """The audit's answer in two sentences."""
    one = found["likely_captions_per_image"]
    return (
        f"{one['pairs']:.2f} captions per image are likely positives beside the "
        f"{found['given_captions_per_image']:.2f} given. People would accept {accepted(one)} of them."
    )


def answers(found: dict[str, Any]) -> list[str]:
    """What the audit found, in a line each: likely positives, suspects, and a model's errors."""
    judged = "chosen" if found["likely_captions_per_image"]["accepted"] is None else "random"
    lines = [f"{headline(found)} (P was learnt from {judged} pairs.)"]
    if found["suspect_pairs"] is None:
        lines.append(f"Captions that fit nothing are not known: {found['suspects_unknown']}.")
    else:
        lines.append(f"{found['suspect_pairs']:,} given captions fit nothing, by the other captions of their image.")
    if "model" in found:
        ways = {"i2t": "image to caption", "t2i": "caption to image"}
        said = [
            f"{one['likely']['share']:.1%} of {one['errors']:,.0f} {ways[way]} (R@1 {one['recall']:.1%}, with these "
            f"{one['likely']['recall']:.1%})"
            for way, one in found["model"].items()
        ]
        lines.append(f"Likely positives are among the model's R@1 errors: {'; '.join(said)}.")
    return lines


def _facts(found: dict[str, Any]) -> Facts:
    suspects = found["suspect_pairs"]
    captions, images = found["likely_captions_per_image"], found["likely_images_per_caption"]
    return Facts(
        {
            "likely captions per image, beside the given": f"{captions['pairs']:.2f}",
            "captions of these that people accept": accepted(captions),
            "likely images per caption, beside the given": f"{images['pairs']:.2f}",
            "images of these that people accept": accepted(images),
            "likely pairs, all listed in likely.csv": f"{found['likely_pairs']:,}",
            "near-duplicate pairs of images": f"{found['near_duplicates']:,}",
            "given captions that fit nothing": "not known" if suspects is None else f"{suspects:,}",
        }
    )


def _bands(found: Sequence[Mapping[str, Any]]) -> Table:
    """Of all pairs that were not given, by P; an interval of all together would be of the many improbable ones."""
    lines = [
        [text(f"{one['from']:g} to {one['to']:g}"), text(f"{one['pairs']:.2f}"), text(accepted(one))] for one in found
    ]
    return Table("All other captions of an image, by P", ("P", "captions per image", "of these accepted"), lines)


def _trust(curve: Curve, random: bool) -> str:
    said = (
        "Predicted against observed acceptance on images that the curve was not fitted on, in groups of about equally "
        f"many pairs; on the line, they are equal. The expected calibration error is {curve.ece:.3f}."
    )
    return said if random else f"{said} It is of pairs that were chosen alike, and says nothing of all others."


def _diagram(curve: Curve, measure: str) -> Chart:
    values = rows(curve.reliability)
    x = alt.X("predicted:Q", title="predicted share", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("accepted:Q", title="share that people accepted", scale=alt.Scale(domain=[0, 1]))
    told = [alt.Tooltip(f"{name}:Q") for name in ("predicted", "accepted", "pairs")]
    line = alt.Chart(rows([{"a": 0.0}, {"a": 1.0}])).mark_line(strokeDash=[4, 4], aria=False).encode(x="a:Q", y="a:Q")
    dots = alt.Chart(values).mark_line(point=True, aria=False).encode(x, y, tooltip=told)
    said = f"Reliability of P(accepted) by {measure}: expected calibration error {curve.ece:.3f}."
    return made("reliability", f"Reliability of {measure}", said, line + dots)
