"""`vram-planner size`: how many GPUs for how many users."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.deployment_options import DEFAULT_VERSION, EngineVersionOption, ModelArgument, token_count
from planner.contract.lengths import parse_lengths
from planner.engines.vllm.deployment import Deployment
from planner.errors import UsageError
from planner.hardware.gpus import Gpu, find_gpu
from planner.model.load import load_model
from planner.report.rows import Format
from planner.report.size import curve_chart, curve_csv, render_fleet
from planner.serving.curves import CurvePoint, context_curve, user_curve
from planner.serving.fleet import Candidate, Demand, size_fleet
from planner.serving.redundancy import parse_redundancy

# assumed where the user names no card: what clouds rent most
_USUAL_CARDS = ("l4", "l40s", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm", "b200")


def size(
    model: ModelArgument,
    users: Annotated[int, typer.Option(help="Users at the peak.", min=0)] = 0,
    requests_per_second: Annotated[float, typer.Option("--requests-per-second", "--rps", help="Load, instead.")] = 0.0,
    input_len: Annotated[str, typer.Option(help="600, or p50=600,p95=4000.")] = "1024",
    output_len: Annotated[str, typer.Option(help="As --input-len.")] = "256",
    duty_cycle: Annotated[float, typer.Option(help="Share of the time that a user has a request running.")] = 1.0,
    tokens_per_second: Annotated[float | None, typer.Option(help="Decode speed each user wants at least.")] = None,
    time_to_first_token: Annotated[float | None, typer.Option(help="Seconds to the first token at most.")] = None,
    redundancy: Annotated[str, typer.Option(help="0, N+1, N+2, 20% or zones=3.")] = "0",
    growth: Annotated[str, typer.Option(help="How much the load may grow: 30%.")] = "0%",
    gpu: Annotated[list[str] | None, typer.Option("--gpu", help="Candidate card; repeat for several.")] = None,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of one machine.", min=1, max=1024)] = 8,
    price: Annotated[list[str] | None, typer.Option(help="Per GPU hour: 2.5, or h100=2.5; repeat for several.")] = None,
    tensor_parallel_size: Annotated[
        int | None, typer.Option("--tensor-parallel-size", "-tp", help="This size only.", min=1)
    ] = None,
    quantization: Annotated[str | None, typer.Option("--quantization", "-q", help="As for serve.")] = None,
    kv_cache_dtype: Annotated[str, typer.Option(help="As for serve.")] = "auto",
    max_model_len: Annotated[str | None, typer.Option(help="Longest request; else the highest percentile.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="Requests in a batch.")] = None,
    gpu_memory_utilization: Annotated[float | None, typer.Option(help="As for serve.")] = None,
    engine_version: EngineVersionOption = DEFAULT_VERSION,
    curve: Annotated[
        str | None, typer.Option(help="context: requests at once by context; gpus: users by GPUs.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Size a fleet: replicas, GPUs, nodes and what a failure leaves, for a user load. Speeds are derived, not measured.

    Exit status: 0 some card carries the load, 1 none does, 2 wrong usage.

    Example: vram-planner size meta-llama/Llama-3.1-8B-Instruct --users 200 --gpu H100 --gpu L40S --input-len
    p50=600,p95=4000 --output-len p50=200,p95=800 --redundancy N+1
    """
    demand = Demand(
        users=users,
        requests_per_second=requests_per_second,
        input_lengths=parse_lengths(input_len, option="--input-len"),
        output_lengths=parse_lengths(output_len, option="--output-len"),
        duty_cycle=duty_cycle,
        tokens_per_second=tokens_per_second,
        time_to_first_token=time_to_first_token,
        redundancy=parse_redundancy(redundancy),
        growth=_share(growth),
    )
    if curve not in (None, "context", "gpus"):
        raise UsageError(f"--curve is {curve!r}; expected context or gpus", field="curve")
    length = token_count(max_model_len)
    if length is not None and length < 1:
        raise UsageError("--max-model-len must be a number of tokens here", field="max_model_len")
    base = Deployment(
        engine_version=engine_version,
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
        max_model_len=length,
        max_num_seqs=max_num_seqs,
        gpu_memory_utilization=gpu_memory_utilization,
    )
    cards = [find_gpu(name) for name in gpu or _USUAL_CARDS]
    prices = _prices(price or [])
    candidates, rejected = size_fleet(
        load_model(model), base, demand, cards=cards, gpus_per_node=gpus_per_node,
        sizes=(tensor_parallel_size,) if tensor_parallel_size else (),
    )  # fmt: skip
    if curve is not None and format is Format.CSV:
        points = [point for candidate in candidates for point in _points(candidate, curve)]
        names = ("max_model_len", "concurrency") if curve == "context" else ("gpus", "users")
        typer.echo(curve_csv(points, at=names[0], value=names[1]))
    else:
        query: dict[str, object] = {
            "model": model, "users": users or None, "requests_per_second": requests_per_second or None,
            "input_len": input_len, "output_len": output_len, "duty_cycle": duty_cycle,
            "tokens_per_second": tokens_per_second, "time_to_first_token": time_to_first_token,
            "redundancy": redundancy, "growth": growth, "gpus": [card.name for card in cards],
            "gpus_per_node": gpus_per_node, "prices": {name or "every card": value for name, value in prices.items()},
            "engine_version": engine_version,
        }  # fmt: skip
        charts = [_chart(candidate, curve) for candidate in candidates] if curve else []
        typer.echo(render_fleet(candidates, rejected, charts, prices=prices, query=query, format=format))
    if not candidates:
        raise typer.Exit(1)


def _points(candidate: Candidate, curve: str) -> list[CurvePoint]:
    return list(context_curve(candidate) if curve == "context" else user_curve(candidate))


def _chart(candidate: Candidate, curve: str) -> str:
    what = "requests at once by max_model_len" if curve == "context" else "users by GPUs"
    title = f"{what}: {candidate.tensor_parallel_size} x {candidate.gpu.name} a replica"
    return curve_chart(_points(candidate, curve), title=title)


def _share(text: str) -> float:
    """A share such as 30% or 0.3.

    Raises:
        UsageError: neither.
    """
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"--growth is {text[:20]!r}; expected a share such as 30%", field="growth") from None


def _prices(texts: list[str]) -> dict[str, float]:
    """Price per GPU hour by card id; "" is every other card's.

    Raises:
        UsageError: not a number.
        UnknownGpu: no such card.
    """
    found = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise UsageError(f"--price is {text[:40]!r}; expected 2.5 or h100=2.5", field="price") from None
        if not 0 <= value < 1e9:
            raise UsageError(f"--price is {text[:40]!r}; expected a price per GPU hour", field="price")
        card: Gpu | None = find_gpu(name) if name else None
        found[card.id if card else ""] = value
    return found
