"""A benchmark's grades from judgements: people's scores of pairs, or a judge's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.agreement.judgement_files import judged_digest, read_judgements
from capgrade.agreement.judgements import Judgements
from capgrade.labels import Labels
from capgrade.labels.stored import Sampled
from capgrade.pipelines.publish.tables import Judged, PublishedSplit
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import package_version
from capgrade.schemas.pairs import PairLists, Pairs
from capgrade.schemas.say import tell

JUDGED = "judged"  # what these labels' only measure is called
_OF_REGRADE = "judged.csv"  # in a folder of `capgrade regrade`


def _judgements_file(params: PublishParams) -> Path:
    """What is read: of a folder of `capgrade regrade` its judge's answers."""
    path = Path(str(params.judgements))
    return path / _OF_REGRADE if (path / _OF_REGRADE).is_file() else path


def judged_split(captions_dir: Path, params: PublishParams) -> tuple[PublishedSplit, Judged]:
    """The judged pairs of a split of captions as labels, and what is known of them.

    An own pair that nobody judged counts with the scale's highest score, or the highest that was
    given: its caption was written for its image. Judgements of other captions are left out and
    counted. InputError as `read_judgements`.
    """
    captions, path = read_captions(captions_dir, params.split), _judgements_file(params)
    people = read_judgements(path, captions, partly=True)
    pairs = _judged_pairs(people, captions)
    image, caption = (np.zeros(n, bool) for n in (captions.n_images, captions.n_captions))
    image[pairs.image], caption[pairs.caption] = True, True
    low, high = people.scale or (0.0, float(pairs.value.max()))
    own = np.flatnonzero(image[captions.owner] | caption)
    own = own[pairs.rows_of(captions.owner[own], own) < 0]
    added = Pairs(captions.owner[own], own, np.ones(len(own)), {JUDGED: np.full(len(own), high)})
    labels = _labels_of(path, Pairs.concatenate([pairs, added]), captions)
    if people.left_out:
        tell(f"{path}: {people.left_out:,} judgements are of other captions, and are left out")
    facts = Judged(
        file=path.name,
        sha256=judged_digest(path),
        pairs=len(pairs),
        low=low,
        high=high,
        own_added=len(own),
        left_out=people.left_out,
        asked=(image, caption),
    )
    manifest: dict[str, Any] = {"kind": "judgements", "package": package_version()}
    name = captions.split
    return PublishedSplit(name, labels, captions, {**manifest, "params": {"measures": {}}}), facts


def _judged_pairs(people: Judgements, captions: Captions) -> Pairs:
    """Each judged pair with the mean of its scores. Random pairs that stand for a `no`, as ECCV
    Caption's, are no judgements."""
    pairs = people.means(captions.n_captions).among(
        np.arange(captions.n_images), np.arange(captions.n_captions)
    )
    if people.uncalibrated:
        pairs = pairs.take(pairs.value > 0)
    if not np.isfinite(pairs.value).all():
        raise InputError("a score that is no number", remedy="give finite scores")
    return Pairs(pairs.image, pairs.caption, pairs.weight, {JUDGED: pairs.value})


def _labels_of(path: Path, pairs: Pairs, captions: Captions) -> Labels:
    order = np.lexsort((pairs.caption, pairs.image))
    reasons = np.zeros(len(pairs), np.uint32)
    columns = Pairs(pairs.image, pairs.caption, pairs.weight, pairs.values, reasons).take(order)
    parts: Sequence[PairLists] = [PairLists.from_pairs(columns, captions.n_images)]
    stored = Sampled([JUDGED], captions.n_captions, list(parts), [])
    return Labels(path, stored, captions.image_ids, captions.n_captions, captions.owner, captions)
