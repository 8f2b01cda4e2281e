"""The explorer's pages: search, disagreements and review, as HTML that needs a script only for
search while typing and for keys; and their server, on loopback unless asked otherwise.

Captions, ids and names are not to be trusted: the templates escape every value, and the only script
that runs is `page.js`.
"""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import numpy as np
import uvicorn
from fastapi import FastAPI, File, Form, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image
from starlette.exceptions import HTTPException

from capgrade.apps.explorer.answers import Explorer
from capgrade.apps.explorer.gate import add_gate
from capgrade.apps.explorer.judgements import agreement_rows, judgements_csv, measure_agreement
from capgrade.apps.explorer.pairs import KINDS, RANK
from capgrade.apps.explorer.ratings import ReviewRatings, admit, open_review
from capgrade.pictures.lookup import data_uri, encode_image
from capgrade.pictures.picture import decode_image
from capgrade.schemas.errors import InputError
from capgrade.schemas.reviews import SCORES

_HERE = Path(__file__).parent
STYLES = _HERE.parent / "page" / "style.css", _HERE / "style.css"
TITLE, UPLOAD, AUDIT = "capgrade explorer", "/picture", "/audit"
FRAMES = "frame-ancestors 'self' https://huggingface.co"  # the hub shows a Space in its page
POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; script-src 'self';"
    f" connect-src 'self'; form-action 'self'; base-uri 'none'; {FRAMES}"
)
_MEANINGS = ("nothing alike", "little", "some of it", "about half", "most of it", "exactly")
COUNT, _SHOWN = 12, 5  # disagreements on a page, captions of an image
_LONGEST = 60  # characters of what somebody gave, where a page repeats it
# Kinds of values that an address or a form has wrong.
_WRONG = {
    "int_parsing": "not a whole number",
    "int_parsing_size": "a number of too many digits",
    "bool_parsing": "neither true nor false",
    "missing": "nothing was given",
}
_SIDE, _QUALITY = 480, 85  # of a JPEG: pixels of the longer side, quality


@dataclass(frozen=True)
class AuditPage:
    """A page of `capgrade audit`, and its list of pairs, which a new review is of."""

    page: Path
    listed: Path


def make_app(
    explorer: Explorer, reviews: Path, host: str, audit: AuditPage | None = None
) -> FastAPI:
    """The pages, their pictures and the export; `reviews` is the folder of the ratings."""
    app = FastAPI(title=TITLE, docs_url=None, redoc_url=None, openapi_url=None)
    site = Site(explorer, reviews, audit)
    add_gate(app, host)
    app.add_exception_handler(InputError, lambda _, error: site.page("problem", problem=error))
    app.add_exception_handler(RequestValidationError, site.refuse_values)
    app.add_exception_handler(HTTPException, site.refuse_address)
    pages: dict[str, Callable[..., Response]] = {
        "/": site.search,
        "/disagreements": site.disagreements,
        "/review": site.review,
        "/agreement": site.agreement,
        "/judgements.csv": site.judgements,
        "/picture/{number}": site.picture,
        "/page.js": lambda: FileResponse(_HERE / "page.js", media_type="text/javascript"),
        "/style.css": lambda: Response(
            b"".join(path.read_bytes() for path in STYLES), media_type="text/css"
        ),
    }
    for path, answer in pages.items():
        app.add_api_route(path, answer, response_model=None)
    app.add_api_route("/review", site.rate, methods=["POST"], response_model=None)
    if audit is not None:
        # Its own policy stands in the page.
        framed = {"Content-Security-Policy": FRAMES}
        app.add_api_route(AUDIT, lambda: FileResponse(audit.page, headers=framed))
        app.add_api_route(AUDIT, site.listed, methods=["POST"], response_model=None)
    if explorer.looks_at_pictures:
        app.add_api_route(UPLOAD, site.upload, methods=["POST"], response_model=None)
    return app


