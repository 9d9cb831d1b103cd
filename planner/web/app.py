"""The HTTP application: a page, the API behind it, and bounds on what it reads and how often."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from planner.errors import PlannerError
from planner.model.names.bundled import bundled_names
from planner.report.contracts.serving import Serve
from planner.report.html.page import style
from planner.report.html.results import serving_page, serving_parts
from planner.report.serving import plan_csv, plan_json
from planner.version import __version__
from planner.web.questions import answer, described

_LARGEST_BODY: Final = 1 << 16
_MOST_A_SECOND: Final = 200
_LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")
_POLICY: Final = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src data:"
)


def make_app(*, address: str = "127.0.0.1") -> FastAPI:
    """The application.

    Args:
        address: what it is served on; requests that name another host, or come from another origin, are refused.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no request of a visitor's leaves the machine
    app = FastAPI(title="vram-planner", version=__version__, docs_url=None, redoc_url=None)
    recent: deque[float] = deque(maxlen=_MOST_A_SECOND)

    @app.middleware("http")
    async def bounded(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        refusal = _refusal(request, address)
        now = time.monotonic()
        if refusal is None and len(recent) == _MOST_A_SECOND and now - recent[0] < 1:
            refusal = (429, "too many questions at once; wait a second")
        recent.append(now)
        response: Response
        if refusal is not None:
            response = JSONResponse({"error": {"message": refusal[1]}}, status_code=refusal[0])
        else:
            response = await call(request)
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    @app.exception_handler(PlannerError)
    async def mistaken(request: Request, error: PlannerError) -> JSONResponse:
        return JSONResponse({"error": {"message": str(error), "field": error.field}}, status_code=422)

    @app.get("/", response_class=HTMLResponse)
    def page() -> str:
        return _file("page.html")

    @app.get("/page.js")
    def script() -> Response:
        return Response(_file("page.js"), media_type="text/javascript")

    @app.get("/page.css")
    def look() -> Response:
        return Response(style() + _file("page.css"), media_type="text/css")

    @app.get("/api/engines")
    def engines() -> list[dict[str, object]]:
        return described()

    @app.get("/api/models")
    def models() -> list[str]:
        return sorted(bundled_names())

    @app.post("/api/serve", response_model=Serve, response_model_by_alias=True, response_model_exclude_unset=True)
    async def serve(request: Request) -> Any:
        return plan_json(answer(await _question(request)).plan)

    @app.get("/api/serve")
    def export(request: Request, form: str = "json") -> Response:
        values = dict(parse_qsl(request.url.query, max_num_fields=100))
        values.pop("form", None)
        plan = answer(values).plan
        if form == "html":
            return HTMLResponse(serving_page(plan))
        if form == "csv":
            return PlainTextResponse(plan_csv(plan), media_type="text/csv")
        return JSONResponse(plan_json(plan))

    @app.post("/api/shown", response_class=HTMLResponse)
    async def shown(request: Request) -> str:
        from planner.api import advise

        plan = answer(await _question(request)).plan
        advice = advise(plan) if plan.verdict != "fits" else None
        return "\n".join(serving_parts(plan, advice))

    return app


async def _question(request: Request) -> dict[str, Any]:
    """The JSON object of a request's body.

    Raises:
        PlannerError: too large, or no object.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_BODY:
            raise PlannerError(f"the question is larger than {_LARGEST_BODY >> 10} KiB")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise PlannerError('the question is no JSON object such as {"model": "Qwen/Qwen3-8B", "gpu": "4090"}')
    return values


def _refusal(request: Request, address: str) -> tuple[int, str] | None:
    host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
    if address in ("127.0.0.1", "localhost", "::1") and host not in _LOCAL:
        return 403, "this server answers on this machine alone"
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        return 403, "questions from other pages are not answered"
    return None


def _file(name: str) -> str:
    return files("planner.web").joinpath(name).read_text("utf-8")
