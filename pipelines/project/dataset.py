"""What is known of a dataset before a project over it is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from capgrade.pictures.listing import NO_COLUMNS, ImageColumns


@dataclass(frozen=True)
class Dataset:
    """The block `captions` of a dataset's parameters, and its pictures or features."""

    captions: dict[str, Any]
    images: str | None = None
    features: dict[str, Any] | None = None  # keys of the block `regions`
    columns: ImageColumns = NO_COLUMNS  # of pictures in a table
    judgements: tuple[str, ...] = ()  # files of people's scores of pairs
    instances: str | None = None  # COCO's, of the split that is evaluated
    params: Mapping[str, Any] = field(default_factory=dict)  # a template's regions, runs, presets
