"""Own pairs without the caption among its own references: what the published value of an own pair cannot say."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.labels.named import as_named
from capgrade.labels.published import imported, measures_block
from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.own_pairs import own_left_out
from capgrade.pipelines.measures.reads import require_read
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import MeasuresParams, validated
from capgrade.schemas.shards import Shards


def own_without_themselves(captions: Captions, shards: Shards, given: MeasuresParams) -> dict[str, np.ndarray]:
    """float32 [n_captions] of each measure whose own pairs were scored with the caption among its references; NaN
    where an image has no other caption.

    A matrix that was imported, and a mixture with one, has none. Raises InputError where a measure cannot be computed
    here, or would read another file than it did for the shards, or one that `given` does not name (`as_named`).
    """
    used = shards.metadata["params"]["measures"]
    wanted = [name for name, params in used.items() if _includes(params) and not imported(params)]
    made = validated(MeasuresParams, measures_block({name: used[name] for name in wanted}))
    params = as_named(made, given, shards.folder)
    require_read(wanted, params, shards.manifest["inputs"], shards.folder)
    chosen = choose(wanted, params)
    found = {name: own_left_out(measure, captions) for name, measure in chosen.items()}
    return {name: values for name, values in found.items() if values is not None}


def _includes(used: dict[str, Any]) -> bool:
    parts = used.get("measures", {}).values() if "weights" in used else [used]
    return any(part.get("self_reference") == "included" for part in parts)
