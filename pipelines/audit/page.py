"""The audit's page: findings, how far the probabilities hold, and lists with pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np

from capgrade.pipelines.agreement.calibration import Calibration
from capgrade.pipelines.agreement.curve import Curve
from capgrade.pipelines.audit.candidates import Pairs
from capgrade.pipelines.audit.errors import Errors
from capgrade.pipelines.audit.page_lists import duplicates_section, likely_section, model_section, suspects_section
from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.parts import Chart, Facts, Note, Section
from capgrade.pipelines.report.thumbnails import Thumbnails
from capgrade.schemas.captions import Captions

MEANING = (
    "Accepted means that a person would give the pair a score of at least {accept:g} on a scale from {low:g} to "
    "{high:g}. How likely that is at each value of the measure “{measure}” was learnt from {pairs:,} judged pairs of "
    "{file}, which are of other captions unless you calibrated on your own. Intervals are 95%."
)


def sections(
    found: dict[str, Any], measure: str, calibration: Calibration, captions: Captions, pairs: Pairs,
    duplicates: list[tuple[int, int]], equal: list[list[int]], low: np.ndarray | None, errors: Mapping[str, Errors],
    thumbnails: Thumbnails,
) -> list[Section]:  # fmt: skip
    """What `audit` found, as sections of a page."""
    curve, facts = calibration.curves[measure], calibration.facts
    said = MEANING.format(
        **{key: facts[key] for key in ("accept", "low", "high")},
        measure=measure, pairs=curve.pairs, file=facts["judgements"]["file"],
    )  # fmt: skip
    return [
        Section("findings", "Findings", said, [_facts(found), Note(_sentence(found))]),
        Section("calibration", "How far to trust the probabilities", _trust(curve), [_diagram(curve, measure)]),
        *([model_section(found["model"], errors, curve, captions, thumbnails)] if errors else []),
        likely_section(curve, captions, pairs, thumbnails),
        duplicates_section(captions, duplicates, equal),
        suspects_section(captions, low, curve),
    ]


def _range(one: dict[str, float]) -> str:
    return f"{one['accepted']:.2f} ({one['low']:.2f} to {one['high']:.2f})"


def _facts(found: dict[str, Any]) -> Facts:
    suspects = found["suspect_pairs"]
    return Facts(
        {
            "accepted captions per image, beyond the given": _range(found["captions_per_image"]),
            "given captions per image": f"{found['captions_per_image']['given']:.2f}",
            "accepted images per caption, beyond the given": _range(found["images_per_caption"]),
            "pairs more likely accepted than not": f"{found['likely_pairs']:,}",
            "near-duplicate pairs of images": f"{found['near_duplicates']:,}",
            "given pairs that fit nothing": "not known" if suspects is None else f"{suspects:,}",
        }
    )


def _sentence(found: dict[str, Any]) -> str:
    one = found["captions_per_image"]
    return (
        f"Beside the {one['given']:.1f} captions that an image was given, people would accept about "
        f"{one['accepted']:.1f} of the others. A retrieval score that counts these as errors is too low."
    )


def _trust(curve: Curve) -> str:
    return (
        "Predicted against observed acceptance on images that the curve was not fitted on, in groups of equally many "
        f"pairs; on the line, they are equal. The expected calibration error is {curve.ece:.3f}."
    )


def _diagram(curve: Curve, measure: str) -> Chart:
    values = rows(curve.reliability)
    x = alt.X("predicted:Q", title="predicted share", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("accepted:Q", title="share that people accepted", scale=alt.Scale(domain=[0, 1]))
    told = [alt.Tooltip(f"{name}:Q") for name in ("predicted", "accepted", "pairs")]
    line = alt.Chart(rows([{"a": 0.0}, {"a": 1.0}])).mark_line(strokeDash=[4, 4], aria=False).encode(x="a:Q", y="a:Q")
    dots = alt.Chart(values).mark_line(point=True, aria=False).encode(x, y, tooltip=told)
    said = f"Reliability of P(accepted) by {measure}: expected calibration error {curve.ece:.3f}."
    return made("reliability", f"Reliability of {measure}", said, line + dots)
