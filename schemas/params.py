"""params.yaml as typed models: one frozen model a block, unknown keys and wrong values refused with one error."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas.errors import InputError

Source = Literal["scenes", "coco", "karpathy", "flickr", "precomp", "tsv", "csv", "jsonl", "hub"]
Tokenizer = Literal["ptb_py", "ptb", "lower_split", "word_unigram"]
SelfReference = Literal["included", "left_out"]
Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class Block(BaseModel):
    """A block of params.yaml: immutable, and a misspelt key is an error rather than a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Columns(Block):
    """Names of the columns of a table or Hugging Face dataset that hold each field."""

    image_id: str = "image_id"
    caption_id: str | None = None  # None: "caption_id" where it exists, else "<image_id>#<k>"
    caption: str = "caption"  # a string, or a list of strings in a Hugging Face dataset
    split: str | None = None  # None: "split" where it exists, else the split asked for


class ScenesParams(Block):
    """The embedded world: how many scenes a split, how large, and the seed everything follows from."""

    train: Natural = 1000
    val: Natural = 200
    test: Natural = 300
    captions_per_image: Positive = 5
    size: Annotated[int, Field(ge=64, le=1024)] = 224  # pixels, square
    seed: Natural = 0


class CaptionsParams(Block):
    """`capgrade captions`: where captions come from and how they are tokenised."""

    source: Source = "scenes"
    input: str | None = None  # a file, a folder or, for `hub`, a dataset id
    split: str | None = None  # keep this split; or the name of the split where the source has none
    split_lists: dict[str, str] = {}  # split -> file of image ids (Flickr)
    columns: Columns = Columns()
    tokenizer: Tokenizer = "ptb_py"
    empty: Literal["refuse", "drop"] = "refuse"
    scenes: ScenesParams = ScenesParams()

    @model_validator(mode="after")
    def _needs_input(self) -> CaptionsParams:
        if self.source != "scenes" and self.input is None:
            raise ValueError(f"source {self.source} needs an input")
        return self
