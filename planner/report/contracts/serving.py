"""What serve, explain, compare and size print."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from planner.report.contracts.parts import Advised, Device, ModelFacts, Open, Part, Verdict


class StartupError(Part):
    """What the engine would stop with."""

    kind: str
    message: str


class KvCache(Open):
    """The cache of the fullest device; an engine adds the figures that it prints."""

    bytes_per_token: int
    bytes_per_sequence: int
    window_bytes_per_sequence: int
    state_bytes_per_sequence: int
    reserved_bytes: int
    tokens: int | None
    max_concurrency: float
    max_model_len_that_fits: int


class WorkloadPoint(Part):
    """Requests that fit when all have this length."""

    at: str
    tokens_per_request: int
    concurrency: int


class Load(Part):
    """The peak while weights are loaded, and host memory."""

    gpu_peak_bytes: int
    host_bytes: int


class Serve(Advised):
    """`serve` and `explain`: one plan. `ranks`, `budget` and `outside_budget` are there for vLLM; `peak` and
    `largest_that_fits` for transformers."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    schema_: Literal[2] = Field(alias="schema")
    engine: str
    engine_version: str
    model: ModelFacts
    deployment: dict[str, Any] = Field(description="every input after defaults, under the engine's own names")
    devices: list[Device]
    kv_cache: KvCache
    workload: list[WorkloadPoint]
    load: Load
    verdict: Verdict
    shortfall_bytes: int
    startup_error: StartupError | None
    unknown: list[str] = Field(description="terms that matter and are not known; with the verdict unknown only")
    command: str
    notes: list[str]


class QualityBand(Part):
    """Published rows of a format at a model's size, of one metric."""

    metric: str
    min: float
    median: float
    max: float
    n: int
    sources: int
    date: str


class CompareRow(Part):
    """One combination; sizes of one GPU, the fullest. Figures that a refused row did not reach are null."""

    engine: str
    model: str
    gpu: str
    tensor_parallel_size: int
    quantization: str = Field(description="how the weights are stored, in words")
    kv_cache_dtype: str
    max_model_len: int
    weights_bytes: int | None
    bytes_per_token: int | None = Field(description="growth of one sequence by a token at this length")
    kv_cache_bytes: int | None
    tokens: int | None
    concurrency: int | None
    verdict: Verdict
    reason: str
    weight_format: str | None = Field(description="the format asked for; null as stored")
    cache_type: str | None = Field(description="the type of cache asked for; null the engine's default")
    parameters: int
    tokens_per_second_low: float | None = Field(description="of one request at half the length")
    tokens_per_second_best: float | None
    tokens_per_second_high: float | None
    batch_tokens_per_second_low: float | None = Field(description="of all requests that fit at once")
    batch_tokens_per_second_best: float | None
    batch_tokens_per_second_high: float | None
    kept: str | None = Field(None, description="median of what is published of the formats, in short")
    quality: str | None = Field(None, description="the same with how many rows")
    weight_quality: list[QualityBand] | None = None
    cache_quality: list[QualityBand] | None = None
    usd_per_hour: float | None = None
    price: str | None = None
    usd_per_million_low: float | None = Field(None, description="of a million output tokens, all requests running")
    usd_per_million_best: float | None = None
    usd_per_million_high: float | None = None
    pareto: bool | None = Field(
        None, description="no other row of its model, card and context beats it in memory, requests and quality"
    )


class Compare(Part):
    """`compare`: the question and a row for each combination."""

    schema_: Literal[2] = Field(alias="schema")
    query: dict[str, Any]
    rows: list[CompareRow]


class SizeRow(Part):
    """One layout on one card that carries the load."""

    gpu: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    users_per_replica: int
    users_by_memory: int
    users_by_throughput: int | None
    binding: str
    replicas: int
    gpus: int
    total_replicas: int
    total_gpus: int
    nodes: int
    users_after_failure: int
    tokens_per_second_per_user: str
    tokens_per_second_per_user_low: float
    tokens_per_second_per_user_best: float
    tokens_per_second_per_user_high: float
    time_to_first_token_low: float
    time_to_first_token_best: float
    time_to_first_token_high: float
    responses_per_day_low: int
    responses_per_day_best: int
    responses_per_day_high: int
    output_tokens_per_day_low: int
    output_tokens_per_day_best: int
    output_tokens_per_day_high: int
    cost_per_day: float | None
    price: str | None
    cost_per_million_output_tokens: float | None
    cost_per_million_output_tokens_low: float | None
    cost_per_million_output_tokens_high: float | None
    verdict: Verdict
    evidence: str
    command: str


class Rejected(Part):
    """A card that cannot carry the load, and why."""

    gpu: str
    reason: str


class Size(Part):
    """`size`: the question, candidates and rejected cards."""

    schema_: Literal[2] = Field(alias="schema")
    query: dict[str, Any]
    rows: list[SizeRow]
    rejected: list[Rejected]
    notes: list[str]
