"""A page: sections in, one HTML file out that needs nothing else; and its pictures as files.

Every text is escaped by the template; the only scripts that may run are the two of this package,
named by their hash, so that no caption can bring one.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from capgrade.apps.page.charts import STYLE, make_themes
from capgrade.apps.page.parts import Chart, PagePicture, PageSection, as_cell
from capgrade.pictures.lookup import data_uri
from capgrade.schemas.files import atomic, write_manifest
from capgrade.schemas.output import output_folder

_FOLDER = Path(__file__).parent
VEGA_LITE = "6.4"
WIDTH, WIDE = 440, 820  # pixels of a chart's file
_SCALE = 2  # pixels of a PNG for one of the page


@cache
def _vega_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from vl-convert."""
    # The stub demands a snippet, which the function does not need.
    bundle = vl_convert.javascript_bundle(vl_version=VEGA_LITE)  # type: ignore[call-arg]
    # A browser would take </script in a string for the end of the script; <\/script is the same
    # string to JavaScript.
    return bundle.replace("</script", "<\\/script")


def render_page(
    title: str, opening: PageSection, sections: Sequence[PageSection], generator: str, **facts: Any
) -> str:
    """The page as HTML: `opening` stands at the top, the other sections can be unfolded. `facts`
    are the template's other variables (foot, runs)."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined
    )
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.globals.update(data_uri=data_uri, themes=make_themes())
    environment.filters["cell"] = as_cell
    scripts = [_vega_script(), (_FOLDER / "page.js").read_text(encoding="utf-8")]
    # The policy allows no frame, no form, no script but these two, and no network but the server
    # that the page came from, which takes ratings. Styles may be inline, since charts bring style
    # attributes of their own.
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in scripts
    )
    rest = "img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    rest += "; connect-src 'self'"
    return environment.get_template("page.html.j2").render(
        title=title,
        generator=generator,
        opening=opening,
        sections=sections,
        policy=f"default-src 'none'; script-src {hashes}; {rest}",
        scripts=[Markup(script) for script in scripts],
        style=Markup(STYLE.read_text(encoding="utf-8")),
        **facts,
    )


def write_pictures(sections: Iterable[PageSection], folder: Path) -> list[Path]:
    """NAME.png and NAME.svg of each chart, on white, and the other pictures; returns the files.
    InputError for a folder that something else wrote."""
    with output_folder(folder, "pictures") as unfinished:
        files: dict[str, bytes] = {}
        for part in (part for section in sections for part in section.parts):
            if isinstance(part, Chart):
                spec = {**part.spec, "width": WIDE if part.wide else WIDTH, "title": part.title}
                options: dict[str, Any] = {
                    "vl_version": VEGA_LITE,
                    "config": make_themes()["light"],
                }
                files[f"{part.name}.svg"] = vl_convert.vegalite_to_svg(spec, **options).encode()
                files[f"{part.name}.png"] = vl_convert.vegalite_to_png(
                    spec, scale=_SCALE, **options
                )
            elif isinstance(part, PagePicture):
                files[f"{part.name}.{part.suffix}"] = part.data
        for name, data in files.items():
            with atomic(unfinished / name) as temporary:
                temporary.write_bytes(data)
        if files:
            write_manifest(
                unfinished, "pictures", params={}, inputs={}, rows=dict.fromkeys(files, 0)
            )
    return [folder / name for name in files]
