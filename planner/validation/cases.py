"""Measured cases: what was started, on what, and what was printed.

A case is one JSON object a line:

    id             unique name
    source         where it was published
    model, config  as people wrote the model, and the bundled config that describes it (null: none does)
    deployment     what is known of the command: engine_version, gpu, gpu_memory_gib, tensor_parallel,
                   pipeline_parallel, data_parallel, expert_parallel, dtype, quantization (as printed),
                   base_quantization (our --quantization for the base config), kv_cache_dtype, max_model_len,
                   max_num_seqs, max_num_batched_tokens, gpu_memory_utilization, enforce_eager, other_flags
    measured       what was printed, sizes in GiB: weights_gib, activation_peak_gib, non_torch_gib, cuda_graph_gib,
                   cuda_graph_estimated_gib, kv_cache_gib, num_gpu_blocks, kv_tokens, max_concurrency,
                   max_concurrency_len, needed_kv_gib_for_one_request, estimated_max_len, free_memory_gib, error
                   a record of the probe has engine "transformers", `probe` ("serve" or "train"), `device`, `versions`,
                   `workload` (the inputs under our own names) and num_hidden_layers when the depth was cut; its
                   measured figures are those of the probe's table, each with _gib
    inferred       what was deduced, not printed
    quality        A all inputs known, B bytes per token or weights can be checked, C partial
    notes          free text
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Final

from planner.errors import SourceError
from planner.validation.case_types import wrong_value

_LONGEST_LINE: Final = 1 << 20
_MOST_CASES: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured start; the fields are those of the module's docstring."""

    id: str
    source: str
    model: str
    config: str | None
    quality: str
    deployment: Mapping[str, object] = field(default_factory=dict)
    measured: Mapping[str, object] = field(default_factory=dict)
    inferred: Mapping[str, object] = field(default_factory=dict)
    notes: str = ""

    def number(self, name: str) -> float | None:
        """A measured figure, or None when it was not printed."""
        value = self.measured.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def figures(self) -> dict[str, float]:
        """Every measured figure."""
        return {name: value for name in self.measured if (value := self.number(name)) is not None}

    def given(self, name: str) -> object:
        """A known input of the deployment, or None."""
        return self.deployment.get(name)


def bundled_vllm_cases() -> tuple[Case, ...]:
    """The vLLM starts that ship with the planner."""
    text = files("planner.validation").joinpath("cases/vllm.jsonl").read_text("utf-8")
    return tuple(read_cases(text.splitlines(), origin="bundled vLLM cases"))


def bundled_cases(name: str) -> tuple[Case, ...]:
    """The starts of another engine that ship with the planner ("sglang", "tensorrt_llm")."""
    text = files("planner.validation").joinpath(f"cases/{name}.jsonl").read_text("utf-8")
    return tuple(read_cases(text.splitlines(), origin=f"bundled {name} cases"))


def load_cases(path: Path) -> tuple[Case, ...]:
    """Cases from a file in the same schema.

    Raises:
        SourceError: the file cannot be read, holds no case, or a line is not a case; names the line.
    """
    try:
        with path.open("r", encoding="utf-8") as file:
            found = tuple(read_cases(file, origin=str(path)))
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not found:
        raise SourceError(f"{path}: holds no case; a case is one JSON object a line (see docs/json.md)")
    return found


def read_cases(lines: Iterator[str] | list[str], *, origin: str) -> Iterator[Case]:
    """Cases from lines of JSON; empty lines are skipped.

    Raises:
        SourceError: a line that is no case; names it.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if len(line) > _LONGEST_LINE or number > _MOST_CASES:
            raise SourceError(f"{origin}, line {number}: too long or too many lines for measured cases")
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise SourceError(f"{origin}, line {number}: is not JSON; a case is one JSON object a line") from None
        yield _case(row, f"{origin}, line {number}")


def _case(row: object, where: str) -> Case:
    if not isinstance(row, dict):
        raise SourceError(f"{where}: holds no object")
    parts: dict[str, Mapping[str, object]] = {}
    for name in ("deployment", "measured", "inferred"):
        part = row.get(name) or {}
        if not isinstance(part, dict):
            raise SourceError(f"{where}: {name} must be an object")
        parts[name] = part
    # some records state the engine beside the deployment
    beside = {name: row[name] for name in ("engine", "engine_version") if isinstance(row.get(name), str)}
    parts["deployment"] = beside | dict(parts["deployment"])
    if not isinstance(row.get("id"), str) or not isinstance(row.get("model"), str):
        raise SourceError(f"{where}: id and model must be strings")
    config = row.get("config")
    if config is not None and not isinstance(config, str):
        raise SourceError(f"{where}: case {row['id']}: config must be a model's name or null")
    for name in ("deployment", "measured"):
        wrong = wrong_value(name, parts[name])
        if wrong is not None:
            raise SourceError(f"{where}: case {row['id']}: {wrong}")
    return Case(
        id=row["id"],
        source=str(row.get("source") or ""),
        model=row["model"],
        config=config,
        quality=str(row.get("quality") or "C"),
        deployment=parts["deployment"],
        measured=parts["measured"],
        inferred=parts["inferred"],
        notes=str(row.get("notes") or ""),
    )
