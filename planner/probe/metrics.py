"""What a running vLLM says of its cache on its metrics endpoint: `vllm:cache_config_info` in Prometheus text.

Source: vLLM 0.8 to 0.33 `v1/metrics/loggers.py` (log_metrics_info), `config` CacheConfig.metrics_info: every field of
the cache's configuration as a label of one gauge.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from planner.errors import NotRecognised, ProbeError, UsageError

_LONGEST: Final = 4 << 20
_SECONDS: Final = 10.0
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_INFO: Final = re.compile(r"^vllm:cache_config_info\{([^\n]{0,20000})\}", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w{1,80})="([^"\\]{0,400})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheInfo:
    """The cache's configuration as the server states it; None where this version does not."""

    num_gpu_blocks: int | None
    block_size: int | None
    cache_dtype: str | None
    gpu_memory_utilization: float | None
    enable_prefix_caching: bool | None
    num_gpu_blocks_override: int | None
    labels: dict[str, str]

    @property
    def tokens(self) -> int | None:
        """Blocks times tokens of a block."""
        if self.num_gpu_blocks is None or self.block_size is None:
            return None
        return self.num_gpu_blocks * self.block_size


def read_metrics(url: str) -> CacheInfo:
    """The cache configuration at a server's metrics endpoint on this machine.

    Raises:
        UsageError: not an http address of this machine.
        ProbeError: nothing answers there.
        NotRecognised: what answers says nothing of a vLLM cache.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in _LOCAL:
        raise UsageError(
            f"--url {url[:80]!r}: expected http://localhost:PORT/metrics; forward the port of a server elsewhere",
            field="url",
        )
    target = url if parts.path not in ("", "/") else url.rstrip("/") + "/metrics"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    try:
        with opener.open(target, timeout=_SECONDS) as answer:
            text = answer.read(_LONGEST).decode("utf-8", "replace")
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ProbeError(f"{target}: no answer ({reason})", field="url") from None
    return parse_metrics(text)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A local server has no business sending us elsewhere."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def parse_metrics(text: str) -> CacheInfo:
    """The cache configuration in Prometheus text.

    Raises:
        NotRecognised: the gauge is not there.
    """
    found = _INFO.search(text)
    if found is None:
        raise NotRecognised("no vllm:cache_config_info among the metrics; is this a vLLM server's /metrics?")
    labels = dict(_LABEL.findall(found.group(1)))
    return CacheInfo(
        num_gpu_blocks=_whole(labels.get("num_gpu_blocks")),
        block_size=_whole(labels.get("block_size")),
        cache_dtype=_word(labels.get("cache_dtype")),
        gpu_memory_utilization=_fraction(labels.get("gpu_memory_utilization")),
        enable_prefix_caching={"True": True, "False": False}.get(labels.get("enable_prefix_caching", "")),
        num_gpu_blocks_override=_whole(labels.get("num_gpu_blocks_override")),
        labels=labels,
    )


def _word(text: str | None) -> str | None:
    return None if text in (None, "None", "") else text


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 16 else None


def _fraction(text: str | None) -> float | None:
    try:
        value = float(text) if text else 0.0
    except ValueError:
        return None
    return value if 0 < value <= 1 else None
