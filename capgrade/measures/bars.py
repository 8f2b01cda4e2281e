"""What the Java scorers of METEOR and SPICE cannot be asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capgrade.schemas.errors import InputError
from capgrade.text.tokens import Words


def refuse_bars(tokens: Words, ids: Sequence[str]) -> None:
    """InputError for a caption with '|||'.

    It separates captions in the protocols of METEOR's jar and of SPICE's.
    """
    rows = tokens.sentences_with(np.array(["|||" in token for token in tokens.vocabulary], bool))
    if len(rows):
        problem = f"caption '{ids[rows[0]]}' has '|||', which separates METEOR's captions"
        raise InputError(problem, remedy="remove it from the caption")
