"""Requests to the Hub with a bound on their size and their time. huggingface_hub is imported when one is made.

URLs, the session (proxies, certificates), the token and the cache are huggingface_hub's, so HF_ENDPOINT, HF_TOKEN,
HF_HOME and HF_HUB_OFFLINE mean here what they mean there. Read against huggingface_hub 2.4.0.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from planner.errors import SourceError

TIMEOUT_S: Final = 10.0
_Result = TypeVar("_Result")
_CHUNK_BYTES: Final = 64 << 10
_TOTAL: Final = re.compile(r"bytes \d+-\d+/(\d{1,19})")
PLAN_OFFLINE: Final = "to plan offline, pass a folder with the model's config.json, or the config.json itself"


class HubError(SourceError):
    """The Hub cannot be asked, or does not answer as it should."""


class NotThere(Exception):
    """The repository exists and has no file of that name."""


def cached_file(repo_id: str, filename: str, revision: str | None) -> Path | None:
    """The file in the local cache, whoever put it there; None when it is not cached.

    Raises:
        SourceError: no valid repository id.
        NotThere: the cache knows that the repository has no such file.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repo_id, filename, revision=revision)
    except (HFValidationError, ValueError) as error:
        raise SourceError(f"{repo_id!r} is no Hub id ({error})") from None
    except OSError as error:
        raise SourceError(f"{repo_id}: its cached copy cannot be read ({error.strerror or error})") from None
    if isinstance(found, str):
        return Path(found)
    if found is not None:
        raise NotThere(filename)
    return None


def offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids requests."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def download(repo_id: str, filename: str, revision: str | None, *, max_bytes: int) -> Path:
    """Fetch a small file into the local cache, in at most `TIMEOUT_S` seconds.

    Raises:
        HubError: offline, unreachable, too slow, refused; says how to plan offline.
        SourceError: larger than `max_bytes`.
        NotThere: the repository has no such file.
    """
    origin = f"{repo_id}/{filename}"

    def fetch() -> Path:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

        # Asked first for the size, and because this request is not repeated for half a minute when nobody answers.
        url = hf_hub_url(repo_id, filename, revision=revision)
        size = get_hf_file_metadata(url, timeout=TIMEOUT_S).size
        if size is not None and size > max_bytes:
            raise SourceError(f"{origin}: is {size:,} bytes, more than the {max_bytes >> 20} MiB such a file may have")
        return Path(hf_hub_download(repo_id, filename, revision=revision, etag_timeout=TIMEOUT_S))

    return _asked(repo_id, filename, revision, fetch)


def read_range(
    repo_id: str, filename: str, revision: str | None, *, first: int, count: int
) -> tuple[bytes, int | None]:
    """Up to `count` bytes of a file from byte `first`, and the size of the whole file when the server tells it.

    Raises:
        HubError: as `download`.
        NotThere: the repository has no such file.
    """

    def fetch() -> tuple[bytes, int | None]:
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(repo_id, filename, revision=revision)
        headers = dict(_utils().build_hf_headers())
        headers |= {"Range": f"bytes={first}-{first + count - 1}", "Accept-Encoding": "identity"}
        with _stream(url, headers) as (response, chunks):
            _utils().hf_raise_for_status(response)
            partial = response.status_code == HTTPStatus.PARTIAL_CONTENT
            # A server that knows no ranges sends the file from its beginning.
            skip = 0 if partial else first
            content = _take(chunks, skip + count)[skip:]
            return content, _size(response.headers, partial)

    return _asked(repo_id, filename, revision, fetch)


def _utils() -> Any:
    """huggingface_hub.utils, whose names are stable across its versions though not all are declared as exports."""
    from huggingface_hub import utils

    return utils


@contextmanager
def _stream(url: str, headers: dict[str, str]) -> Iterator[tuple[Any, Iterator[bytes]]]:
    """An open response and its content in pieces, from httpx (huggingface_hub 1.0 on) or requests (before)."""
    session = _utils().get_session()
    if callable(getattr(session, "stream", None)):
        with session.stream("GET", url, headers=headers, timeout=TIMEOUT_S, follow_redirects=True) as response:
            yield response, response.iter_bytes(_CHUNK_BYTES)
    else:
        with session.get(url, headers=headers, timeout=TIMEOUT_S, stream=True) as response:
            yield response, response.iter_content(_CHUNK_BYTES)


def _take(chunks: Iterator[bytes], count: int) -> bytes:
    """The first `count` bytes, given up at the deadline, so that an abandoned thread ends too."""
    deadline = time.monotonic() + TIMEOUT_S
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) >= count:
            break
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(content[:count])


def _size(headers: Any, partial: bool) -> int | None:
    """Bytes of the whole file, from Content-Range or Content-Length."""
    if partial:
        match = _TOTAL.fullmatch(headers.get("Content-Range") or "")
        return int(match[1]) if match else None
    length = headers.get("Content-Length") or ""
    return int(length) if length.isdecimal() and len(length) < 20 else None


def _asked(repo_id: str, filename: str, revision: str | None, fetch: Callable[[], _Result]) -> _Result:
    """What `fetch` returns, within the time limit; its failures in a sentence."""
    origin = f"{repo_id} (revision {revision})" if revision else repo_id
    if offline():
        raise HubError(f"{origin}: {filename} is not in the local cache, and HF_HUB_OFFLINE is set; {PLAN_OFFLINE}")
    try:
        return _within(TIMEOUT_S, fetch)
    except (SourceError, NotThere):
        raise
    except Exception as error:  # the types differ by version of huggingface_hub and of its HTTP library
        if _no_such_entry(error):
            raise NotThere(filename) from None
        raise HubError(f"{origin}: {_sentence(error)}; {PLAN_OFFLINE}") from None


def _within(seconds: float, work: Callable[[], _Result]) -> _Result:
    """What `work` returns, if it does in time.

    The limits of an HTTP library are for one read of the socket, so a server that sends a byte now and then is never
    too slow for them. The thread is abandoned; being a daemon, it does not keep the process alive.

    Raises:
        TimeoutError: too slow.
        Exception: whatever `work` raises.
    """
    answers: queue.SimpleQueue[tuple[_Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((work(), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=run, daemon=True, name="hub-request").start()
    try:
        result, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # None only where work returns it


def _no_such_entry(error: BaseException) -> bool:
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    return isinstance(error, EntryNotFoundError) and isinstance(error, HfHubHTTPError)


def _sentence(error: BaseException) -> str:
    """What went wrong and what the user can do about it."""
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, HFValidationError):
        return "is no valid Hub id"
    if isinstance(error, GatedRepoError):
        return "is gated: accept its terms on the Hub and set HF_TOKEN"
    if isinstance(error, RepositoryNotFoundError):
        return "is not on the Hub, or is private (then set HF_TOKEN)"
    if isinstance(error, RevisionNotFoundError):
        return "has no such revision"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"the Hub refuses access (HTTP {status}); set HF_TOKEN to a token that may read it"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "the Hub refuses further requests for now (HTTP 429); try later, or set HF_TOKEN"
    if isinstance(status, int):
        return f"the Hub answers with HTTP {status}"
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return f"the Hub does not answer within {TIMEOUT_S:.0f} s"
    return f"the Hub cannot be reached ({type(error).__name__})"
