"""Parameters without a default, which have to be named."""

from __future__ import annotations

from capgrade.schemas.errors import InputError

SOURCES = "the folder, zip, tars or list of pictures"


def require_param(measure: str, key: str, value: str | None, example: str) -> str:
    """The value of a measure's parameter. InputError, with an example, where there is none."""
    if value is None:
        argument = f"parameters.{measure}.{key}"
        remedy = f"give {{{argument}}}=..., {example}"
        raise InputError(
            f"{measure} needs measures.{measure}.{key}", remedy=remedy, keys=(argument,)
        )
    return value
