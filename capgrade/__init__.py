"""Graded relevance labels for image-text retrieval. The folders beside this file are links to those
of the project.

Public names are imported when they are asked for: `import capgrade` alone loads neither numpy nor
torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Name -> module that has it, imported when it is first asked for.
PUBLIC = {
    "score": "capgrade.scoring",
    "Scores": "capgrade.scoring",
    "CaptionReward": "capgrade.reward",
    "CaptionScores": "capgrade.scoring",
    "CiderReward": "capgrade.reward",
    "Frequencies": "capgrade.measures.frequencies",
    "exact": "capgrade.exact_labels",
    "grade": "capgrade.grading",
    "Sampling": "capgrade.pipelines.stages.shards",
    "train": "capgrade.training",
    "value_at": "capgrade.acceptance",
    "Labels": "capgrade.labels",
    "Qrels": "capgrade.metrics.runs",
    "Run": "capgrade.metrics.runs",
    "CapgradeWarning": "capgrade.schemas.say",
    "InputError": "capgrade.schemas.errors",
    "Draws": "capgrade.evaluation",
    "evaluate": "capgrade.evaluation",
    "evaluate_lists": "capgrade.evaluation",
    "latex_table": "capgrade.evaluation",
}
MODULES = ("coco", "losses", "metrics")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("capgrade")
    if name in MODULES or name in PUBLIC:
        from capgrade.schemas.extras import needs

        with needs("train"):  # losses are of tensors
            module = import_module(PUBLIC.get(name, f"capgrade.{name}"))
        return getattr(module, name) if name in PUBLIC else module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "__version__", *PUBLIC, *MODULES])
