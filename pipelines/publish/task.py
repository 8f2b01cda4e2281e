"""The task file of a benchmark: its tasks as mteb takes them, and what prints their table."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from capgrade.labels.layout import DIGEST
from capgrade.pipelines.publish.croissant import licence_address
from capgrade.pipelines.publish.tables import Contents

# Of the hub's licences those that mteb knows by the same name; it takes others by their address.
_LICENCES = {
    "afl-3.0",
    "apache-2.0",
    "bsd-3-clause",
    "cc-by-2.0",
    "cc-by-3.0",
    "cc-by-4.0",
    "cc-by-nc-3.0",
    "cc-by-nc-4.0",
    "cc-by-nc-nd-4.0",
    "cc-by-nc-sa-3.0",
    "cc-by-nc-sa-4.0",
    "cc-by-nd-4.0",
    "cc-by-sa-3.0",
    "cc-by-sa-4.0",
    "cc0-1.0",
    "cdla-sharing-1.0",
    "gpl-3.0",
    "lgpl-3.0",
    "mit",
    "mpl-2.0",
    "odc-by",
    "openrail",
}
# mteb writes languages as ISO 639-3 with a script.
LANGUAGES = {
    "en": "eng-Latn",
    "de": "deu-Latn",
    "fr": "fra-Latn",
    "es": "spa-Latn",
    "it": "ita-Latn",
    "pt": "por-Latn",
    "nl": "nld-Latn",
    "pl": "pol-Latn",
    "cs": "ces-Latn",
    "sv": "swe-Latn",
    "tr": "tur-Latn",
    "vi": "vie-Latn",
    "ru": "rus-Cyrl",
    "uk": "ukr-Cyrl",
    "ar": "arb-Arab",
    "hi": "hin-Deva",
    "zh": "cmn-Hans",
    "ja": "jpn-Jpan",
    "ko": "kor-Kore",
    "el": "ell-Grek",
}


def task_file(contents: Contents) -> str:
    """Python with a task for each direction, which prints their results when it is run."""
    params = contents.params
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["repr"] = repr
    known = params.license in _LICENCES
    address = licence_address(str(params.license), params.license_link)
    return environment.get_template("task.py.j2").render(
        params=params,
        stem=class_stem(str(params.name)),
        splits=[split.name for split in contents.splits],
        languages=[LANGUAGES.get(one, one) for one in params.languages],
        unknown=[one for one in params.languages if one not in LANGUAGES],
        licence=params.license if known else address,
        pictures=contents.images is not None,
        judged=contents.judged,
        digest=DIGEST,
        description=" ".join(contents.introduction.split()),
    )


def class_stem(name: str) -> str:
    """The first part of the classes' names: letters and digits of a dataset's name.

    >>> class_stem('my "own" coco-cxc')
    'MyOwnCocoCxc'
    """
    words = re.findall(r"[A-Za-z0-9]+", name)
    stem = "".join(word[:1].upper() + word[1:] for word in words)
    return stem if stem[:1].isalpha() else f"Graded{stem}"
