"""A dual encoder of transformers: its weights, tokenizer and image transform, of a folder or the hub, or random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from capgrade.schemas.errors import InputError
from capgrade.trainer.data.text import END, START

if TYPE_CHECKING:
    from capgrade.trainer.models.dual_encoder import DualEncoderConfig

Transform = Callable[[np.ndarray], np.ndarray]  # uint8 (H, W, 3) RGB -> float32 [3, side, side]
NEEDED = ("get_image_features", "get_text_features", "logit_scale")


def load_dual_encoder(checkpoint: str, biased: bool) -> Any:
    """The weights in float32. Raises InputError where they cannot be loaded, are not those of a dual encoder with a
    learned `logit_scale`, lack some, or are of the other family: SigLIP's have a `logit_bias`."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        found, info = AutoModel.from_pretrained(
            checkpoint, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # the libraries raise a dozen kinds for a missing or broken model
        raise _cannot_load("dual encoder", checkpoint, error) from error
    kind = found.config.model_type
    if lacking := [name for name in NEEDED if not hasattr(found, name)]:
        problem = f"checkpoint '{checkpoint}' is a '{kind}', which has no {lacking[0]}"
        raise InputError(problem, remedy="give a dual encoder such as CLIP or SigLIP")
    if missing := sorted(info["missing_keys"]):
        raise InputError(f"checkpoint '{checkpoint}' lacks {len(missing)} weights, the first {missing[0]}")
    if hasattr(found, "logit_bias") != biased:
        name = "clip" if biased else "siglip"
        problem = f"checkpoint '{checkpoint}' is a '{kind}', {'without' if biased else 'with'} a logit_bias"
        raise InputError(problem, remedy=f"set train.model.name={name}")
    return found


def random_dual_encoder(config: DualEncoderConfig, vocabulary: int, biased: bool) -> Any:
    """Random weights by torch's generator: a `CLIPModel`, or with a bias a `SiglipModel` whose scale is 10 and bias
    -10 at the start (Zhai et al. 2023, section 3.2)."""
    from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel

    if biased and config.embed not in (None, config.image_width):
        problem = f"embed {config.embed}: SigLIP's vectors are as wide as its image layers, {config.image_width}"
        raise InputError(problem, remedy="leave out train.model.options.embed")
    embed = config.image_width if biased else config.embed or 512
    vision = _layers(config.image_width, config.image_layers, config.image_heads)
    vision |= {"image_size": config.image, "patch_size": config.patch}
    text = _layers(config.text_width, config.text_layers, config.text_heads)
    text |= {"vocab_size": vocabulary, "max_position_embeddings": config.positions, "projection_size": embed}
    text |= {"pad_token_id": 0, "bos_token_id": START, "eos_token_id": END}
    if not biased:
        return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=embed))
    found = SiglipModel(SiglipConfig(text_config=text, vision_config=vision))
    with torch.no_grad():
        found.logit_scale.fill_(log(10))
        found.logit_bias.fill_(-10)
    return found


def _layers(width: int, layers: int, heads: int) -> dict[str, int]:
    sizes = {"hidden_size": width, "intermediate_size": 4 * width}
    return {**sizes, "num_hidden_layers": layers, "num_attention_heads": heads}


@lru_cache(maxsize=4)
def load_dual_tokenizer(checkpoint: str) -> tuple[Any, int]:
    """The tokenizer of a checkpoint, and how many tokens its model takes. InputError if it cannot be loaded."""
    from transformers import AutoConfig, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)
        longest = AutoConfig.from_pretrained(checkpoint, trust_remote_code=False).text_config.max_position_embeddings
    except Exception as error:
        raise _cannot_load("tokenizer of", checkpoint, error) from error
    return tokenizer, longest


def caption_tokens(texts: Sequence[str], checkpoint: str) -> list[np.ndarray]:
    """int64 [length] of each caption as the checkpoint's tokenizer cuts it, its special tokens included. Nothing is
    cut off: InputError, naming it, for a caption of more tokens than the model takes."""
    tokenizer, longest = load_dual_tokenizer(checkpoint)
    rows = tokenizer(list(texts), verbose=False)["input_ids"] if len(texts) else []
    for k, row in enumerate(rows):
        if len(row) > longest:
            problem = f"caption of {len(row)} tokens, '{checkpoint}' takes {longest}: '{texts[k][:60]}...'"
            raise InputError(problem, row=f"captions[{k}]", remedy="shorten or drop it")
    return [np.array(row, np.int64) for row in rows]


def image_transform(config: DualEncoderConfig, biased: bool) -> Transform:
    """What makes a picture the model's pixels: the checkpoint's own image processor, or that of its family at the
    random model's size. It resizes by Pillow whether torchvision is there or not, so that pixels do not depend on it.

    Raises InputError for a processor that cannot be loaded, or does not give one square picture.
    """
    from transformers import AutoImageProcessor, CLIPImageProcessorPil, SiglipImageProcessorPil

    square = {"height": config.image, "width": config.image}
    if config.pretrained is not None:
        try:
            processor = AutoImageProcessor.from_pretrained(config.pretrained, trust_remote_code=False, backend="pil")
        except Exception as error:
            raise _cannot_load("image processor of", config.pretrained, error) from error
    elif biased:
        processor = SiglipImageProcessorPil(size=square)
    else:
        processor = CLIPImageProcessorPil(size={"shortest_edge": config.image}, crop_size=square)

    def transform(picture: np.ndarray) -> np.ndarray:
        return processor(picture, input_data_format="channels_last", return_tensors="np")["pixel_values"][0]

    shape = transform(np.zeros((60, 80, 3), np.uint8)).shape
    if len(shape) != 3 or shape[0] != 3 or shape[1] != shape[2]:
        problem = f"the image processor of '{config.pretrained}' gives {list(shape)} of a picture"
        raise InputError(problem, remedy="give a checkpoint whose pictures are square, [3, side, side]")
    return transform


def _cannot_load(what: str, checkpoint: str, error: Exception) -> InputError:
    said = next(filter(None, str(error).strip().splitlines()), type(error).__name__)
    remedy = "use the folder of a transformers dual encoder (config, weights, tokenizer, preprocessor_config.json), or "
    remedy += "a hub id when online"
    if isinstance(error, ImportError):
        remedy = "install that package; SigLIP's sentencepiece and protobuf come with pip install 'capgrade[train]'"
    return InputError(f"cannot load {what} '{checkpoint}': {said}", remedy=remedy)
