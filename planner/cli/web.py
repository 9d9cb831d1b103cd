"""`vram-planner web`: the same questions as a page on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.errors import UsageError


def web(
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8765,
    address: Annotated[str, typer.Option(help="Address to answer on; another than this machine's only if asked.")] = (
        "127.0.0.1"
    ),
) -> None:
    """Serve the questions as a page, with the API behind it under /api. Ctrl-C ends it.

    Needs the extra: pip install 'vram-planner[web]'.

    Example: vram-planner web --port 8765
    """
    try:
        import uvicorn

        from planner.web.app import make_app
    except ImportError as error:
        raise UsageError(f"web needs the package {error.name}: pip install 'vram-planner[web]'", field="web") from None
    typer.echo(f"http://{address}:{port}", err=True)
    uvicorn.run(make_app(address=address), host=address, port=port, log_level="warning", access_log=False)
