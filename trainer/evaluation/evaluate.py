"""Stage: a similarity matrix, captions and labels in; every metric, with intervals, and curves for
`dvc plots`, out."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from capgrade.agreement.judgement_files import judged_digest, name_judgements
from capgrade.evaluation import LACKS, Draws, Evaluation, may_be_cosines
from capgrade.evaluation import evaluate as of_arrays
from capgrade.lists import list_file
from capgrade.metrics.catalogue import is_graded, needs_of
from capgrade.metrics.mined import mined_precision, mined_precision_classes
from capgrade.metrics.ranking import TieRule
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    found_digests,
    found_manifest,
    package_version,
    write_json,
)
from capgrade.schemas.progress import counted_work, progress
from capgrade.schemas.run import StageRun
from capgrade.trainer.evaluation.order import MatrixIds
from capgrade.trainer.evaluation.stored import METRICS_FILE, PER_QUERY_FILE, write_queries
from capgrade.trainer.evaluation.tables import table_text
from capgrade.trainer.evaluation.task import Task, load_listed_task, load_task, positives_file
from capgrade.trainer.stages.evaluate import EVALUATE, EvaluateParams


def _default_names(task: Task, params: EvaluateParams, fold: int | None = None) -> list[str]:
    """Names of the whole set that this task can answer: those of no relevance, then the graded
    ones."""
    cutoffs, images = params.k, fold or len(task.similarity)
    # Lists of positives are of the whole gallery, not of a fold.
    lists = task.positives if fold is None else {}
    plain = [f"{name}@{k}" for name in ("recall", "r") for k in cutoffs] + ["medr", "meanr"]
    if may_be_cosines(task.similarity):
        plain += [f"{name}@{k}" for name in ("lambda", "lambda_other") for k in cutoffs]
    if "eccv" in lists:
        plain += ["map@r", "r_precision", "eccv_recall@1"]
    plain += [
        f"{name}_recall@{k}" for name in ("cxc", "accepted") if name in lists for k in cutoffs
    ]
    plain += [] if task.codes is None else ["pmrp"]
    right: list[str] = []
    if params.above and fold is None:
        right = [f"relevant_{name}@{k}" for name in ("recall", "r") for k in cutoffs]
        right.append("relevant_map@r")
    if task.samples:
        gains = [f"ncs@{k}" for k in cutoffs] + [
            f"{name}@{params.p}" for name in ("ndcg", "ndcg_exp")
        ]
        return [*plain, *(gains if fold is None else ()), *right]
    if not task.relevance:
        return plain
    graded = [
        f"{name}@{k}" for name in ("ncs", "ncs_other", "ncs_eq5", "ncs_authors") for k in cutoffs
    ]
    graded += [f"{name}@{params.p}" for name in ("ndcg", "ndcg_exp")] + [
        "asp",
        "kendall_tau_a",
        "kendall_tau_b",
    ]
    graded += [f"{name}@{k}" for name in ("cs", "cs_tau_a") for k in cutoffs if k > 1]
    sizes = [m for m in params.m if m < images]
    kinds = ("sr", "sr_other", "sr_soft", "sr_soft_other", "sr_authors", "sr_soft_authors")
    graded += [f"{name}@{k}(m={m})" for name in kinds for m in sizes for k in cutoffs]
    return [*plain, *graded, *right, *(["asp_a"] if len(task.relevance) > 1 else [])]


def score(
    task: Task, params: EvaluateParams, *, fold: int | None = None, notes: Sequence[str] = ()
) -> Evaluation:
    """`capgrade.evaluate` of a task, over the whole set or averaged over folds of `fold` images."""
    for name in params.metric:
        if why := task.without.get(needs_of(name)):
            problem = f"metric {name!r} needs {LACKS[needs_of(name)][0]}: {why.problem}"
            raise InputError(problem, remedy=why.remedy)
    names = sorted(params.metric, key=is_graded) or _default_names(task, params, fold)
    evaluation = of_arrays(
        task.similarity,
        task.samples or task.relevance,
        names,
        owner=task.owner,
        positives=task.positives,
        classes=task.codes,
        above=params.above or None,
        fold=fold,
        ids=task.ids,
        ties=params.ties,
        intervals=Draws(samples=params.samples, seed=params.seed),
        judgements=task.judgements if fold is None else None,
    )
    counts = {**evaluation.counts, **({"left_out": task.left_out} if task.left_out else {})}
    basis = evaluation.basis
    if task.ids is not None and len(task.texts):
        read = json.dumps(sorted(zip(task.ids[1], task.texts, strict=True)))
        texts = {"texts": hashlib.sha256(read.encode()).hexdigest()}
        basis = replace(basis, labels={**basis.labels, **texts})
    notes = [*notes, *evaluation.notes]
    return replace(evaluation, notes=notes, counts=counts, basis=basis)


def evaluate(
    task: Task,
    params: EvaluateParams,
    *,
    notes: Sequence[str] = (),
    out: Path | None = None,
    inputs: Mapping[str, str] | None = None,
) -> list[Evaluation]:
    """Score the whole set and then each size of folds; with `out`, write there metrics.json for
    `dvc metrics`, curves_*.json for `dvc plots` and per_query.npz for paired tests (`compare`).
    `inputs` are the digests of what the task was read from.

    InputError for an `out` that another stage wrote."""
    run = StageRun(stage=EVALUATE, params=params, inputs=dict(inputs or {}))
    with nullcontext() if out is None else run.folder(out) as folder:
        sizes: list[int | None] = [None, *params.fold]  # of folds; None: the whole set
        queries = sum(task.similarity.shape)
        passes = len(sizes) + (folder is not None)
        evaluations, drawn = [], {}
        with progress("scoring queries", queries * passes, "queries") as advance:
            for size in sizes:
                with counted_work(queries, advance):
                    said = notes if size is None else ()
                    evaluations.append(score(task, params, fold=size, notes=said))
            if folder is not None:
                with counted_work(queries, advance):
                    drawn = curves(task, params.k, params.ties)
        if folder is not None:
            write_queries(folder / PER_QUERY_FILE, evaluations[0])
            tables: dict[str, Any] = {f"curves_{k}.json": v for k, v in drawn.items()}
            tables[METRICS_FILE] = as_json(evaluations)
            for name, content in tables.items():
                write_json(folder / name, content)
            run.finish(folder, dict.fromkeys([*tables, PER_QUERY_FILE], 0))
    return evaluations


@dataclass(frozen=True)
class Evaluations:
    """The whole set, then folds of each size."""

    every: Sequence[Evaluation]

    @property
    def whole(self) -> Evaluation:
        """That of the whole set."""
        return self.every[0]

    def json(self) -> dict[str, Any]:
        """As `as_json`."""
        return as_json(self.every)

    def text(self, every: bool) -> str:
        """What `table_text` makes of them."""
        return table_text(self.every, every=every)


def evaluate_files(
    captions: Path | None,
    out: Path | None,
    params: EvaluateParams,
    *,
    similarity: Sequence[Path] = (),
    relevance: Path | None = None,
) -> Evaluations:
    """Read scores and labels, and `evaluate` them. InputError as `load_task`, with a list as
    `load_listed_task`, and for captions or relevance beside a list."""
    ids = MatrixIds(*map(_path, (params.row_ids, params.column_ids)))
    given = ids if ids.rows or ids.columns else None
    if params.lists is not None:
        if captions or relevance:
            problem = f"--{'captions' if captions else 'relevance'} with evaluate.lists"
            raise InputError(problem, remedy="leave one of them out")
        inputs = inputs_of(captions, params, similarity=similarity)
        lists = list_file(params.lists)
        task, notes = load_listed_task(lists, similarity, likely=params.likely, ids=given)
        return Evaluations(evaluate(task, params, notes=notes, out=out, inputs=inputs))
    if captions is None:
        raise InputError("nothing to evaluate", remedy="give --captions, or --lists")
    if params.stand_in is not None and given:
        problem = f"evaluate.{'row_ids' if ids.rows else 'column_ids'} with evaluate.stand_in"
        raise InputError(problem, remedy="leave one of them out")
    inputs = inputs_of(captions, params, similarity=similarity, relevance=relevance)
    of_images, of_captions = map(_path, params.embeddings or (None, None))
    task, notes = load_task(
        captions,
        similarity=similarity,
        embeddings=None if of_images is None or of_captions is None else (of_images, of_captions),
        stand_in=params.stand_in,
        split=params.split,
        likely=params.likely,
        ids=given,
        judgements=list(_judged(params).values()),
        relevance=relevance,
        positives=positives_file(params.positives),
        instances=_path(params.instances),
    )
    return Evaluations(evaluate(task, params, notes=notes, out=out, inputs=inputs))


def inputs_of(
    captions: Path | None,
    params: EvaluateParams,
    *,
    similarity: Sequence[Path] = (),
    relevance: Path | None = None,
) -> dict[str, str]:
    """The digests of what `evaluate_files` reads, by name, as the manifest has them. InputError for
    an unknown list."""
    matrices: dict[str, Path | None] = {
        **dict(zip(similarity_names(similarity), similarity, strict=True))
    }
    matrices |= {"row_ids": _path(params.row_ids), "column_ids": _path(params.column_ids)}
    if params.lists is not None:
        inputs = found_digests(lists=list_file(params.lists), **matrices)
        return {**inputs, "likely": f"{params.likely:g}"}
    of_images, of_captions = map(_path, params.embeddings or (None, None))
    inputs = found_digests(
        captions=captions,
        relevance=relevance,
        positives=positives_file(params.positives),
        instances=_path(params.instances),
        image_embeddings=of_images,
        caption_embeddings=of_captions,
        **matrices,
    )
    inputs |= {f"judgements {name}": judged_digest(path) for name, path in _judged(params).items()}
    return inputs | ({} if params.split is None else {"split": params.split})


def is_current(folder: Path, params: EvaluateParams, inputs: Mapping[str, str]) -> bool:
    """Whether a folder is what this version of `evaluate` would write there of such inputs
    (`inputs_of`)."""
    manifest = found_manifest(folder / MANIFEST)
    made = StageRun(stage=EVALUATE, params=params, inputs=inputs).made_with
    wanted = {
        "kind": EVALUATE.name,
        "package": package_version(),
        "params": made,
        "inputs": dict(inputs),
    }
    return {key: manifest.get(key) for key in wanted} == wanted


def _judged(params: EvaluateParams) -> dict[str, Path]:
    return name_judgements(map(Path, params.judgements))


def _path(place: str | None) -> Path | None:
    return None if place is None else Path(place)


def as_json(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """The whole set at the top, other protocols under `folds`."""
    return {
        **evaluations[0].json(),
        "folds": {item.protocol.split()[-1]: item.json() for item in evaluations[1:]},
    }


def similarity_names(files: Sequence[Path]) -> list[str]:
    """What the similarities of an evaluation are called among its inputs."""
    return ["similarity"] if len(files) == 1 else [f"similarity {k + 1}" for k in range(len(files))]


CURVE = (1, 2, 3, 5, 10, 20, 30, 50)


def curves(task: Task, ks: Sequence[int], ties: TieRule) -> dict[str, list[dict[str, Any]]]:
    """Rows for plots: recall, NCS and NDCG against K; SR@K against m; precision of mined
    positives."""
    first = dict(list((task.samples or task.relevance).items())[:1])
    bases = ("recall", "r", *(("ncs", "ndcg") if first else ()))
    cuts = [k for k in CURVE if k <= len(task.similarity)]
    sizes = [m for m in CURVE if task.relevance and m < len(task.similarity)]
    names = [f"{base}@{k}" for base in bases for k in cuts] + [
        f"sr@{k}(m={m})" for k in ks for m in sizes
    ]
    evaluation = of_arrays(
        task.similarity, first, names, owner=task.owner, ties=ties, intervals=None
    )
    by_k: list[dict[str, Any]] = []
    by_m: list[dict[str, Any]] = []
    for direction, scored in evaluation.scored.items():
        values = scored.mean
        by_k += [
            {"direction": direction, "k": k, **{base: values[f"{base}@{k}"] for base in bases}}
            for k in cuts
        ]
        by_m += [
            {"direction": direction, "k": k, "m": m, "sr": values[f"sr@{k}(m={m})"]}
            for k in ks
            for m in sizes
        ]
    return {"k": by_k, "m": by_m, "mined": _mined_curves(task)}


def _mined_curves(task: Task) -> list[dict[str, Any]]:
    """Precision of mined pairs against human positives, original pairs aside, for every measure and
    for classes."""
    rows = []
    for human, (lists, _) in task.positives.items():
        if human == "accepted":
            continue
        curves = {
            name: mined_precision(matrix, lists, task.owner)
            for name, matrix in task.relevance.items()
        }
        if task.codes is not None:
            curves["classes"] = mined_precision_classes(task.codes, lists, task.owner)
        rows += [
            {"human": human, "measure": name, **row}
            for name, curve in curves.items()
            for row in curve
        ]
    return rows
