"""docs/api.md, which `python -m tests.tools.api` writes: the names of the library that users type."""

from pathlib import Path

from capgrade.public import USERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
HEAD = """# The library, name by name

What `import capgrade` and its modules offer. On the site each name has its whole
description; in the code it is the docstring. `capgrade/public.py` lists further names, which apps and other packages build upon. All else may
change with any version.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for module, names in USERS.items():
        parts.append(f"## {module}\n")
        parts += [f"::: {module}.{name}\n" for name in names.split()]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
