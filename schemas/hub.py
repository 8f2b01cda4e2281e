"""The Hugging Face hub, asked once and briefly before a library fetches from it: the libraries ask again and again for
more than a minute where there is no network."""

from functools import cache
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.say import tell

WAIT = 5.0  # seconds


@cache
def reach_hub(name: str, kind: str = "model") -> None:
    """Before a library loads `name`, which may be a folder or a `kind` (model, dataset) of the hub.

    Where the hub does not answer within WAIT, what an earlier run has fetched is used; InputError where there is none.
    """
    import httpx
    from huggingface_hub import constants, get_session, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.utils import validate_repo_id

    if Path(name).exists() or constants.is_offline_mode():
        return
    try:
        validate_repo_id(name)
        get_session().head(constants.ENDPOINT, timeout=WAIT)
    except HFValidationError:  # a folder that is not there: the library says so
        return
    except httpx.TransportError:
        try:
            snapshot_download(name, repo_type=kind, local_files_only=True)
        except LocalEntryNotFoundError:
            problem = f"the {kind} '{name}' is not on this machine, and the hub does not answer ({constants.ENDPOINT})"
            raise InputError(problem, remedy="check the network and HF_ENDPOINT, or give a folder") from None
        tell(f"the hub does not answer: the {kind} '{name}' is as an earlier run fetched it")
        constants.HF_HUB_OFFLINE = True  # its client and the libraries look here before they ask
