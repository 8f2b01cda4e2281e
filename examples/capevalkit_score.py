"""capgrade's scores of single captions inside of capevalkit, in the two forms that it takes.

As a callable:

    capevalkit.api.evaluate_metric(benchmark="flickr8k-cf", metric=CaptionMetric("people"))

As the `score.py` of a metric of your own, whose metric.toml names this file:

    python capevalkit_score.py --predictions P.jsonl --references R.jsonl --output scores.json

`--measure` names any measure that `capgrade score` takes, or a mixture; `people` unless given.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import capgrade


class CaptionMetric:
    """From capevalkit's samples to {sample id: score}."""

    def __init__(self, measure: str = "people") -> None:
        self.measure = measure

    def __call__(self, samples: Any) -> dict[str, float]:
        candidates = [sample.prediction for sample in samples]
        references = [sample.references for sample in samples]
        found = capgrade.score(candidates, references, [self.measure]).sentences[self.measure]
        return {sample.id: float(value) for sample, value in zip(samples, found, strict=True)}


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file of JSON lines by their id."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {str(row["id"]): row for row in map(json.loads, filter(str.strip, lines))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--references", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--measure", default="people")
    given = parser.parse_args()
    predictions, references = read_rows(given.predictions), read_rows(given.references)
    if lacking := references.keys() - predictions.keys():
        parser.error(f"{given.predictions}: no row of '{min(lacking)}'")
    names = list(references)
    candidates = [predictions[name]["caption"] for name in names]
    sets = [references[name]["references"] for name in names]
    scores = capgrade.score(candidates, sets, [given.measure])
    per_item = dict(zip(names, scores.sentences[given.measure].tolist(), strict=True))
    figures = {given.measure: {"score": scores.corpus[given.measure], "per_item": per_item}}
    given.output.write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
