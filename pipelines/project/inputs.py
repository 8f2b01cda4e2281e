"""Command `inputs`: what each stage is made of, in a small file of its own, which DVC compares.

A file has the parameters that decide the stage's result, and digests of the content of the places
that they name: no path, and nothing that says how the work is done. So moving data, or giving a
stage more workers, runs nothing again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from capgrade.measures import MEASURES, parts_of
from capgrade.measures.params import MeasuresParams
from capgrade.params import Params
from capgrade.pictures.listing import NO_COLUMNS, ImageColumns, pictures_digest
from capgrade.pipelines.features.scan import SUFFIX, ids_file
from capgrade.pipelines.project.pipeline import outputs
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.pretrained import EMBEDDED
from capgrade.schemas.contents import content_digest, walk_files
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import folder_digest, package_version, versions_of_others, write_json
from capgrade.schemas.hub import hub_revision
from capgrade.schemas.natures import (
    LEFT_OUT,
    Manner,
    Nature,
    Place,
    changed,
    each,
    exists,
    is_path,
    measure_names,
)
from capgrade.stages import STAGES
from capgrade.trainer.stages.embed import EMBED
from capgrade.trainer.stages.train import TRAIN, TrainParams

CODE = {".py", ".yaml", ".j2", ".js", ".css", ".json", ".txt", ".safetensors"}
PACKAGE = Path(__file__).parents[2]
# The blocks and keys that the commands of other stages of the pipeline read, beside `measures`.
READ = {
    "report": ("publish.name", "regions.images"),
}
RUNS = "runs"  # folder of what each of `params.runs` is made of


def write_inputs(
    params: Params, out: Path, of_run: Callable[[str], TrainParams] | None = None
) -> dict[str, Any]:
    """Write code.json, a file STAGE.json for each stage and runs/RUN.json for each of
    `params.runs`, whose parameters `of_run` tells (None: those of `params`).

    Paths of `params` are seen from the current folder. InputError for a file that may not be read.
    """
    look = _Look(params, out.resolve().parent)
    runs = {run: params.train if of_run is None else of_run(run) for run in params.runs}
    of_pictures = {run for run, train in runs.items() if _reads_pictures(train.model.name)}
    tree = params.model_dump(mode="json")
    if not of_pictures:
        tree[EMBED.name]["images"] = None
    found: dict[str, Any] = {
        "code": {
            "capgrade": package_version(),
            **checkout_digest(),
            "packages": versions_of_others(),
        },
        **{stage: look.at(_picked(tree, keys), ()) for stage, keys in READ.items()},
        **{
            name: look.at({name: tree[name]}, measure_names(getattr(params, name)))
            for name, stage in STAGES.items()
            if stage.in_pipeline and name != TRAIN.name  # below, for each run
        },
    }
    for run, train in runs.items():
        if run not in of_pictures:
            train = train.model_copy(update={"images": None})
        found[f"{RUNS}/{run}"] = look.at({"train": train.model_dump(mode="json")}, [train.measure])
    (out / RUNS).mkdir(parents=True, exist_ok=True)
    for name, state in found.items():
        write_json(out / f"{name}.json", state)
    return found


def _picked(tree: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The blocks and single keys of a tree that these name."""
    picked: dict[str, Any] = {}
    for key in keys:
        block, _, name = key.partition(".")
        if name:
            picked.setdefault(block, {})[name] = tree[block][name]
        else:
            picked[block] = tree[block]
    return picked