def _begin(text: str) -> str:
    """What somebody gave, or its beginning."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class Site:
    """The handlers of the pages' addresses."""

    def __init__(self, explorer: Explorer, reviews: Path, audit: AuditPage | None = None) -> None:
        self.explorer, self.captions, self.reviews = explorer, explorer.corpus.captions, reviews
        self.audit = audit
        self.jpeg = lru_cache(maxsize=1024)(self._jpeg)
        self.templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.globals.update(
            explorer=explorer,
            captions=self.captions,
            captions_of=self._captions_of,
            title=TITLE,
            rank=RANK,
            audit=audit and AUDIT,
        )

    def page(self, view: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A template as HTML; a `problem` among the values stands above its content."""
        values = {"view": view, "problem": None, **values}
        html = self.templates.get_template(f"{view}.html.j2").render(values)
        return HTMLResponse(html, status, headers={"Content-Security-Policy": POLICY})

    def refuse_values(self, _: Request, error: Exception) -> HTMLResponse:
        """The page that names the values of an address or a form that are not of their kind."""
        assert isinstance(error, RequestValidationError)
        problems = []
        for wrong in error.errors():
            what = _WRONG.get(wrong["type"], wrong["msg"])
            given = wrong["input"]
            said = f" '{_begin(given)}'" if isinstance(given, str) and given else ""
            problems.append(f"{wrong['loc'][-1]}{said}: {what}")
        return self.page("problem", 422, problem="; ".join(problems))

    def refuse_address(self, request: Request, error: Exception) -> HTMLResponse:
        """The page of an address that is none, or is not asked in this way."""
        assert isinstance(error, HTTPException)
        said = error.detail
        if error.status_code == 404:
            said = f"there is no page {_begin(request.url.path)}"
        elif error.status_code == 405:
            said = f"{_begin(request.url.path)} does not take {request.method}"
        page = self.page("problem", error.status_code, problem=said)
        page.headers.update(error.headers or {})
        return page

    def _captions_of(self, image: int, without: int | None = None) -> list[str]:
        return [self.captions.texts[row] for row in self.captions.rows_of(image) if row != without][
            :_SHOWN
        ]

    def search(
        self,
        q: str = "",
        caption: int | None = None,
        image: int | None = None,
        voice: Annotated[list[str] | None, Query()] = None,
    ) -> HTMLResponse:
        """Answers to words, or to the id of a caption or an image; without a question, to a random
        caption. By the measures and models that are named as `voice`, by default all."""
        captions, images = self.captions.caption_numbers, self.captions.image_numbers
        words = q.strip()
        names, twin = voice or [], None
        if words in captions:
            caption, twin, words = captions[words], images.get(words), ""
        elif words in images:
            image, words = images[words], ""
        elif not words and caption is None and image is None:
            caption = int(np.random.default_rng().integers(len(captions)))
        if words:
            return self._answers(self.explorer.answer_text(q, names=names), names, words=q)
        if image is not None and 0 <= image < len(images):
            return self._answers(self.explorer.answer_image(image, names=names), names, image=image)
        if caption is not None and 0 <= caption < len(captions):
            query = {"words": self.captions.texts[caption], "caption": caption, "twin": twin}
            return self._answers(self.explorer.answer_caption(caption, names=names), names, **query)
        raise InputError("no such item")

    def _answers(self, answers: list[Any], names: Sequence[str] = (), **query: Any) -> HTMLResponse:
        query = {
            "words": "",
            "caption": None,
            "image": None,
            "picture": None,
            "twin": None,
            **query,
        }
        # Every link keeps the choice of voices.
        voice_query = "".join(f"&{urlencode({'voice': name})}" for name in names)
        return self.page("search", answers=answers, names=names, voice_query=voice_query, **query)

    def upload(self, picture: Annotated[bytes, File()]) -> HTMLResponse:
        """Captions for an uploaded picture, which is not kept."""
        answers = self.explorer.answer_upload(picture)
        small = encode_image(
            Image.fromarray(decode_image(picture, "uploaded picture")), _SIDE, "JPEG", _QUALITY
        )
        return self._answers(answers, picture=data_uri(small, "jpeg"))

    def picture(self, number: int) -> Response:
        """A picture of the corpus."""
        data = self.jpeg(number)
        return (
            Response(status_code=404) if data is None else Response(data, media_type="image/jpeg")
        )

    def _jpeg(self, number: int) -> bytes | None:
        ids = self.captions.image_ids
        image = self.explorer.pictures.image(ids[number]) if 0 <= number < len(ids) else None
        return None if image is None else encode_image(image, _SIDE, "JPEG", _QUALITY)

    def disagreements(self, kind: str = "", high: str = "", low: str = "") -> HTMLResponse:
        """The pairs of one kind on which two voices disagree most."""
        sides = {key: self.explorer.sides(key) for key in KINDS}
        kinds = {
            key: KINDS[key]
            for key, (highs, lows) in sides.items()
            if highs and len({*highs, *lows}) > 1
        }
        if not kinds:
            return self.page(
                "disagreements",
                kinds={},
                pairs=[],
                problem="one measure has nobody to disagree with",
            )
        if kind and kind not in kinds:
            unknown = f"no list '{_begin(kind)}' -> choose one of those here"
            return self.page(
                "disagreements", kinds=kinds, kind="", highs=[], lows=[], high="", low="", pairs=[],
                problem=unknown,
            )  # fmt: skip
        kind = kind or next(iter(kinds))
        highs, lows = sides[kind]
        high, low, pairs, problem = high or highs[0], low or lows[-1], [], None
        try:
            pairs = self.explorer.disagreements(kind, high, low, COUNT)
        except InputError as error:
            problem = error
        return self.page(
            "disagreements",
            kinds=kinds,
            kind=kind,
            highs=highs,
            lows=lows,
            high=high,
            low=low,
            pairs=pairs,
            problem=problem,
        )

    @cached_property
    def ratings(self) -> ReviewRatings:
        """The review's ratings. They are opened when somebody first reviews, so that nothing is
        written before. InputError for a review of other captions."""
        listed = self.audit.listed if self.audit else None
        return open_review(self.reviews, self.explorer.corpus, listed)

    def review(self) -> HTMLResponse:
        """The form that asks for the reviewer's name."""
        return self.page("review", reviewer=None, key="")

    def rate(
        self,
        reviewer: Annotated[str, Form()] = "",
        key: Annotated[str, Form()] = "",
        item: Annotated[int | None, Form()] = None,
        score: Annotated[int | None, Form()] = None,
        back: Annotated[bool, Form()] = False,
    ) -> HTMLResponse:
        """Save the score of an item, if there is one, and show the next item, or with `back` the
        previous one."""
        try:
            reviewer, key = admit(self.ratings.folder, reviewer, key)
        except (InputError, OSError) as error:
            return self.page("review", reviewer=None, key="", problem=error)
        try:
            if score is not None and item is not None:
                self.ratings.rate(reviewer, item, score)
        except (InputError, OSError) as error:
            return self._to_rate(reviewer, key, item, f"NOT SAVED: {error}")
        item = (
            self.ratings.previous_item(reviewer, item) if back else self.ratings.next_item(reviewer)
        )
        return self._to_rate(reviewer, key, item)

    def listed(
        self, reviewer: Annotated[str, Form()] = "", key: Annotated[str, Form()] = ""
    ) -> JSONResponse:
        """The pairs of the review with the reviewer's scores, for the buttons of an audit's page,
        which rates by `rate`."""
        try:
            reviewer, key = admit(self.ratings.folder, reviewer, key)
            done = self.ratings.ratings_of(reviewer)
        except (InputError, OSError) as error:
            return JSONResponse({"problem": str(error)}, 409)
        items = [
            (one.image_id, one.caption_id, done.get(k))
            for k, one in enumerate(self.ratings.plan.items)
        ]
        return JSONResponse({"reviewer": reviewer, "key": key, "items": items})

    def _to_rate(
        self, reviewer: str, key: str, item: int | None, problem: str | None = None
    ) -> HTMLResponse:
        plan, done = self.ratings.plan, self.ratings.ratings_of(reviewer)
        rated = plan.items[item] if item is not None and 0 <= item < len(plan.items) else None
        image = caption = None
        if rated is not None:
            image = self.captions.image_numbers[rated.image_id]
            caption = self.captions.caption_numbers[rated.caption_id]
        return self.page(
            "review",
            reviewer=reviewer,
            key=key,
            item=item,
            image=image,
            caption=caption,
            problem=problem,
            done=done,
            total=len(plan.items),
            scores=zip(SCORES, _MEANINGS, strict=True),
        )

    def agreement(self) -> HTMLResponse:
        """The page of the reviewers' agreement."""
        result = measure_agreement(self.ratings)
        return self.page("agreement", rows=agreement_rows(result) if result["reviewers"] else [])

    def judgements(self) -> Response:
        """Mean scores as CSV, as `capgrade agree --judgements` reads them."""
        try:
            text, _ = judgements_csv(self.ratings)
        except InputError as error:
            return PlainTextResponse(str(error), status_code=409)
        headers = {"Content-Disposition": 'attachment; filename="judgements.csv"'}
        return Response(text, media_type="text/csv", headers=headers)


def open_server(
    explorer: Explorer, reviews: Path, host: str, port: int, audit: AuditPage | None = None
) -> tuple[uvicorn.Server, socket.socket, str]:
    """A server of the pages, its socket, and its URL; port 0 takes a free one. InputError where it
    cannot listen."""
    try:
        listening = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        problem = f"{host}:{port} cannot be listened on ({error.strerror or error})"
        raise InputError(problem, remedy="set another explore.port, or 0 for any") from error
    # Uvicorn's own logging settings would close every handler of the process, absl's too, which
    # closes stderr.
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(explorer, reviews, host, audit), log_level="warning", log_config=None
        )
    )
    bound_host, port = listening.getsockname()[:2]
    return (
        server,
        listening,
        f"http://[{bound_host}]:{port}" if ":" in bound_host else f"http://{bound_host}:{port}",
    )


def serve(
    explorer: Explorer,
    reviews: Path,
    host: str,
    port: int,
    ready: Callable[[str], None],
    audit: AuditPage | None = None,
) -> None:
    """Serve until interrupted, with the ratings in the folder `reviews`; `ready` is called with the
    address just before."""
    server, listening, address = open_server(explorer, reviews, host, port, audit)
    with listening:
        ready(address)
        server.run(sockets=[listening])
