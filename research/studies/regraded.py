"""What `capgrade regrade` says of two stand-in models on MS-COCO 5K, beside the truth, where the
judge's answers are ECCV Caption's lists.

    capgrade captions --source tsv --input ../shared/data/coco/test5k_captions.tsv --split test \
        --out coco/captions
    python -m research.studies.regraded --captions coco/captions --work DIR --out regraded.md

An image is found by the tf-idf of its captions without the one that is asked about: the first model
reads every word, the second every other one. A pair is right if one of the two lists has it; what
neither lists is wrong, also where nobody looked. NDCG is that of pairs which a model ranks among
its first ten. A judge that reads texts cannot tell captions of
one text apart, so what is right for a text is right for all captions that say it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from capgrade.apps.audit.regrade import DEPTH, GRADED, lines_of, regrade
from capgrade.metrics import human_lists, ndcg
from capgrade.metrics.formats import DIRECTION_WORDS
from capgrade.schemas.captions import Captions, read_captions
from research.studies import arguments, write_rows
from research.studies.ranks import tfidf
from tests.apps.judging.stand_in import Chat, served

HEAD = "| model | direction |"  # how the table begins
_BLOCK = 250  # images, or queries, at a time


def similarity(captions: Captions, words: Any) -> np.ndarray:
    """The mean cosine of a caption with those of an image, without itself, float32 [images,
    captions]; words sparse [captions, words]."""
    own, owner = np.arange(captions.n_captions), captions.owner
    each = csr_array((np.ones(len(own), np.float32), (owner, own)))
    totals, counts = (each @ words).tocsr(), np.bincount(owner)
    found = np.empty((captions.n_images, captions.n_captions), np.float32)
    for start in range(0, captions.n_images, _BLOCK):
        rows = slice(start, start + _BLOCK)
        found[rows] = (totals[rows] @ words.T).toarray() / counts[rows, None]
    itself = words.multiply(words).sum(axis=1)
    found[owner, own] = (found[owner, own] * counts[owner] - itself) / (counts[owner] - 1)
    return found


def right_pairs(captions: Captions) -> np.ndarray:
    """bool [images, captions]: own pairs and those of either list, of all captions of a text."""
    right: np.ndarray = np.zeros((captions.n_images, captions.n_captions), bool)
    of_images, of_captions = human_lists("eccv", captions.image_ids, captions.caption_ids)
    for query, item, transposed in (
        (of_images.queries, of_images.indices, False),
        (of_captions.queries, of_captions.indices, True),
    ):
        known = item >= 0
        pair = (item[known], query[known]) if transposed else (query[known], item[known])
        right[pair] = True
    right[captions.owner, np.arange(captions.n_captions)] = True
    _, text = np.unique(captions.texts, return_inverse=True)
    for one in np.flatnonzero(np.bincount(text) > 1):
        same = np.flatnonzero(text == one)
        right[:, same] = right[:, same].any(axis=1, keepdims=True)
    return right


def answers(captions: Captions, right: np.ndarray) -> Chat:
    """An endpoint that finds image and caption by the texts it is shown, and answers 5 or 0."""
    column = {text: row for row, text in enumerate(captions.texts)}
    row = {
        frozenset(captions.texts[k] for k in captions.rows_of(image)): image
        for image in range(captions.n_images)
    }

    def answer(body: dict[str, Any]) -> str:
        text = next(said["content"] for said in body["messages"] if said["role"] == "user")
        shown, caption = text.split("How well")
        others = frozenset(line[2:] for line in shown.splitlines() if line.startswith("- "))
        asked = caption.splitlines()[1]
        return "5" if right[row[others], column[asked]] else "0"

    return Chat(answer)


def pooled(matrices: Sequence[np.ndarray], own: np.ndarray) -> np.ndarray:
    """bool [queries, items]: own ones and the first DEPTH of any model."""
    found = own.copy()
    for S in matrices:
        best = np.argpartition(-S, DEPTH - 1, axis=1)[:, :DEPTH]
        np.put_along_axis(found, best, True, axis=1)
    return found


def truths(S: np.ndarray, right: np.ndarray, listed: np.ndarray) -> tuple[float, float]:
    """R@1 with every right pair, and NDCG@10 with those that are listed as gains, when every pair
    is judged."""
    first = right[np.arange(len(S)), S.argmax(axis=1)].mean()
    gains = (right & listed).astype(np.float32)
    values = [
        ndcg(S[at : at + _BLOCK], gains[at : at + _BLOCK], DEPTH) for at in range(0, len(S), _BLOCK)
    ]
    return float(first), float(np.concatenate(values).mean())


def table(captions_dir: Path, work: Path, budget: int, judgements: Path | None) -> Iterator[str]:
    """The command's own lines, then row by row the estimates beside the truth."""
    captions = read_captions(captions_dir)
    right, words = right_pairs(captions), tfidf(captions)
    systems = {"words": words, "half": words[:, ::2]}
    work.mkdir(parents=True, exist_ok=True)
    paths = {name: work / f"{name}.npy" for name in systems}
    for name, some in systems.items():
        np.save(paths[name], similarity(captions, some))
    with served(answers(captions, right)) as chat:
        found = regrade(
            captions_dir,
            paths,
            work / "regraded",
            model="eccv-lists",
            endpoint=chat.address,
            budget=budget,
            judgements=judgements,
        )
    print("\n".join(lines_of(found)))
    yield f"{HEAD} as benchmarks count | R@1 with what is also right | truth | NDCG@10 | truth |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    matrices = {name: np.load(path) for name, path in paths.items()}
    own = np.arange(captions.n_images)[:, None] == captions.owner
    for way, words_of in DIRECTION_WORDS.items():
        sides = [S if way == "i2t" else S.T for S in (*matrices.values(), right, own)]
        listed = pooled(sides[:-2], sides[-1])
        for name, S in zip(matrices, sides, strict=False):
            one = found[way]["models"][name]
            true = truths(S, sides[-2], listed)
            cells = [f"{100 * one['benchmark']:.1f}"]
            for value, of_all in zip((one, one[GRADED]), true, strict=True):
                interval, held = "", ""
                if "note" not in value:
                    interval = f"[{100 * value['low']:.1f}, {100 * value['high']:.1f}]"
                    held = "" if value["low"] <= of_all <= value["high"] else ", outside"
                cells += [
                    f"{100 * value['value']:.1f} {interval}".strip(),
                    f"{100 * of_all:.1f}{held}",
                ]
            yield f"| {name} | {words_of} | {' | '.join(cells)} |"


def main() -> None:
    budget = {"type": int, "default": 3000}
    given = arguments(__doc__, "captions", "work", budget=budget, judgements={"type": Path})
    write_rows(table(given.captions, given.work, given.budget, given.judgements), given.out)


if __name__ == "__main__":
    main()