class _Look:
    """A look at the places that parameters name, each once."""

    def __init__(self, params: Params, outputs: Path) -> None:
        self.params, self.outputs = params, outputs
        self.seen: dict[tuple[Place, str, ImageColumns], str | None] = {}

    def at(self, tree: Mapping[str, Any], measures: Iterable[str] = ()) -> dict[str, Any]:
        """What a stage of these blocks and measures is made of: the parameters that decide its
        result, and the digests of what lies at its places."""
        contents: dict[str, Any] = {}

        def look(key: str, nature: Nature | None, value: Any) -> Any:
            if isinstance(nature, Place):
                of_regions = value == self.params.regions.images
                columns = _columns(self.params.regions) if of_regions else NO_COLUMNS
                contents[key] = each(value, lambda one: self._state(nature, one, columns))
                return each(value, lambda one: one if self._is_name(nature, one) else None)
            return LEFT_OUT if isinstance(nature, Manner) else value

        if names := list(measures):
            tree = {**tree, "measures": _blocks_of(self.params.measures, names)}
        params = changed(Params, tree, look)
        if "regions" in tree:
            contents |= _found_beside(tree["regions"])
        return {"params": params, "contents": {k: v for k, v in contents.items() if v}}

    def _state(self, place: Place, value: str, columns: ImageColumns) -> str | None:
        """The digest of what lies at a place; of a name of the hub its commit; None where nothing
        is there. What the pipeline makes itself is named, as DVC compares its content."""
        if (made := self._made_here(value)) is not None:
            return made
        key = place, value, columns
        if key not in self.seen:
            self.seen[key] = self._looked_up(place, value, columns)
        return self.seen[key]

    def _looked_up(self, place: Place, value: str, columns: ImageColumns) -> str | None:
        if not self._is_name(place, value):
            if place.pictures:
                return pictures_digest(value, columns)
            digest, split = content_digest(value), value.partition("#")[2]
            return f"{digest}#{split}" if split and not exists(value) else digest
        # The embedded model comes with a package; a file at a URL has more slashes than a name.
        if place.name in ("model", "dataset") and value.count("/") <= 1 and value != EMBEDDED:
            of_captions = value in self.params.captions.inputs
            return hub_revision(
                value, place.name, self.params.captions.revision if of_captions else None
            )
        return None

    def _is_name(self, place: Place, value: str) -> bool:
        return not (is_path(place, value) or self._made_here(value))

    def _made_here(self, value: str) -> str | None:
        """The place below data/ of what a stage of this pipeline makes, which may not be there yet;
        None for another place."""
        path = Path(value).resolve()
        if not path.is_relative_to(self.outputs) or path == self.outputs:
            return None
        inside = path.relative_to(self.outputs)
        return inside.as_posix() if inside.parts[0].partition("#")[0] in outputs() else None


def _columns(regions: RegionsParams) -> ImageColumns:
    return ImageColumns(regions.image_column, regions.image_id)


def _blocks_of(params: MeasuresParams, names: Sequence[str]) -> dict[str, Any]:
    """The block `measures` of the named ones, those that rank for them, and parts of mixtures."""
    tree = params.model_dump(mode="json")
    parts = parts_of(names, params)
    blocks = {MEASURES[part].block or part for part in parts & MEASURES.keys()}
    rankers = {tree[block]["of"] for block in blocks & tree.keys() if "of" in tree[block]}
    return {
        "imported": {
            name: tree["imported"][name] for name in sorted(parts & params.imported.keys())
        },
        "mixtures": {
            name: params.all_mixtures[name]
            for name in sorted({*names, *rankers} & params.all_mixtures.keys())
        },
        **{block: tree[block] for block in sorted(blocks & tree.keys())},
    }


def _found_beside(regions: Mapping[str, Any]) -> dict[str, Any]:
    """Digests of files that a stage finds beside those that are named: lists of ids, and the
    configs that a config starts from."""
    files, suffix = list[Path](), {"scan": SUFFIX, "h5": ".h5"}.get(regions.get("format", ""), "")
    for name in regions["features"] if suffix else ():
        # What is no such file is refused by its reader.
        with suppress(InputError):
            ids = ids_file(Path(name), suffix)
            files += [ids, ids.with_name(ids.name.replace("_ids.txt", "_caps.txt"))]
    if (config := regions.get("config")) is not None and Path(config).is_file():
        from capgrade.pipelines.detectors.detectron import list_config_files  # imports torch

        with suppress(InputError):
            files += list_config_files(Path(config))
    beside = [content_digest(str(path)) for path in files]
    return {"regions, files beside": beside} if any(beside) else {}


def _reads_pictures(model: str) -> bool:
    """Whether a model of trainer/models reads pictures, not regions."""
    if find_spec("torch") is None:
        return False
    from capgrade.trainer.models import MODELS

    return model in MODELS and MODELS[model].reads == "pictures"


def checkout_digest() -> dict[str, str]:
    """The digest of a checkout's code, which changes while the version does not; empty for an
    installed package."""
    if not (PACKAGE.parent / "pyproject.toml").is_file():
        return {}
    paths = (path for path in walk_files(PACKAGE) if path.suffix in CODE and not path.is_symlink())
    return {"sources": folder_digest(PACKAGE, paths)}
