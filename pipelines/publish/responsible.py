"""What whoever uses the labels must know of them: said in the dataset card, and as the RAI fields of Croissant.

Vocabulary: https://docs.mlcommons.org/croissant/docs/croissant-rai-spec.html.
"""

from __future__ import annotations

from typing import Any

from capgrade.pipelines.publish.tables import Described
from capgrade.schemas.judges import SAID

LIMITS = (
    "Labels are computed from text: a caption is compared with the image's own captions, and nobody looked at the "
    "image. What those captions leave out counts as irrelevant.",
    "Measures are not people, and differ from one another; where agreement with judgements is known, the dataset card "
    "gives it.",
    "Measures with an English lexicon or model (METEOR, scene graphs, SPICE, most Sentence-BERT models) say little in "
    "other languages.",
    "Values of different measures have different scales, and equal values of two measures do not mean the same.",
)
BIASES = (
    "Captions carry what their writers assumed, such as gender, age, or origin of the people they describe.",
    "Similarity of words or of sentence embeddings repeats that, and embeddings add what their training texts assumed.",
)


def responsible(contents: Described) -> dict[str, Any]:
    """The RAI fields of the Croissant document. What is not known of the captions is left out, never invented."""
    source = contents.captions_params.get("source")
    drawn = source == "scenes"
    measures = ", ".join(contents.measures)
    whence = f"the captions of source `{source}`" if source else "captions whose source is not recorded"
    facts = {
        "rai:dataCollection": (
            "A program drew the images and wrote the captions."
            if drawn
            else f"Images and captions were not collected for this dataset: it holds {whence}, under its terms."
        ),
        "rai:dataAnnotationProtocol": (
            "Every caption of a split was scored against the own captions of every image of it, and "
            f"{contents.kept}. No person labelled them. Measures: {measures}."
        ),
        "rai:machineAnnotationTools": [f"capgrade {contents.package}: {measures}"],
        "rai:dataAnnotationAnalysis": _judged(contents),
        "rai:dataUseCases": (
            "Training and evaluating image-text retrieval with graded relevance; finding false negatives. Not for "
            "judging people, nor as a replacement of people's judgements of single pairs."
        ),
        "rai:dataLimitations": [*LIMITS, contents.absent],
        "rai:dataBiases": list(BIASES),
        "rai:personalSensitiveInformation": (
            "None: texts and images are made by a program."
            if drawn
            else "Captions are published as the source has them; nobody searched them for personal information. The "
            "labels add none, and images are not included."
        ),
        "rai:dataSocialImpact": (
            "Models are no longer taught that a fitting caption is wrong. Where the labels repeat assumptions of the "
            "captions' writers, models trained on them do too."
        ),
        "rai:hasSyntheticData": True if drawn else None,
        "prov:wasDerivedFrom": None if drawn else whence,
        "prov:wasGeneratedBy": 'The commands under "How it was computed" in the dataset card.',
    }
    return {name: value for name, value in facts.items() if value}


def _judged(contents: Described) -> str:
    """Agreement of the measures with judgements, or that it is not known."""
    if not contents.agreement:
        return "Agreement of the measures with people was not measured on these captions."
    found = contents.agreement["measures"].items()
    each = ", ".join(f"{name} {values['spearman']['all']:.3f}" for name, values in found if "all" in values["spearman"])
    judged = contents.agreement["judgements"]
    others = "" if judged["captions"] in {one.digest for one in contents.captions} else " of other captions than these"
    pairs = f"{judged['pairs']:,} pairs of split `{judged['split']}`{others}, which `{judged['file']}` holds"
    return f"Spearman's rank correlation with {SAID[judged['by']]}, on {pairs}: {each}."
