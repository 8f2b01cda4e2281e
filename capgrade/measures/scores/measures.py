"""The scores by name, each from a corpus, as the measures that have them declare."""

from __future__ import annotations

from collections.abc import Sequence

from capgrade.measures.base import Measure
from capgrade.measures.catalogue import MEASURES
from capgrade.measures.scores.corpus import Corpus
from capgrade.measures.scores.scored import Scored
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn

BLEUS = ("bleu_1", "bleu_2", "bleu_3", "bleu_4")
DEFAULT = ("bleu", "meteor", "rouge_l", "cider")  # what pycocoevalcap has without further downloads


def known_scores() -> list[str]:
    """What `scored` takes: measures that score a corpus, and BLEU of each order."""
    return [
        *(name for name, kind in MEASURES.items() if kind.of_corpus is not Measure.of_corpus),
        *BLEUS,
    ]


def scored(corpus: Corpus, measures: Sequence[str]) -> dict[str, Scored]:
    """The named measures in the order asked for; `bleu` stands for bleu_1 .. bleu_4.

    InputError for an unknown one.
    """
    names = list(
        dict.fromkeys(one for name in measures for one in (BLEUS if name == "bleu" else (name,)))
    )
    unknown = [name for name in names if name not in known_scores()]
    if unknown or not names:
        problem = f"unknown measure '{unknown[0]}'" if unknown else "no measure"
        raise InputError(problem, remedy=f"choose from: {', '.join(known_scores())}")
    corpus.warn_of_empty()
    found: dict[str, Scored] = {}
    for name in names:
        measure = "bleu" if name in BLEUS else name
        if name not in found:
            found |= MEASURES[measure]().of_corpus(corpus)
    none = [
        name
        for name in names
        if name in BLEUS and not found[name].statistics[:, 1 + int(name[-1])].any()
    ]
    if (
        none and corpus.words.sizes[: len(corpus.candidates.owner)].any()
    ):  # else a warning has said so already
        why = f"no {none[0][-1]} words in a row of any candidate are in its references"
        warn(f"{', '.join(none)}: 0, as {why} (BLEU is for larger corpora)")
    return {name: found[name] for name in names}
