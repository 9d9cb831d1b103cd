"""The cache configuration on a metrics endpoint, and what does not answer like one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from planner.errors import NotRecognised, ProbeError, UsageError
from planner.probe.metrics import parse_metrics, read_metrics
from tests.local_server import Quiet, serving

METRICS = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",\
gpu_memory_utilization="0.9",num_gpu_blocks="27826",num_gpu_blocks_override="None",sliding_window="None"} 1.0
vllm:num_requests_running{engine="0",model_name="m"} 0.0
"""


class _Server(Quiet):
    def do_GET(self) -> None:
        if self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "http://192.0.2.1/metrics")
            self.end_headers()
            return
        body = METRICS.encode() if self.path == "/metrics" else b"x" * (5 << 20)
        self.answer(body)


@pytest.fixture
def address() -> Iterator[str]:
    with serving(_Server) as found:
        yield found


def test_the_cache_of_a_server(address: str) -> None:
    info = read_metrics(address)
    assert (info.num_gpu_blocks, info.block_size, info.tokens) == (27_826, 16, 445_216)
    assert (info.cache_dtype, info.gpu_memory_utilization, info.enable_prefix_caching) == ("auto", 0.9, True)
    assert info.num_gpu_blocks_override is None


def test_a_flood_is_cut_and_not_recognised(address: str) -> None:
    with pytest.raises(NotRecognised):
        read_metrics(f"{address}/flood")


def test_a_redirect_is_not_followed(address: str) -> None:
    with pytest.raises(ProbeError):
        read_metrics(f"{address}/elsewhere")


@pytest.mark.parametrize(
    "url", ("http://example.com/metrics", "file:///etc/passwd", "ftp://localhost/", "localhost:80")
)
def test_only_this_machine(url: str) -> None:
    with pytest.raises(UsageError):
        read_metrics(url)


def test_no_answer() -> None:
    with pytest.raises(ProbeError, match="no answer"):
        read_metrics("http://127.0.0.1:9")


@pytest.mark.parametrize("value", ("", "-1", "1e9", "9" * 40, "٣", "None"))
def test_counts_that_are_none(value: str) -> None:
    info = parse_metrics(f'vllm:cache_config_info{{num_gpu_blocks="{value}",block_size="16"}} 1.0')
    assert info.num_gpu_blocks is None and info.tokens is None
