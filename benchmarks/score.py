"""Scores of captions beside pycocoevalcap, tokens and all, in one run on the same captions.

Of each image the first caption is the candidate and the others are the references. Seconds of the peer include the
start of its JVM, which it starts for every tokenisation and for METEOR; `peer_seconds_started` leaves the start out.
Ours are of a process that has scored before; `first_seconds` is of the first call, which reads METEOR's data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from capgrade.benchmarks.timing import ROUNDS
from capgrade.pipelines.measures.scores.corpus import Corpus
from capgrade.pipelines.measures.scores.given import given
from capgrade.pipelines.measures.scores.measures import MEASURES, scored
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError

NAMES = ("bleu", "meteor", "rouge_l", "cider")
_T = TypeVar("_T")


def bench(captions_dir: Path, split: str | None = None) -> dict[str, dict[str, Any]]:
    """Of `tokenizer`, each measure and `total`: seconds, peer_seconds, ratio, the peer's without the JVM's start, and
    max_abs_diff over all corpus and sentence values. InputError for an image with one caption, or without Java."""
    candidates, references = _split(read_captions(captions_dir, split))
    first = _seconds(lambda: scored(_corpus(candidates, references), NAMES))[0]
    tokens, lines = _tokens(candidates, references)
    result = {"tokenizer": tokens}
    for name in NAMES:
        result[name] = _measure(name, candidates, references, *lines)
    ours = _best(lambda: scored(_corpus(candidates, references), NAMES))
    total = {key: sum(row[key] for row in result.values()) for key in ("peer_seconds", "peer_seconds_started")}
    result["total"] = {
        **_ratios(ours, total["peer_seconds"], total["peer_seconds_started"]),
        "max_abs_diff": max(row["max_abs_diff"] for row in result.values()),
        "first_seconds": first,
        "images": len(candidates),
    }
    return result


def _split(captions: Captions) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    sets = [captions.refs[a:b] for a, b in zip(captions.ref_ptr[:-1], captions.ref_ptr[1:], strict=True)]
    lonely = [image for image, own in zip(captions.image_ids, sets, strict=True) if len(own) < 2]
    if lonely:
        problem = f"image '{lonely[0]}' has one caption: a candidate without references"
        raise InputError(problem, remedy="give captions with two or more for each image")
    texts = captions.texts
    candidates = {i: [texts[own[0]]] for i, own in zip(captions.image_ids, sets, strict=True)}
    return candidates, {i: [texts[k] for k in own[1:]] for i, own in zip(captions.image_ids, sets, strict=True)}


def _corpus(candidates: dict[str, list[str]], references: dict[str, list[str]]) -> Corpus:
    return Corpus(given(candidates, references))


def _seconds(work: Callable[[], _T]) -> tuple[float, _T]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _best(work: Callable[[], Any]) -> float:
    return min(_seconds(work)[0] for _ in range(ROUNDS))


def _ratios(seconds: float, peer: float, started: float) -> dict[str, float]:
    return {
        "seconds": seconds, "peer_seconds": peer, "ratio": peer / seconds,
        "peer_seconds_started": started, "ratio_started": started / seconds,
    }  # fmt: skip


def _peer_tokens(candidates: dict, references: dict) -> tuple[float, tuple[dict, dict]]:
    """Seconds of pycocoevalcap's tokeniser for both, as its `eval.py` calls it, and the lines."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    annotated = [{i: [{"caption": t} for t in own] for i, own in some.items()} for some in (references, candidates)]
    seconds, (gts, res) = _seconds(lambda: [PTBTokenizer().tokenize(some) for some in annotated])
    return seconds, (gts, res)


def _tokens(candidates: dict, references: dict) -> tuple[dict[str, Any], tuple[dict, dict]]:
    """The tokeniser's row, and the peer's lines of references and candidates."""
    seconds, (gts, res) = _peer_tokens(candidates, references)
    start = 2 * _peer_start({"1": [{"caption": "a dog"}]})
    corpus = _corpus(candidates, references)
    lines = [text for some in (res, gts) for own in some.values() for text in own]
    wrong = sum(" ".join(corpus.tokens.sentence(k)) != line for k, line in enumerate(lines))
    ours = _best(lambda: _corpus(candidates, references).tokens)
    row = {**_ratios(ours, seconds, max(seconds - start, 0.0)), "max_abs_diff": float(wrong > 0), "different": wrong}
    return row, (gts, res)


def _peer_start(one: dict) -> float:
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    return _best(lambda: PTBTokenizer().tokenize(one))


def _measure(name: str, candidates: dict, references: dict, gts: dict, res: dict) -> dict[str, Any]:
    """A measure on tokens that both have already."""
    corpus = _corpus(candidates, references)
    _ = corpus.tokens
    found = MEASURES[name](corpus)

    def ours() -> None:
        fresh = _corpus(candidates, references)
        fresh.__dict__["tokens"] = corpus.tokens
        MEASURES[name](fresh)

    start, peer_seconds, (whole, each) = PEERS[name](gts, res)
    values = np.array([one.sentences for one in found.values()])
    difference = np.abs(values - np.reshape(each, values.shape)).max()
    corpora = np.array([one.corpus for one in found.values()])
    difference = max(difference, np.abs(corpora - np.ravel(whole)).max())
    return {**_ratios(_best(ours), start + peer_seconds, peer_seconds), "max_abs_diff": float(difference)}


def _plain(scorer: Any, *more: Any) -> Callable[[dict, dict], tuple[float, float, Any]]:
    def run(gts: dict, res: dict) -> tuple[float, float, Any]:
        seconds, result = _seconds(lambda: scorer().compute_score(gts, res, *more))
        return 0.0, seconds, result

    return run


def _bleu(gts: dict, res: dict) -> tuple[float, float, Any]:
    from pycocoevalcap.bleu.bleu import Bleu

    return _plain(lambda: Bleu(4), 0)(gts, res)


def _cider(gts: dict, res: dict) -> tuple[float, float, Any]:
    from pycocoevalcap.cider.cider import Cider

    return _plain(Cider)(gts, res)


def _rouge(gts: dict, res: dict) -> tuple[float, float, Any]:
    from pycocoevalcap.rouge.rouge import Rouge

    return _plain(Rouge)(gts, res)


def _meteor(gts: dict, res: dict) -> tuple[float, float, Any]:
    """The jar reads its data when it starts: until it has answered a first pair."""
    from pycocoevalcap.meteor.meteor import Meteor

    image = next(iter(gts))
    scorer: Any = None

    def begin() -> None:
        nonlocal scorer
        scorer = Meteor()
        scorer.compute_score({image: gts[image]}, {image: res[image]})

    start, _ = _seconds(begin)
    seconds, result = _seconds(lambda: scorer.compute_score(gts, res))
    return start, seconds, result


# Seconds of the start, seconds of the scores, and (corpus, sentences).
PEERS: dict[str, Callable[[dict, dict], tuple[float, float, Any]]] = {
    "bleu": _bleu,
    "meteor": _meteor,
    "rouge_l": _rouge,
    "cider": _cider,
}
