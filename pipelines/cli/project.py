"""Commands around a project of DVC: its files, and what its stages are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from capgrade.pipelines.options import (
    COMMON_OPTIONS,
    FOLDER,
    NAME,
    PATH,
    CommonOptions,
    Out,
    load,
    parse_pairs,
    print_result,
    refuse_options,
)
from capgrade.schemas.errors import InputError, choose_from

if TYPE_CHECKING:
    from capgrade.trainer.stages.train import TrainParams


def init(
    folder: Annotated[
        Path, typer.Argument(metavar=FOLDER, help="Folder to make, or an empty one.")
    ] = Path(),
    template: Annotated[
        str | None,
        Option(metavar=NAME, help="Known dataset: scenes, flickr8k, flickr30k or coco."),
    ] = None,
    data: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="With --template: the folder that the dataset lies in."),
    ] = None,
    source: Annotated[
        str | None,
        Option(metavar=NAME, help="Instead: a source, as `capgrade captions` takes it."),
    ] = None,
    input: Annotated[
        list[str] | None, Option(metavar=PATH, help="Its file, folder or Hugging Face dataset.")
    ] = None,
    split_lists: Annotated[
        list[str] | None,
        Option(metavar="SPLIT=FILE", help="Files of the image ids of each split, for flickr."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        Option(
            metavar="FIELD=COLUMN",
            help="Columns of image_id, caption_id, caption, split or image_file.",
        ),
    ] = None,
    images: Annotated[
        str | None, Option(metavar=PATH, help="Images, as `capgrade regions` takes them.")
    ] = None,
    features: Annotated[
        list[str] | None,
        Option(metavar=PATH, help="Or features of others, as `capgrade regions` takes them."),
    ] = None,
    format: Annotated[
        str | None, Option(metavar=NAME, help="Of --features: tsv, npz, teran, scan, h5, ...")
    ] = None,
    preset: Annotated[
        list[str] | None,
        Option(
            metavar=NAME,
            help="What to train, of `capgrade list presets`; repeat it. Default: triplet.",
        ),
    ] = None,
    licence: Annotated[
        str | None,
        Option("--license", metavar=NAME, help="Licence of the captions. Default: unknown."),
    ] = None,
    language: Annotated[
        str | None,
        Option(
            metavar="CODE", help="Language of the captions, such as de. Default: en, if they are."
        ),
    ] = None,
    common: CommonOptions = COMMON_OPTIONS,
) -> None:
    """A project for `dvc repro` over your own data: params.yaml, dvc.yaml, .gitignore and a README.

    It reads the captions and finds pictures for them before it writes.
    """
    from capgrade.pipelines.project.init import (
        in_project,
        inspect_dataset,
        params_of_dataset,
        stages_that_stop,
        with_sets,
    )
    from capgrade.pipelines.project.init import write_project as write
    from capgrade.schemas.extras import require

    require("dvc")
    options: dict[str, Any] = {
        "source": source,
        "input": input,
        "images": images,
        "features": _features_of(features, format),
        "split_lists": split_lists,
        "columns": columns,
    }
    if template is not None:
        refuse_options("with --template", **{**options, "features": None})
        dataset = _dataset_of_template(template, data, options["features"])
    elif options["source"] is None:
        raise InputError(
            "no dataset", remedy="give --template, or --source, --input and --images or --features"
        )
    else:
        refuse_options("without --template", data=data)
        dataset = _dataset_of_options(options)
    sets = common.sets or []
    dataset = with_sets(dataset, sets)
    facts = inspect_dataset(dataset)
    name = folder.resolve().name
    tree = params_of_dataset(dataset, facts, name, preset or [], licence, language, sets)
    lines = [facts.line(), *facts.notes]
    if sizes := tree["captions"].get("divide"):
        lines.append(
            "no splits:"
            f" {', '.join(f'{size:g} of the images are {split}' for split, size in sizes.items())}"
        )
    if facts.not_english:
        lines.append(
            "sbert's default model is for English: --set measures.sbert.model=MODEL names another"
        )
    lines += stages_that_stop(tree, facts)
    for line in lines:
        typer.echo(line, err=common.as_json)
    tree = in_project(tree, folder)
    made = write(folder, tree, f"{facts.line()}.")
    print_result(
        {"files": made, "params": tree},
        common.as_json,
        f"{', '.join(made)} -> {folder}; now: cd {folder} && dvc repro",
    )


def _dataset_of_template(template: str, data: Path | None, features: dict[str, Any] | None) -> Any:
    from capgrade.pipelines.project.init import SCENES_DATASET
    from capgrade.pipelines.project.layouts import LAYOUTS

    if template == "scenes":
        refuse_options("with --template scenes, which draws its data", data=data, features=features)
        return SCENES_DATASET
    if template not in LAYOUTS:
        raise InputError(
            f"no template '{template}'", remedy=choose_from(template, ("scenes", *LAYOUTS))
        )
    if data is None:
        raise InputError(f"where {template} lies is not said", remedy="give --data FOLDER")
    dataset = LAYOUTS[template](data, not features)
    return replace(dataset, features=features) if features else dataset


def _dataset_of_options(options: dict[str, Any]) -> Any:
    """A dataset by its own options."""
    from capgrade.pipelines.project.dataset import Dataset

    captions: dict[str, Any] = {"source": options["source"]}
    if options["input"]:
        inputs = options["input"]
        captions["input"] = list(inputs) if len(inputs) > 1 else inputs[0]
    if lists := parse_pairs(options["split_lists"], "--split-lists"):
        captions["split_lists"] = lists
    if columns := parse_pairs(options["columns"], "--columns"):
        captions["columns"] = columns
    if (options["images"] is None) == (not options["features"]):
        raise InputError(
            "pictures or features, one of them",
            remedy="give --images, or --features PATH and --format",
        )
    if options["images"] is not None:
        return Dataset(captions, images=options["images"])
    return Dataset(captions, features=options["features"])


def _features_of(paths: list[str] | None, format: str | None) -> dict[str, Any] | None:
    """What the block `regions` says of features. InputError for a half of it."""
    if paths is None and format is None:
        return None
    if paths is None or format is None:
        remedy = "give --features PATH and --format, or neither"
        raise InputError("features need both their place and their format", remedy=remedy)
    return {"features": paths, "format": format}


def inputs(out: Out, common: CommonOptions = COMMON_OPTIONS) -> None:
    """What the stages of a pipeline are made of: the version of capgrade, and the files that
    --params names."""
    from capgrade.pipelines.project.inputs import write_inputs

    def of_run(name: str) -> TrainParams:
        return load(common.params, common.sets, train={"preset": name}).train

    found = write_inputs(load(common.params, common.sets), out, of_run)
    places = {key for state in found.values() for key in state.get("contents", {})}
    told = f"{len(found) - 1:,} stages and runs, {len(places):,} parameters of places looked at"
    print_result(found, common.as_json, f"capgrade {found['code']['capgrade']}, {told} -> {out}")
