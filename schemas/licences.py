"""Licences a dataset can be published under: the identifiers that the Hugging Face hub knows, and
their SPDX pages."""

# Most identifiers of the hub are SPDX's in lower case.
# https://huggingface.co/docs/hub/repositories-licenses
_SPDX = (
    "Apache-2.0 MIT AFL-3.0 Artistic-2.0 BSL-1.0 BSD-2-Clause BSD-3-Clause BSD-3-Clause-Clear"
    " CC0-1.0 CC-BY-2.0 CC-BY-2.5 CC-BY-3.0 CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC-BY-NC-2.0"
    " CC-BY-NC-3.0 CC-BY-NC-4.0 CC-BY-ND-4.0 CC-BY-NC-ND-3.0 CC-BY-NC-ND-4.0 CC-BY-NC-SA-2.0"
    " CC-BY-NC-SA-3.0 CC-BY-NC-SA-4.0 CDLA-Sharing-1.0 CDLA-Permissive-1.0 CDLA-Permissive-2.0"
    " WTFPL ECL-2.0 EPL-1.0 EPL-2.0 etalab-2.0 EUPL-1.1 EUPL-1.2 ISC MPL-2.0 MS-PL NCSA OFL-1.1"
    " OSL-3.0 PostgreSQL Unlicense Zlib"
)
SPDX = {
    **{name.lower(): name for name in _SPDX.split()},
    "agpl-3.0": "AGPL-3.0-only",
    "gpl-2.0": "GPL-2.0-only",
    "gpl-3.0": "GPL-3.0-only",
    "lgpl-2.1": "LGPL-2.1-only",
    "lgpl-3.0": "LGPL-3.0-only",
    "c-uda": "C-UDA-1.0",
    "odc-by": "ODC-By-1.0",
    "odbl": "ODbL-1.0",
    "pddl": "PDDL-1.0",
}
OTHER = "other"  # with a name and an address of its own
UNKNOWN_LICENCE = "unknown"  # the hub's word where nobody has said it
