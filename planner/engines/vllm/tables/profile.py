"""What one version of vLLM does with memory: a record of rules and defaults.

The record is data (`releases.json`): each row there states what changed in a version, with its source, and a profile is
the rows up to the asked version laid over each other. The rules that the words name are functions in
`planner.engines.vllm`; a new version is usually one row.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from planner.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import NotRequired

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.+\-]?(?:post|dev|rc)[\w.+]*)?")

Runner = Literal["v0", "v1", "v2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """The rules of one version.

    Args:
        version: as asked for.
        runner: the model runner that this version uses for models not in `v2_models`.
        v2_models: "none", "all", or which architectures take the V2 runner: comma-separated names, after "plain:" when
            quantised checkpoints do not, after "dense:" when every other dense decoder without recurrent layers does.
        accounting: what is subtracted: "reserved" (free memory before and after, torch cache included), "context"
            (peak + non-torch, the CUDA context among it), "increase" (weights + peak + non-torch increase),
            "device_used" (everything on the card), "consumed" (free memory lost + transient peak).
        graphs_inside: the CUDA graph estimate is subtracted.
        ceil_requested: requested memory is rounded up.
        nccl_in_non_torch: communicators are set up after the first snapshot.
        gpu_memory_utilization: default fraction.
        checks_free_memory: refuses to start when less is free than requested.
        sampler: "sort", "triton", "flashinfer", "logits" (no sampler in the profile run) or "all_logits".
        optional_sampler: taken instead where its package is installed, as in the official images; "": none.
        v2_sampler: the same for the V2 runner: "copied_logits" (an fp32 copy), "logits" or "second_pass".
        v2_graph_estimate: the V2 runner estimates its graphs; before, nothing is subtracted for them.
        triton_from_rows: fewer requests than this are sorted instead.
        batch_defaults: "v0" or "v1" rules for max_num_batched_tokens and max_num_seqs.
        a100_small_batches: an A100 takes the small card's batch defaults.
        gb10_small_batches: so does a GB10, whatever its memory.
        huge_card_batches: cards of 160 GiB and more take 16,384 tokens.
        graph_sizes: rule for the captured batch sizes.
        graph_mode: "full", "piecewise" or "full_and_piecewise".
        hybrid_manager: windowed and recurrent layers get groups of their own.
        group_tolerance: pad to the larger count when below numerator/denominator of the smaller ([0, 1]: never).
        unifies_pages: unequal pages are made equal by larger blocks.
        pads_pages: where that does not come out even, pages are padded (not with MLA).
        packed_layout: how caches of different pages share a block (DeepSeek-V4): "none", "tuples", "buckets", "dense"
            or "patterns".
        tokens_line: "groups" or "concurrency": how the printed token count is made.
        capacity_check: "layers", "global_groups" or "groups": how the bytes one request needs are counted.
        reserves_null_block: the capacity check leaves one block out.
        windows_in_flight: windows keep max_num_batched_tokens for every batch in flight.
        latent_workspace_cap: tokens of MLA's profiled prefill workspace at most.
        latent_alignment_bytes: a latent token slot is padded to this (V0).
        latent_blocks: which backend MLA has by default: "cutlass", "flashinfer" or "preferred".
        hybrid_alignment: "fixed" (16 tokens, 64 with MLA), "block" (the block size) or "block128" (128 with MLA).
        expert_buffers: "separate" (freed after the layer), "fused" (the same, two of them in one place) or "workspace"
            (kept).
        expert_chunk: tokens a MoE kernel takes at once (0: all).
        compiled_scratch: compilation benchmarks kernels during the profile run.
        state_modes: what prefix caching does to recurrent layers: "off" (it is turned off), "blocks" (a state for
            every block where the kernels can, else off), "modes" (the same, else aligned) or "align".
        hybrid_prefix_caching: prefix caching is on by default for models with recurrent layers.
        honours_state_dtype: the model's own wish for its recurrent state's dtype is read.
        remainder_to_last: all remainder layers go to the last pipeline stage.
        swap_space: "blocks" (CPU blocks), "ignored", or "gone".
        typo_in_refusal: the refusal says "models's".
        validated: this row's numbers were checked on measured starts.
        residual_mib: MiB by which the cache of one GPU may miss where they were not: what reading the release and a few
            public logs leave open (starts of `planner/validation/cases` by version: docs/accuracy.md).
        source: where the row's facts come from.
    """

    version: str
    runner: Runner
    v2_models: str
    accounting: str
    graphs_inside: bool
    ceil_requested: bool
    nccl_in_non_torch: bool
    gpu_memory_utilization: float
    checks_free_memory: bool
    sampler: str
    optional_sampler: str
    v2_sampler: str
    v2_graph_estimate: bool
    triton_from_rows: int
    batch_defaults: str
    a100_small_batches: bool
    gb10_small_batches: bool
    huge_card_batches: bool
    graph_sizes: str
    graph_mode: str
    hybrid_manager: bool
    group_tolerance: tuple[int, int]
    unifies_pages: bool
    pads_pages: bool
    packed_layout: str
    tokens_line: str
    capacity_check: str
    reserves_null_block: bool
    windows_in_flight: bool
    latent_workspace_cap: int
    latent_alignment_bytes: int
    latent_blocks: str
    hybrid_alignment: str
    expert_buffers: str
    expert_chunk: int
    compiled_scratch: bool
    state_modes: str
    hybrid_prefix_caching: bool
    honours_state_dtype: bool
    remainder_to_last: bool
    swap_space: str
    typo_in_refusal: bool
    validated: bool
    residual_mib: int
    source: str


@lru_cache(maxsize=64)
def parse_version(text: str) -> tuple[int, int, int]:
    """(major, minor, patch) of "0.19", "v0.19.1", "0.7.3.dev233".

    Raises:
        UsageError: not a version, or outside what is described.
    """
    match = _VERSION.fullmatch(text.strip()) if len(text) <= 64 else None
    if match is None:
        raise UsageError(f"--engine-version: {text[:40]!r} is not a version such as 0.19.0", field="engine_version")
    major, minor, patch = (int(part or 0) for part in match.groups())
    oldest, newest = _rows()[0][0], _rows()[-1][0]
    if not oldest[:2] <= (major, minor) <= newest[:2]:
        raise UsageError(
            f"--engine-version {text}: vLLM {' to '.join(version_range())} are described; pass the nearest of those",
            field="engine_version",
        )
    return major, minor, patch


@cache
def vllm_profile(version: str) -> EngineProfile:
    """The profile of a vLLM version that is described.

    Raises:
        UsageError: not a version, or not one of those.
    """
    asked = parse_version(version)
    values: dict[str, object] = {}
    for first, row in _rows():
        if first <= asked:
            values.update(row["changes"])
            values["source"] = row["source"]
            values["validated"] = row.get("validated", False)
    tolerance = values["group_tolerance"]
    assert isinstance(tolerance, list)
    values["group_tolerance"] = tuple(tolerance)
    names = {field.name for field in fields(EngineProfile)} - {"version"}
    return EngineProfile(version=version.strip().lstrip("v"), **{name: values[name] for name in names})  # type: ignore[arg-type]


# The last release whose own engine is V0, and the first whose is V1: versions between them carry both.
_LAST_V0: Final = "0.7.3"
_FIRST_V1: Final = "0.8.0"
_V0_GONE: Final = (0, 11)
_V1_APPEARS: Final = (0, 6, 6)
_V2_APPEARS: Final = (0, 22)


def profile_with_runner(version: str, runner: str) -> EngineProfile:
    """The profile of a version with the model runner forced ("auto" leaves the version's own choice).

    Raises:
        UsageError: not a version, or one that does not have this runner.
    """
    profile = vllm_profile(version)
    asked = parse_version(version)
    if runner == "auto":
        return profile
    if runner == profile.runner:
        return replace(profile, v2_models="none")
    if runner == "v0" and asked < _V0_GONE:
        return replace(vllm_profile(_LAST_V0), version=profile.version)
    if runner == "v1" and asked >= _V1_APPEARS:
        return replace(vllm_profile(_FIRST_V1), version=profile.version)
    if runner == "v2" and asked >= _V2_APPEARS:
        return replace(profile, v2_models="all")
    if runner not in ("v0", "v1", "v2"):
        raise UsageError(f"--model-runner is {runner[:40]!r}; expected auto, v0, v1 or v2", field="model_runner")
    raise UsageError(f"vLLM {version} has no {runner.upper()} model runner", field="model_runner")


def version_range() -> tuple[str, str]:
    """The oldest and the newest release that is described, as major and minor."""
    oldest, newest = (".".join(map(str, _rows()[end][0][:2])) for end in (0, -1))
    return oldest, newest


@cache
def validated_versions() -> tuple[str, ...]:
    """The releases whose figures were checked on measured starts, oldest first: "0.19"."""
    return tuple(f"{first[0]}.{first[1]}" for first, row in _rows() if row.get("validated"))


class _Row(TypedDict):
    """A row of vllm.json: what changed in the version it starts at."""

    changes: dict[str, object]
    source: str
    validated: NotRequired[bool]


@cache
def _rows() -> tuple[tuple[tuple[int, ...], _Row], ...]:
    rows = json.loads(files("planner.engines.vllm.tables").joinpath("releases.json").read_text("utf-8"))
    return tuple((tuple(row["from"]), row) for row in rows)


# The newest release that has a row: a release where nothing changed is a row without changes.
DEFAULT_VERSION: Final = ".".join(map(str, _rows()[-1][0]))
