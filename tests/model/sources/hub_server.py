"""A small HTTP server on 127.0.0.1 that answers as the Hub does for `resolve` URLs."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")


@dataclass
class FakeHub:
    """What the server serves, and what it was asked.

    Args:
        repos: repository -> file name -> content.
        errors: repository -> (status, X-Error-Code) that every request for it gets.
        private: repositories that want the token.
        ranges: whether byte ranges are known.
        slow: repository -> how its answer is dragged out ("silent", "drip").
        moved: repository -> the one that requests are sent on to.
    """

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    token: str = "hf_good"
    ranges: bool = True
    slow: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    sent_bytes: int = 0
    endpoint: str = ""
    closing: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve(hub: FakeHub) -> Iterator[FakeHub]:
    """The server, running until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(head=True)

        def do_GET(self) -> None:
            self.answer(head=False)

        def answer(self, *, head: bool) -> None:
            hub.requests.append((self.command, self.path, self.headers.get("Range", "")))
            match = _RESOLVE.fullmatch(self.path)
            if match is None:
                return self.refuse(404, "")
            repo, name = match["repo"], match["name"]
            if repo in hub.slow:
                return self.drag(hub.slow[repo])
            if repo in hub.errors:
                return self.refuse(*hub.errors[repo])
            if repo in hub.moved:
                return self.redirect(f"/{hub.moved[repo]}/resolve/{match['revision']}/{name}")
            if repo not in hub.repos:
                return self.refuse(401, "RepoNotFound")
            if repo in hub.private and self.headers.get("Authorization") != f"Bearer {hub.token}":
                return self.refuse(401, "RepoNotFound")
            if match["revision"] not in ("main", COMMIT):
                return self.refuse(404, "RevisionNotFound")
            if name not in hub.repos[repo]:
                return self.refuse(404, "EntryNotFound")
            self.send_file(hub.repos[repo][name], head=head)

        def send_file(self, content: bytes, *, head: bool) -> None:
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            part, status = content, 200
            if asked and hub.ranges:
                first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
                part, status = content[first : last + 1], 206
            self.send_response(status)
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            self.send_header("Content-Length", str(len(part)))
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if not head:
                hub.sent_bytes += len(part)
                self.wfile.write(part)

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def redirect(self, path: str) -> None:
            self.send_response(307)
            self.send_header("Location", path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def drag(self, how: str) -> None:
            if how == "drip":
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.send_header("ETag", '"drip"')
                self.send_header("X-Repo-Commit", COMMIT)
                self.end_headers()
                step: Callable[[], object] = lambda: self.wfile.write(b" ")  # noqa: E731
                if self.command == "HEAD":
                    return
            else:
                step = lambda: None  # noqa: E731
            while not hub.closing.wait(0.05):
                step()
            self.close_connection = True

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # the client has gone
                self.close_connection = True

        def finish(self) -> None:
            with suppress(OSError):
                super().finish()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
