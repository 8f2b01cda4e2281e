"""How long a typed caption takes to be answered: each voice, the whole answer with its page, and a browser's view."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from capgrade.explorer import page
from capgrade.explorer.answers import Explorer

QUERIES = (
    "a dog", "a dog runs on the beach", "two people riding a red motorcycle down a busy street", "pizza",
    "a man in a suit talks on the phone next to a window while a woman reads a newspaper", "zebras at a water hole",
    "an old train at the station", "a kitchen with white cabinets and a wooden table", "surfer", "a plate of food",
)  # fmt: skip
TIMES = 5  # each query


def bench(explorer: Explorer) -> dict[str, Any]:
    """Milliseconds, median and largest, over QUERIES each asked TIMES times after one warm-up; no peer does this."""
    explorer.of_text(QUERIES[0])
    took: dict[str, list[float]] = {voice.name: [] for voice in explorer.voices}
    took["answer and page"] = []
    for query in QUERIES * TIMES:
        start = time.perf_counter()
        found = explorer.of_text(query)
        page.answers(explorer, page.text_title(query), found, images=True)
        took["answer and page"].append(time.perf_counter() - start)
        for one in found:
            took[one.voice].append(one.seconds)
    captions = explorer.corpus.captions
    rows = {name: {"median_ms": _ms(np.median(times)), "max_ms": _ms(max(times))} for name, times in took.items()}
    return {
        "images": captions.n_images,
        "captions": captions.n_captions,
        "queries": len(QUERIES) * TIMES,
        "times": rows,
    }


def _ms(seconds: float) -> float:
    return round(1000 * float(seconds), 1)


def show(result: dict[str, Any]) -> str:
    head = f"{result['queries']} typed captions against {result['images']:,} images, {result['captions']:,} captions"
    rows = [
        f"  {name:24}{row['median_ms']:8.1f} ms{row['max_ms']:8.1f} ms at most" for name, row in result["times"].items()
    ]
    return "\n".join([head, *rows])
