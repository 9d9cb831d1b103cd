"""How many GPUs a user load takes: users a replica holds, replicas, redundancy, nodes, what a failure leaves.

users a replica holds    min(by memory at the admission length, by the speed that was asked for) / duty cycle
replicas                 ceil(users x (1 + growth) / users a replica holds)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from planner.contract.engine import Engine, Layout
from planner.contract.lengths import Lengths, admission_point, request_lengths
from planner.contract.plan import ServingPlan
from planner.contract.workload import Workload
from planner.errors import PlannerError, UsageError
from planner.hardware.gpus import Gpu
from planner.model.model import Model
from planner.serving.redundancy import NO_SPARES, Redundancy
from planner.serving.throughput import Seconds, decode_step, prefill, requests_per_second

_MOST_USERS: Final = 1 << 32
# a batch that no engine is started with: the search for the users that the speed allows ends here
_LARGEST_BATCH: Final = 1 << 14
# pipeline stages tried, each a node, when one node does not hold the model
_STAGES: Final = (2, 3, 4)
SECONDS_A_DAY: Final = 86_400
# what the command has room for where no length is given: several turns, as assistants are set up with
CONVERSATION_TOKENS: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load to be carried.

    Args:
        users: at the peak; 0 when the load is given as `requests_per_second`.
        input_lengths, output_lengths: of the requests.
        duty_cycle: share of the time that a user has a request running.
        tokens_per_second: decode speed that each user wants at least.
        time_to_first_token: seconds until the first token at most, the prompt waiting for no other.
        growth: share by which the load may grow.
    """

    users: int = 0
    requests_per_second: float = 0.0
    input_lengths: Lengths
    output_lengths: Lengths
    duty_cycle: float = 1.0
    tokens_per_second: float | None = None
    time_to_first_token: float | None = None
    redundancy: Redundancy = NO_SPARES
    growth: float = 0.0

    def __post_init__(self) -> None:
        if bool(self.users) == bool(self.requests_per_second):
            raise UsageError("give the load as --users or as --requests-per-second, one of them", field="users")
        if not 0 <= self.users <= _MOST_USERS or not 0 <= self.requests_per_second <= _MOST_USERS:
            raise UsageError("--users and --requests-per-second are numbers above 0", field="users")
        if not 0 < self.duty_cycle <= 1:
            raise UsageError(f"--duty-cycle is {self.duty_cycle}; expected above 0 and at most 1", field="duty_cycle")
        if not 0 <= self.growth <= 100:
            raise UsageError(f"--growth is {self.growth:.0%}; expected 0% or more", field="growth")
        for name in ("tokens_per_second", "time_to_first_token"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1e6:
                raise UsageError(f"--{name.replace('_', '-')} is {value}; expected above 0", field=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One card with one layout of a replica that carries the load.

    Args:
        users_by_memory: users that a replica's cache holds at the admission length.
        users_by_throughput: users it serves at the speed asked for; None when no speed was asked for.
        users_per_replica: the lesser, over the duty cycle.
        replicas, gpus: without redundancy; total_replicas, total_gpus with it.
        nodes: machines of `gpus_per_node` for all of them.
        users_after_failure: what the rest holds when one replica (or zone) has failed.
        binding: "memory", "decode bandwidth", "decode compute", "latency" or "prefill compute".
        step: seconds between two tokens of a user at full load. first_token: seconds to read the prompt.
        rate: requests a second of one full replica.
        output_tokens, input_tokens: of the mean request.
    """

    plan: ServingPlan
    gpu: Gpu
    tensor_parallel_size: int
    pipeline_parallel_size: int
    users_by_memory: int
    users_by_throughput: int | None
    users_per_replica: int
    replicas: int
    gpus: int
    total_replicas: int
    total_gpus: int
    nodes: int
    users_after_failure: int
    binding: str
    step: Seconds
    first_token: Seconds
    rate: Seconds
    input_tokens: int
    output_tokens: int

    def responses_per_day(self, side: str) -> int:
        """Finished responses a day of the replicas that carry the load, all of them full."""
        return int(self.rate.at(side) * self.replicas * SECONDS_A_DAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A card that cannot carry the load, and why."""

    gpu: str
    reason: str


def typical_length(lengths: Lengths) -> int:
    """The length that speed is worked out at: the mean if given, else the median, else the lowest statistic."""
    for statistic in ("mean", "p50"):
        value = lengths.at(statistic)
        if value is not None:
            return value
    return lengths.points[0][1]


def size_fleet(
    engine: Engine,
    model: Model,
    base: Any,
    demand: Demand,
    *,
    cards: Sequence[Gpu],
    gpus_per_node: int = 8,
    sizes: Sequence[int] = (),
) -> tuple[tuple[Candidate, ...], tuple[Rejected, ...]]:
    """For each card the tensor-parallel size that takes the fewest GPUs, fewest first; and the cards that cannot.

    Args:
        base: the deployment without card and tensor-parallel size; max_model_len None is the admission length.
        sizes: tensor-parallel sizes to try (default: all that the model divides by, within a node).

    Raises:
        UsageError: the two lengths share no percentile.
        PlannerError: no card and size can even be planned; the last refusal.
    """
    request_lengths(demand.input_lengths, demand.output_lengths)
    found, rejected = [], []
    refusal: PlannerError | None = None
    planned = False
    for card in cards:
        options: list[Candidate] = []
        reason = "no tensor-parallel size within a node was tried"
        for layout in _layouts(engine, model, base, gpus_per_node, sizes):
            if layout.stages > 1 and options:
                break
            try:
                option = _candidate(engine, model, base, demand, card, layout, gpus_per_node)
            except PlannerError as error:
                refusal, reason = error, str(error)
                continue
            planned = True
            if isinstance(option, str):
                reason = option
            else:
                options.append(option)
        if options:
            found.append(min(options, key=lambda option: (option.total_gpus, option.tensor_parallel_size)))
        else:
            rejected.append(Rejected(gpu=card.name, reason=reason))
    if refusal is not None and not planned:
        raise refusal  # nothing could even be planned: the question is wrong, not the cards
    return tuple(sorted(found, key=lambda option: option.total_gpus)), tuple(rejected)


def _layouts(engine: Engine, model: Model, base: Any, gpus_per_node: int, sizes: Sequence[int]) -> list[Layout]:
    """One stage in a node, each size; then stages over several nodes, for what one node cannot hold."""
    every = list(engine.layouts(model, base))
    single = [
        layout
        for layout in every
        if layout.stages == 1 and layout.cards <= gpus_per_node and (not sizes or layout.cards in sizes)
    ]
    if not single:
        return []
    largest = max(layout.cards for layout in single)
    return single + [one for one in every if one.stages in _STAGES and one.cards == largest * one.stages]


def _candidate(
    engine: Engine, model: Model, base: Any, demand: Demand, card: Gpu, layout: Layout, gpus_per_node: int
) -> Candidate | str:
    """The candidate of a layout, or why it cannot carry the load."""
    each, stages = layout.cards, layout.stages
    points = request_lengths(demand.input_lengths, demand.output_lengths)
    admission = admission_point(points) or max(points, key=lambda point: point[1])
    length, plan = _planned(engine, model, base, demand, card, layout, admission[1])
    if admission[1] > length and admission[0] != "mean":
        return f"requests of {admission[1]:,} tokens are longer than max_model_len {length:,}: the server refuses them"
    if not plan.accepted:
        return f"does not fit {each} of them: short by {plan.shortfall_bytes / (1 << 30):.2f} GiB per GPU"
    held = next((point.concurrency for point in plan.points if point.at == admission[0]), 0)
    by_memory = held
    if not by_memory:
        return f"{each} of them hold no request of {admission[1]:,} tokens"
    read, written = typical_length(demand.input_lengths), typical_length(demand.output_lengths)
    by_speed, limit = _by_throughput(plan, demand, read, written)
    if by_speed == 0:
        return f"{each} of them are slower than asked for with a single user ({limit})"
    running = by_memory if by_speed is None else min(by_memory, by_speed)
    binding = limit if by_speed is not None and by_speed < by_memory else "memory"
    rate = requests_per_second(plan, sequences=running, input_tokens=read, output_tokens=written)
    users = max(1, int(running / demand.duty_cycle))
    load = demand.users * (1 + demand.growth)
    if demand.users:
        needed = math.ceil(round(load / users, 9))
    else:
        needed = max(1, math.ceil(round(demand.requests_per_second * (1 + demand.growth) / rate.best, 9)))
        binding = "prefill compute" if rate.bound == "compute" else _named(rate.bound)
    total = demand.redundancy.replicas(needed)
    return Candidate(
        plan=plan,
        gpu=card,
        tensor_parallel_size=each // stages,
        pipeline_parallel_size=stages,
        users_by_memory=int(by_memory / demand.duty_cycle),
        users_by_throughput=None if by_speed is None else int(by_speed / demand.duty_cycle),
        users_per_replica=users,
        replicas=needed,
        gpus=needed * each,
        total_replicas=total,
        total_gpus=total * each,
        nodes=nodes(total, each, gpus_per_node),
        users_after_failure=(total - demand.redundancy.lost(total)) * users,
        binding=binding,
        step=decode_step(plan, sequences=running, context=read + written // 2),
        first_token=prefill(plan, tokens=read),
        rate=rate,
        input_tokens=read,
        output_tokens=written,
    )


def _planned(
    engine: Engine, model: Model, base: Any, demand: Demand, card: Gpu, layout: Layout, admitted: int
) -> tuple[int, ServingPlan]:
    """(longest request, plan): as given, else room for a conversation, where that does not fit for the request alone.

    Engines that reserve the context of every slot are given what a request takes.
    """
    axes, lengths = engine.axes, Workload(input_len=demand.input_lengths, output_len=demand.output_lengths)
    shortest = min(admitted, model.longest_request)
    given = getattr(base, axes.length)
    talk = shortest if axes.slots else min(max(admitted, CONVERSATION_TOKENS), model.longest_request)
    tried = [given] if given else list(dict.fromkeys((talk, shortest)))
    for length in tried:
        asked = replace(base, gpu=card, gpu_memory_bytes=None, **{axes.length: length}, **layout.changes)
        plan = engine.plan(model, asked, lengths)
        if plan.accepted:
            break
    return length, plan


def nodes(replicas: int, gpus: int, gpus_per_node: int) -> int:
    """Machines for that many replicas of so many GPUs, none across machines that one could hold."""
    each = gpus_per_node // gpus
    return -(-replicas // each) if each else replicas * -(-gpus // gpus_per_node)


def _by_throughput(plan: ServingPlan, demand: Demand, read: int, written: int) -> tuple[int | None, str]:
    """(requests at once at the speed asked for; None if none was; what would break first)."""
    context = read + written // 2
    if demand.time_to_first_token is not None and prefill(plan, tokens=read).best > demand.time_to_first_token:
        return 0, "prefill compute"
    if demand.tokens_per_second is None:
        return None, ""
    slowest = 1 / demand.tokens_per_second

    def fast_enough(sequences: int) -> bool:
        # the prompts of the others are read between a user's tokens
        step = decode_step(plan, sequences=sequences, context=context).best
        return step + (sequences - 1) * prefill(plan, tokens=read).best / max(written, 1) <= slowest

    held = _largest(_LARGEST_BATCH, fast_enough)
    beyond = decode_step(plan, sequences=held + 1, context=context)
    reading = held * prefill(plan, tokens=read).best / max(written, 1)
    return held, "prefill compute" if reading > beyond.best else _named(beyond.bound)


def _named(bound: str) -> str:
    return {"memory bandwidth": "decode bandwidth", "compute": "decode compute"}.get(bound, bound)


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
