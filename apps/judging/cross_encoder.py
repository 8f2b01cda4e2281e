"""A judge in this process: a `CrossEncoder` of sentence-transformers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from PIL import Image

from capgrade.apps.judging.question import PICTURE, Question, RankPrompt
from capgrade.apps.judging.reply import Reply
from capgrade.cross_encoder import load_cross_encoder, score_pairs
from capgrade.pretrained import fingerprint
from capgrade.schemas.errors import InputError


class CrossEncoderJudge:
    """A model of one score for a query and a document, brought to 0..1 by a sigmoid."""

    reads: Literal["chat", "rank"] = "rank"
    batch_size, counts_tokens, one_thread = 1024, False, True

    def __init__(self, model: str, device: str) -> None:
        self.name = f"cross encoder {fingerprint(model)}"
        self.model = load_cross_encoder(model, device)

    def group_key(self, question: Question) -> object:
        return question.prompt.digest

    def ask(self, questions: Sequence[Question], pictures: Mapping[str, bytes]) -> Reply:
        prompt = questions[0].prompt
        assert isinstance(prompt, RankPrompt)
        if pictures and not self.model.supports("image"):
            raise InputError(
                "the model takes no pictures",
                remedy="leave --images out, or give another --judge-model",
            )
        shown = {image: Image.open(io.BytesIO(data)) for image, data in pictures.items()}

        def side(template: str, text: str, image: str | None) -> Any:
            return shown[image] if template == PICTURE and image is not None else text

        pairs = [
            (
                side(prompt.query, question.text, question.image),
                side(prompt.document, question.document, question.image),
            )
            for question in questions
        ]
        scores = score_pairs(self.model, pairs, prompt.instruction or None)
        return Reply([float(score) for score in scores], [""] * len(scores))

    def estimate_tokens(self, questions: Sequence[Question]) -> tuple[int, int]:
        return 0, 0
