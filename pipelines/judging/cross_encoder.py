"""A judge in this process: a `CrossEncoder` of sentence-transformers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image

from capgrade.devices import device_of
from capgrade.pipelines.judging.question import PICTURE, Question, RankPrompt
from capgrade.pipelines.judging.reply import Reply
from capgrade.pretrained import fingerprint, model_source, quiet_loading
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

_BATCH = 32  # pairs that are computed together


class CrossEncoderJudge:
    """A model of one score for a query and a document, brought to 0..1 by a sigmoid."""

    reads: Literal["chat", "rank"] = "rank"
    at_once, charges, alone = 1024, False, True

    def __init__(self, model: str, device: str) -> None:
        self.name, self.model = (
            f"cross encoder {fingerprint(model)}",
            load_cross_encoder(model, device),
        )
        if self.model.num_labels != 1:
            remedy = "give a model of one score, such as a reranker"
            raise InputError(
                f"the model has {self.model.num_labels} labels", file=model, remedy=remedy
            )

    def together(self, question: Question) -> object:
        return question.prompt.digest

    def ask(self, questions: Sequence[Question], pictures: Mapping[str, bytes]) -> Reply:
        import torch

        prompt = questions[0].prompt
        assert isinstance(prompt, RankPrompt)
        if pictures and not self.model.supports("image"):
            raise InputError(
                "the model takes no pictures", remedy="leave --images out, or give another --model"
            )
        shown = {image: Image.open(io.BytesIO(data)) for image, data in pictures.items()}

        def side(template: str, text: str, image: str | None) -> Any:
            return shown[image] if template == PICTURE and image is not None else text

        pairs = [
            (
                side(prompt.query, one.text, one.image),
                side(prompt.document, one.document, one.image),
            )
            for one in questions
        ]
        scores = self.model.predict(
            pairs,
            batch_size=_BATCH,
            activation_fn=torch.nn.Sigmoid(),
            prompt=prompt.instruction or None,
            show_progress_bar=False,
        )
        return Reply([float(score) for score in scores], [""] * len(scores))

    def expect(self, questions: Sequence[Question]) -> tuple[int, int]:
        return 0, 0


@needs("encoder")
def load_cross_encoder(model: str, device: str) -> CrossEncoder:
    """A folder, or a model of the hub, on `device` as `device_of` takes it. It runs no code of its
    own."""
    source = model_source(model)
    from sentence_transformers import CrossEncoder

    place = device_of(device)
    try:
        with quiet_loading():
            found = CrossEncoder(source, device=str(place))
    except Exception as error:  # the libraries raise a dozen kinds for a missing or broken model
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        remedy = "give the folder of a sentence-transformers CrossEncoder, or a hub id when online"
        raise InputError(
            f"cannot load the CrossEncoder '{model}': {reason}", remedy=remedy
        ) from error
    kinds = getattr(found.config, "architectures", None) or [""]
    if len(found) == 1 and "For" not in kinds[0]:  # the library would put random weights there
        remedy = "give a model that was trained as a CrossEncoder"
        raise InputError(
            f"{kinds[0] or 'the model'} has no layer that scores", file=model, remedy=remedy
        )
    return found
