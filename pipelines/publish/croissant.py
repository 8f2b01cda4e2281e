"""Croissant metadata of a published folder, as JSON-LD for search engines and ML frameworks.

Here too is what whoever uses the labels must know of them, which the dataset card says as well.
Format: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html, with the fields of its
RAI extension: https://docs.mlcommons.org/croissant/docs/croissant-rai-spec.html.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from capgrade.pipelines.publish.tables import Contents, PublishedTable
from capgrade.schemas.judges import SAID
from capgrade.schemas.licences import OTHER, SPDX, UNKNOWN_LICENCE

CONFORMS_TO = ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]
CONTEXT = Path(__file__).with_name("croissant_context.json")
PARQUET = "application/x-parquet"
TYPES = {
    pa.string(): "sc:Text",
    pa.bool_(): "sc:Boolean",
    pa.float32(): "cr:Float32",
    pa.float64(): "cr:Float64",
    pa.int32(): "cr:Int32",
}

_TOLD = {
    "texts": (
        "Captions are published as the source has them; nobody searched them for personal"
        " information."
    ),
    "ids": "Captions are published as ids and digests, without their texts.",
}
LIMITS = (
    (
        "Labels are computed from text: a caption is compared with the image's own captions, and"
        " nobody looked at the image. What those captions leave out counts as irrelevant."
    ),
    (
        "Measures are not people, and differ from one another; where agreement with judgements is"
        " known, the dataset card gives it."
    ),
    (
        "Measures with an English lexicon or model (METEOR, scene graphs, SPICE, most Sentence-BERT"
        " models) say little in other languages."
    ),
    (
        "Values of different measures have different scales, and equal values of two measures do"
        " not mean the same."
    ),
)
BIASES = (
    (
        "Captions carry what their writers assumed, such as gender, age, or origin of the people"
        " they describe."
    ),
    (
        "Similarity of words or of sentence embeddings repeats that, and embeddings add what their"
        " training texts assumed."
    ),
)


_JUDGED_LIMITS = (
    "Grades are of judged pairs alone, as their file has them; pairs nobody judged are absent.",
    "Whoever chose the pairs to judge decided what could be found.",
)


def limits_of(contents: Contents) -> list[str]:
    """What whoever uses the labels must know of them, and which biases they have."""
    limits = _JUDGED_LIMITS if contents.judged else LIMITS
    biases = BIASES[:1] if contents.judged else BIASES
    return [*limits, contents.absent, *biases]


def croissant(contents: Contents) -> dict[str, Any]:
    """The JSON-LD document.

    What `params` leave open (authors, date, repository) is left out, never invented. Files are
    addressed in the repository at its version, or relative to this document when there is no
    repository.
    """
    params = contents.params
    address = f"https://huggingface.co/datasets/{params.repository}" if params.repository else ""
    base = f"{address}/resolve/{params.version}/" if address else ""
    files = []
    record_sets = dict[str, Any]()  # a file that is of two configs stands in the first's
    for config, tables in contents.tables.items():
        for table in tables:
            for name in table.files:
                record_sets.setdefault(name, _records(contents, config, table, name))
    for name, entry in contents.files.items():
        files.append(
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": base + name,
                "contentSize": f"{entry['bytes']} B",
                "encodingFormat": PARQUET,
                "sha256": entry["sha256"],
            }
        )
    document = {
        "@context": json.loads(CONTEXT.read_text(encoding="utf-8")),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": params.name,
        "description": contents.introduction,
        "version": params.version,
        "license": licence_address(str(params.license), params.license_link),
        "inLanguage": params.languages[0] if len(params.languages) == 1 else list(params.languages),
        "keywords": ["image-text retrieval", "graded relevance", "captions"],
        "url": address,
        "creator": [{"@type": "sc:Person", "name": name} for name in params.authors],
        "datePublished": params.date,
        "citeAs": params.citation,
        **_responsible(contents),
        "distribution": files,
        "recordSet": list(record_sets.values()),
    }
    return {key: value for key, value in document.items() if value}


def licence_address(licence: str, link: str | None) -> str:
    """The address of a licence's text: `link` for one of the dataset's own, else SPDX's page.

    Of an unknown one it is what the hub says of licences.
    """
    if licence == UNKNOWN_LICENCE:
        return "https://huggingface.co/docs/hub/repositories-licenses"
    return link if licence == OTHER and link else f"https://spdx.org/licenses/{SPDX[licence]}.html"


def _records(contents: Contents, config: str, table: PublishedTable, file: str) -> dict[str, Any]:
    """A record set for each file.

    The reference library reads the columns of a file set only in a repository or archive.
    """
    record_set, fields = file.removesuffix(".parquet"), []
    for field in table.schema:
        is_list, is_picture = pa.types.is_list(field.type), pa.types.is_struct(field.type)
        fields.append(
            {
                "@type": "cr:Field",
                "@id": f"{record_set}/{field.name}",
                "name": field.name,
                "description": contents.meanings[field.name],
                "dataType": (
                    "sc:ImageObject"
                    if is_picture
                    else TYPES[field.type.value_type if is_list else field.type]
                ),
                **({"repeated": True} if is_list else {}),
                "source": {
                    "fileObject": {"@id": file},
                    "extract": {"column": field.name},
                    **({"transform": {"jsonPath": "bytes"}} if is_picture else {}),
                },
            }
        )
    return {
        "@type": "cr:RecordSet",
        "@id": record_set,
        "name": record_set,
        "description": (
            f"Config `{config}`, split `{table.split}`: {table.files[file]['rows']} of {table.rows}"
            " rows."
        ),
        "field": fields,
    }


def _responsible(contents: Contents) -> dict[str, Any]:
    """The RAI fields of the document; None for what is not known of the captions."""
    source = contents.captions["params"]["captions"].get("source")
    drawn = source == "scenes"
    measures, judged = ", ".join(contents.measures), contents.judged
    whence = (
        f"the captions of source `{source}`" if source else "captions whose source is not recorded"
    )
    return {
        "rai:dataCollection": (
            "A program drew the images and wrote the captions."
            if drawn
            else (
                f"Images and captions were not collected for this dataset: it holds {whence}, under"
                " its terms."
            )
        ),
        "rai:dataAnnotationProtocol": (
            f"{judged.pairs:,} pairs have the mean scores that `{judged.file}` gives, and"
            f" {contents.kept}."
            if judged
            else (
                "Every caption of a split was scored against the own captions of every image of"
                f" it, and {contents.kept}. No person labelled them. Measures: {measures}."
            )
        ),
        "rai:machineAnnotationTools": (
            None if judged else [f"capgrade {contents.splits[0].manifest['package']}: {measures}"]
        ),
        "rai:dataAnnotationAnalysis": None if judged else _judged(contents),
        "rai:dataUseCases": (
            "Training and evaluating image-text retrieval with graded relevance; finding false"
            " negatives. Not for judging people, nor as a replacement of people's judgements of"
            " single pairs."
        ),
        "rai:dataLimitations": [*(_JUDGED_LIMITS if judged else LIMITS), contents.absent],
        "rai:dataBiases": list(BIASES[:1] if judged else BIASES),
        "rai:personalSensitiveInformation": (
            "None: texts and images are made by a program."
            if drawn
            else (
                f"{_TOLD[contents.params.captions]} The labels add none, and images are"
                f" {'included, as their source has them' if contents.images else 'not included'}."
            )
        ),
        "rai:dataSocialImpact": (
            "Models are no longer taught that a fitting caption is wrong. Where the labels repeat"
            " assumptions of the captions' writers, models trained on them do too."
        ),
        "rai:hasSyntheticData": True if drawn else None,
        "prov:wasDerivedFrom": None if drawn else whence,
        "prov:wasGeneratedBy": 'The commands under "How it was computed" in the dataset card.',
    }


def _judged(contents: Contents) -> str:
    if not contents.agreement:
        return "Agreement of the measures with people was not measured on these captions."
    measures = contents.agreement["measures"].items()
    each = ", ".join(
        f"{name} {values['spearman']['all']:.3f}"
        for name, values in measures
        if "all" in values["spearman"]
    )
    judged = contents.agreement["judgements"]
    others = (
        ""
        if judged["captions"] in {one.captions.digest for one in contents.splits}
        else " of other captions than these"
    )
    pairs = (
        f"{judged['pairs']:,} pairs of split `{judged['split']}`{others}, which `{judged['file']}`"
        " holds"
    )
    return f"Spearman's rank correlation with {SAID[judged['by']]}, on {pairs}: {each}."
