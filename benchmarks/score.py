"""Scores of captions beside pycocoevalcap, tokens and all, in one run on the same captions.

Of each image the first caption is the candidate and the others are the references. Seconds of the
peer include the start of its JVM, which it starts for every tokenisation and for METEOR;
`peer_seconds_started` leaves the start out. Ours are of a process that has scored before;
`first_seconds` is of the first call, which reads METEOR's data.
"""

from typing import Any

import numpy as np

from capgrade.benchmarks.harness import Asked, Rows, Texts, best, coco_scorer, once
from capgrade.measures.catalogue import MEASURES
from capgrade.measures.scores.candidates import pair_candidates
from capgrade.measures.scores.corpus import Corpus
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.scoring import scored

_NAMES = ("bleu", "meteor", "rouge_l", "cider")


def bench(asked: Asked) -> Rows:
    """Of the tokeniser, each measure and all together: seconds of both, their ratio, the same
    without the JVM's start, and the largest difference of corpus and sentence values. InputError
    for an image with one caption."""
    candidates, references = _split(read_captions(asked.captions, asked.bench.split))

    def corpus() -> Corpus:
        return Corpus(pair_candidates(candidates, references))

    first, _ = once(lambda: scored(corpus(), _NAMES))
    tokens = corpus()
    result = {}
    result["tokenizer"], lines = _tokenizer(tokens, candidates, references)
    for name in _NAMES:
        result[name] = _measure(name, corpus, tokens, *lines)
    seconds, _ = best(lambda: scored(corpus(), _NAMES))
    peer, started = (
        sum(row[key] for row in result.values()) for key in ("peer_seconds", "peer_seconds_started")
    )
    largest = max(row["max_abs_diff"] for row in result.values())
    rest = {"first_seconds": first.seconds, "images": len(candidates)}
    result["total"] = _row(seconds, peer, started, largest) | rest
    return result


def _split(captions: Captions) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The first caption of each image, and the others."""
    texts = captions.texts
    sets = [[texts[row] for row in own] for own in np.split(captions.refs, captions.ref_ptr[1:-1])]
    lonely = [image for image, own in zip(captions.image_ids, sets, strict=True) if len(own) < 2]
    if lonely:
        problem = f"image '{lonely[0]}' has one caption: a candidate without references"
        raise InputError(problem, remedy="give captions with two or more for each image")
    named = list(zip(captions.image_ids, sets, strict=True))
    return {image: own[:1] for image, own in named}, {image: own[1:] for image, own in named}


def _row(seconds: float, peer: float, started: float, difference: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "peer_seconds": peer,
        "ratio": peer / seconds,
        "peer_seconds_started": started,
        "ratio_started": started / seconds,
        "max_abs_diff": difference,
    }


def _tokenizer(
    tokens: Corpus, candidates: Texts, references: Texts
) -> tuple[dict[str, Any], list[Texts]]:
    """The tokeniser's row, and the peer's lines of references and candidates."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    def tokenized(*sets: Texts) -> list[Texts]:
        return [
            PTBTokenizer().tokenize({i: [{"caption": t} for t in own] for i, own in some.items()})
            for some in sets
        ]

    peer, (gts, res) = once(tokenized, references, candidates)
    start, _ = best(lambda: tokenized({"1": ["a dog"]}))
    lines = [text for some in (res, gts) for own in some.values() for text in own]
    different = sum(" ".join(tokens.tokens.sentence(k)) != line for k, line in enumerate(lines))
    seconds, _ = best(lambda: Corpus(pair_candidates(candidates, references)).tokens)
    row = _row(seconds, peer.seconds, max(peer.seconds - 2 * start, 0.0), float(different > 0))
    return {**row, "different": different}, [gts, res]


def _measure(name: str, corpus: Any, tokens: Corpus, gts: Texts, res: Texts) -> dict[str, Any]:
    """A measure on tokens that both have already."""

    def ours() -> Any:
        fresh = corpus()
        fresh.__dict__["tokens"] = tokens.tokens
        return MEASURES[name]().of_corpus(fresh).values()

    seconds, scores = best(ours)
    begun, scorer = once(coco_scorer, name)
    took, (whole, each) = once(scorer, gts, res)
    differences = [
        np.abs(np.ravel([getattr(one, kind) for one in scores]) - np.ravel(theirs)).max()
        for kind, theirs in (("sentences", each), ("corpus", whole))
    ]
    return _row(seconds, begun.seconds + took.seconds, took.seconds, float(max(differences)))
