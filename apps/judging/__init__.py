"""Command `judge`: a model rates pairs, as judgements that `agree` reads: at a chat endpoint, at
one that reranks, or a cross-encoder in this process."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from capgrade.apps.judging.question import load_prompts, read_asked_pairs
from capgrade.apps.judging.reply import Judge
from capgrade.apps.judging.round import JudgingRound
from capgrade.pictures.lookup import find_pictures
from capgrade.schemas.captions import read_captions
from capgrade.schemas.files import write_text
from capgrade.schemas.judges import PROMPT, SCALE, scale_text
from capgrade.schemas.lines import csv_text
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.params import JudgeParams
from capgrade.schemas.say import spoken_number

HEAD = ("image_id", "caption_id", "score", "rater", SCALE, PROMPT)
_NO_ANSWER = ("image_id", "caption_id", "reason")


def judge(
    captions_dir: Path,
    pairs: str,
    out: Path,
    *,
    source: Judge,
    model: str,
    images: str | None = None,
    split: str | None = None,
    max_cost: float | None = None,
    params: JudgeParams,
    tell: Callable[[str], None] = lambda said: None,
    force: bool = False,
) -> dict[str, Any]:
    """Ask a judge of `judge_of` about `pairs` (see `read_asked_pairs`) and write the scores as CSV,
    a row for each pair and prompt, in this order; `model` is the rater's name. What is to be asked,
    and what it will cost about, is told before. Pairs without an answer are listed beside the
    table, with the reason, and asked by the next run.

    Answers are kept by the digest of model, prompt, texts and picture: none is asked for twice, and
    a run that was killed goes on. Raises InputError where inputs do not fit, the endpoint refuses
    whoever asks, and where a file is at `out` or beside it, but with `force`.
    """
    failed = out.with_name(f"{out.stem}-unanswered.csv")
    refuse_file(out, force)
    refuse_file(failed, force)
    prompts = load_prompts(params.prompt, source.reads, images is not None)
    captions = read_captions(captions_dir, split)
    image, caption = read_asked_pairs(pairs, captions)
    pictures = find_pictures(captions, images) if images else None
    round_ = JudgingRound(
        source, list(prompts.values()), captions, pictures, image, caption, params
    )
    batches = round_.batches()
    expected = dict(zip(("sent", "answered", "cost"), round_.estimate_cost(batches), strict=True))
    count = sum(map(len, batches))
    if count and source.counts_tokens:
        tokens = (
            f"about {expected['sent']:,} tokens sent and at most {expected['answered']:,} answered"
        )
        price = (
            f", cost {spoken_number(expected['cost'])}"
            if params.price_in or params.price_out
            else ""
        )
        tell(f"to ask: {count:,} questions in {len(batches):,} requests: {tokens}{price}")
    round_.run(batches, max_cost)
    if pictures:
        pictures.warn_of_missing()
    scores, reasons = [], []
    of_pairs = product(zip(image.tolist(), caption.tolist(), strict=True), prompts.items())
    for ((i, c), (name, prompt)), questions in zip(of_pairs, round_.questions, strict=True):
        ids = captions.image_ids[i], captions.caption_ids[c]
        scores_given = [question.score for question in questions if question.score is not None]
        if len(scores_given) == len(questions):
            scores.append(
                (
                    *ids,
                    f"{sum(scores_given) / len(scores_given):g}",
                    model,
                    scale_text(*prompt.scale),
                    name,
                )
            )
        elif reason := next(
            (question.reason for question in questions if question.reason is not None), None
        ):
            reasons.append((*ids, reason))
    write_text(out, csv_text(HEAD, scores))
    write_text(failed, csv_text(_NO_ANSWER, reasons))
    return {
        "pairs": len(image),
        "prompts": list(prompts),
        "answered": len(scores),
        "unanswered": len(reasons),
        "left": len(image) * len(prompts) - len(scores) - len(reasons),
        "stopped": round_.stopped,
        "estimate": expected,
        "requests": round_.requests,
        "from_probabilities": round_.expected,
        "tokens": {"sent": round_.sent, "answered": round_.answered},
        "cost": round_.spent,
    }


def judge_of(endpoint: str | None, model: str, params: JudgeParams) -> Judge:
    """The model at an endpoint, which chats or reranks; without one a CrossEncoder in this process.
    InputError for what is no address, and for a model that cannot be loaded."""
    if endpoint is None:
        from capgrade.apps.judging.cross_encoder import CrossEncoderJudge

        return CrossEncoderJudge(model, params.device)
    from capgrade.apps.judging.endpoint import RERANK, ChatJudge, Endpoint, RerankJudge

    server = Endpoint(endpoint, model, params.timeout, params.retries)
    return RerankJudge(server) if server.address.endswith(RERANK) else ChatJudge(server)
