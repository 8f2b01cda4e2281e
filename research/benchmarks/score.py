"""Scores of captions beside pycocoevalcap, tokens and all, in one run on the same captions.

The first caption of each image is the candidate, and the others are the references. Seconds of the
peer include the starts of its JVM, for every tokenisation and for METEOR; `peer_seconds_started`
leaves them out. Our seconds are of a process that has scored before; `first_seconds` is the first
call, which reads METEOR's data.
"""

from typing import Any

import numpy as np

from capgrade.measures import MEASURES
from capgrade.measures.corpus import Corpus, pair_candidates
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.scoring import score_corpus
from research.benchmarks.harness import Asked, Rows, Texts, best, coco_scorer, once

_NAMES = ("bleu", "meteor", "rouge_l", "cider")


def bench(asked: Asked) -> Rows:
    """For the tokeniser, each measure and all together: seconds of both, their ratio, the same
    without the JVM's start, and the largest difference of corpus and sentence values. InputError
    for an image with one caption."""
    candidates, references = _split(read_captions(asked.captions, asked.bench.split))

    def corpus() -> Corpus:
        return Corpus(pair_candidates(candidates, references))

    first, _ = once(lambda: score_corpus(corpus(), _NAMES))
    tokens = corpus()
    result = {}
    result["tokenizer"], lines = _tokenizer(tokens, candidates, references)
    for name in _NAMES:
        result[name] = _measure(name, corpus, tokens, *lines)
    seconds, _ = best(lambda: score_corpus(corpus(), _NAMES))
    peer = sum(row["peer_seconds"] for row in result.values())
    started = sum(row["peer_seconds_started"] for row in result.values())
    largest = max(row["max_abs_diff"] for row in result.values())
    facts = {"first_seconds": first.seconds, "images": len(candidates)}
    result["total"] = _row(seconds, peer, started, largest) | facts
    return result


def _split(captions: Captions) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The first caption of each image, and the others."""
    texts = captions.texts
    sets = [[texts[row] for row in own] for own in np.split(captions.refs, captions.ref_ptr[1:-1])]
    by_image = dict(zip(captions.image_ids, sets, strict=True))
    single = [image for image, own in by_image.items() if len(own) < 2]
    if single:
        problem = f"image '{single[0]}' has one caption: a candidate without references"
        raise InputError(problem, remedy="give captions with two or more for each image")
    candidates = {image: own[:1] for image, own in by_image.items()}
    return candidates, {image: own[1:] for image, own in by_image.items()}


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
    """The tokeniser's row, and the peer's tokenised references and candidates."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    def tokenize(texts: Texts) -> Texts:
        entries = {i: [{"caption": text} for text in own] for i, own in texts.items()}
        return PTBTokenizer().tokenize(entries)

    peer, (gts, res) = once(lambda: (tokenize(references), tokenize(candidates)))
    start, _ = best(lambda: tokenize({"1": ["a dog"]}))
    lines = [text for texts in (res, gts) for own in texts.values() for text in own]
    different = sum(" ".join(tokens.tokens.sentence(k)) != line for k, line in enumerate(lines))
    seconds, _ = best(lambda: Corpus(pair_candidates(candidates, references)).tokens)
    row = _row(seconds, peer.seconds, max(peer.seconds - 2 * start, 0.0), float(different > 0))
    return {**row, "different": different}, [gts, res]


def _measure(name: str, corpus: Any, tokens: Corpus, gts: Texts, res: Texts) -> dict[str, Any]:
    """A measure's row, from tokens that are ready for both sides."""

    def score() -> Any:
        fresh = corpus()
        fresh.__dict__["tokens"] = tokens.tokens  # as the cached property would set it
        return MEASURES[name]().of_corpus(fresh).values()

    seconds, scores = best(score)
    start, scorer = once(coco_scorer, name)
    peer, (peer_corpus, peer_sentences) = once(scorer, gts, res)
    differences = [
        np.abs(np.ravel([getattr(part, kind) for part in scores]) - np.ravel(peer_values)).max()
        for kind, peer_values in (("sentences", peer_sentences), ("corpus", peer_corpus))
    ]
    return _row(seconds, start.seconds + peer.seconds, peer.seconds, float(max(differences)))
