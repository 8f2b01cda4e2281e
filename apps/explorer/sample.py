"""A sample of pairs to rate, of what there is to explore."""

from __future__ import annotations

from pathlib import Path

from capgrade.apps.explorer.plans import (
    plan_listed,
    plan_misses,
    plan_most_informative,
    plan_pool,
    write_lines,
    write_plan,
)
from capgrade.apps.explorer.start import ExplorerFolders, open_corpus, read_matrices, read_models
from capgrade.schemas.params import ExploreParams
from capgrade.schemas.reviews import ReviewPlan


def write_sample(
    out: Path, folders: ExplorerFolders, settings: ExploreParams, listed: Path | None = None
) -> ReviewPlan:
    """Choose pairs, write them as a review to `out`, and return them: those of the table `listed`;
    with a `pool` a pool; of a run a model's misses; else those on which measures disagree most.
    InputError as of what chooses them."""
    corpus = open_corpus(folders)
    drawn = corpus.captions, corpus.fingerprint
    if listed is not None:
        plan = plan_listed(listed, *drawn, settings.seed)
    elif settings.pool is not None:
        matrices = {
            f"model {k}": model.matrix for k, model in enumerate(read_matrices(folders, corpus), 1)
        }
        plan = plan_pool(
            corpus.pairs, matrices, *drawn, settings.pool, settings.count, settings.seed
        )
    elif not folders.runs:
        plan = plan_most_informative(corpus.pairs, *drawn, settings.count, settings.seed)
    else:
        options = settings.direction, settings.gallery
        plan = plan_misses(
            read_models(folders, corpus)[0], *drawn, settings.count, settings.seed, *options
        )
    write_plan(out, plan)
    write_lines(out, plan, corpus.captions)
    return plan
