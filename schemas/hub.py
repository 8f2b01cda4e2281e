"""The Hugging Face hub, asked once and briefly before a library fetches from it.

Without a network the libraries would ask again and again for more than a minute.
"""

from functools import cache
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.say import tell

WAIT = 5.0  # seconds


def hub_source(
    name: str, kind: str = "model", revision: str | None = None, files: list[str] | None = None
) -> str:
    """What a library loads `name` from, which may be a folder or a `kind` (model, dataset) of the
    hub: the name itself.

    Where the hub does not answer within WAIT, it is the folder that an earlier run has fetched,
    with all that fits the patterns `files` (None: every file); InputError where there is none.
    """
    from huggingface_hub import constants, get_session, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    # Their httpx, which is httpx2 from version 2 of huggingface_hub on.
    from huggingface_hub.utils import httpx, validate_repo_id

    if Path(name).exists() or constants.is_offline_mode():
        return name
    try:
        validate_repo_id(name)
        get_session().head(constants.ENDPOINT, timeout=WAIT)
    except HFValidationError:  # a folder that is not there: the library says so
        return name
    except httpx.TransportError:
        try:
            folder = snapshot_download(
                name, repo_type=kind, revision=revision, local_files_only=True, allow_patterns=files
            )
        except LocalEntryNotFoundError:
            problem = (
                f"the {kind} '{name}' is not on this machine, and the hub does not answer"
                f" ({constants.ENDPOINT})"
            )
            raise InputError(
                problem, remedy="check the network and HF_ENDPOINT, or give a folder"
            ) from None
        tell(f"the hub does not answer: the {kind} '{name}' is as an earlier run fetched it")
        return str(folder)
    return name


@cache
def hub_revision(name: str, kind: str = "model", revision: str | None = None) -> str | None:
    """The commit that a model or dataset of the hub has now, or, where the hub does not answer, the
    one that an earlier run has fetched; None where nothing is known of it."""
    from huggingface_hub import HfApi, constants, get_session, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.utils import httpx, validate_repo_id

    try:
        validate_repo_id(name)
        if not constants.is_offline_mode():
            get_session().head(constants.ENDPOINT, timeout=WAIT)
            found = HfApi().repo_info(name, repo_type=kind, revision=revision, timeout=WAIT)
            return found.sha
    except (HFValidationError, HfHubHTTPError):  # no name, or none that the hub shows to this user
        return None
    except httpx.TransportError:
        pass
    try:
        fetched = snapshot_download(
            name, repo_type=kind, revision=revision, local_files_only=True, allow_patterns=[]
        )
    except LocalEntryNotFoundError:
        return None
    return Path(fetched).name
