"""Stage `judge`: a model at a chat endpoint rates pairs, as judgements that `agree` reads."""

import csv
from pathlib import Path
from typing import Any

from capgrade.pictures.lookup import find
from capgrade.pipelines.judging.endpoint import Endpoint
from capgrade.pipelines.judging.question import CAPTIONS_PROMPT, PICTURES_PROMPT, load_prompt, read_pairs
from capgrade.pipelines.judging.round import JudgingRound
from capgrade.schemas.captions import read_captions
from capgrade.schemas.files import write_text
from capgrade.schemas.judges import SCALE, scale_text
from capgrade.schemas.lines import cells, csv_text
from capgrade.schemas.output import Recogniser, refuse_file, starting
from capgrade.schemas.params import JudgeParams

HEAD = ("image_id", "caption_id", "score", "rater", SCALE)
_NO_ANSWER = ("image_id", "caption_id", "reason")


def judge(
    captions_dir: Path,
    pairs: str,
    out: Path,
    *,
    endpoint: str,
    model: str,
    images: str | None = None,
    split: str | None = None,
    max_cost: float | None = None,
    params: JudgeParams,
) -> dict[str, Any]:
    """Ask about `pairs` (see `read_pairs`) and write the scores as CSV, in the order of the pairs, the model the rater.
    Pairs without an answer that counts are listed beside it, with the reason, and asked again by the next run.

    Answers are kept by the digest of model, prompt and pair: none is asked for twice, and a run that was killed goes
    on. Returns "pairs", "answered", "unanswered", "left" (not asked, where something stopped the run: "stopped"),
    "requests", "tokens" and "cost" of this run. Raises InputError where inputs do not fit, something else stands at
    `out`, or the endpoint refuses whoever asks.
    """
    failed = out.with_name(f"{out.stem}-unanswered.csv")
    refuse_file(out, f"table of capgrade judge by {model}", _by(model))
    refuse_file(failed, "table of capgrade judge", starting(",".join(_NO_ANSWER).encode()))
    prompt = Path(params.prompt) if params.prompt else PICTURES_PROMPT if images else CAPTIONS_PROMPT
    asked = load_prompt(prompt, images is not None)
    captions = read_captions(captions_dir, split)
    image, caption = read_pairs(pairs, captions)
    pictures = find(captions, images) if images else None
    judge_at = Endpoint(endpoint, model, params.timeout)
    round_ = JudgingRound(judge_at, asked, captions, pictures, image, caption, params, max_cost)
    round_.run()
    if pictures:
        pictures.tell()
    scores, reasons, scale = [], [], scale_text(*asked.scale)
    for i, c, question in zip(image, caption, round_.questions, strict=True):
        ids = captions.image_ids[i], captions.caption_ids[c]
        if question.score is not None:
            scores.append((*ids, f"{question.score:g}", model, scale))
        elif question.reason is not None:
            reasons.append((*ids, question.reason))
    write_text(out, csv_text(HEAD, scores))
    write_text(failed, csv_text(_NO_ANSWER, reasons))
    return {
        "pairs": len(image),
        "answered": len(scores),
        "unanswered": len(reasons),
        "left": len(image) - len(scores) - len(reasons),
        "stopped": round_.stopped,
        "requests": round_.requests,
        "tokens": {"sent": round_.sent, "answered": round_.answered},
        "cost": round_.spent,
    }


def _by(model: str) -> Recogniser:
    """Tables whose every rater is this model: people's judgements have the same columns."""

    def ours(path: Path) -> bool:
        try:
            with path.open(encoding="utf-8", newline="") as file:
                rows = csv.reader(file)
                return tuple(next(rows, ())) == HEAD and all(row[3:4] == cells([model]) for row in rows)
        except (UnicodeDecodeError, csv.Error):
            return False

    return ours
