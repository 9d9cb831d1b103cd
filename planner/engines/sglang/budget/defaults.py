"""What SGLang chooses where the command says nothing: chunk, graph sizes, and the fraction of memory.

Sizes are MiB as `nvidia-smi` prints them, which is what the engine asks for. The rules are by release: a fraction by
the number of GPUs (to 0.4.7), a reserve by the size of the card (0.4.8 to 0.5.2), a sum of terms since (`tables/`).

Source: SGLang server_args.py __post_init__, _handle_gpu_memory_settings (0.3.6 to 0.5.18), arg_groups/memory_hook.py
(0.5.19 to 0.5.23).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from planner.engines.sglang.tables.releases import Release, rows_at, rules_at

_FLOOR_CARD_MIB: Final = 60 * 1024
_FLOOR_MIB: Final = 10 * 1024
_MANY_GPUS: Final = 4
# prefill graph sizes: (first, last, step); the last run goes on to the greatest size
_PREFILL_RUNS: Final = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (0, 1024, 64), (1280, 4096, 256))


@dataclass(frozen=True, slots=True, kw_only=True)
class CardDefaults:
    """Chunk of a prefill and largest batch of a decode graph."""

    chunked_prefill_size: int
    graph_max_batch: int


def card_defaults(release: Release, memory_mib: int, tensor_parallel_size: int) -> CardDefaults:
    """What a card of that memory gets."""
    for row in rows_at("card_defaults.csv", release):
        if not row["below_mib"] or memory_mib < int(row["below_mib"]):
            column = "graph_max_bs_few" if tensor_parallel_size < _MANY_GPUS else "graph_max_bs_many"
            return CardDefaults(chunked_prefill_size=int(row["chunked_prefill_size"]), graph_max_batch=int(row[column]))
    raise AssertionError("card_defaults.csv ends with a row for every card")


def decode_graph_sizes(largest: int, *, speculative: bool) -> int:
    """How many batch sizes are captured for decoding up to `largest`."""
    if speculative:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 64, 4), *range(72, 257, 8), *range(272, largest + 1, 16)]
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32)]
    return sum(size <= largest for size in sizes)


def prefill_graph_sizes(release: Release, largest: int) -> int:
    """How many token counts are captured for prefill up to `largest`."""
    gap = int(rules_at(release)["prefill_size_gap"])
    runs = [(start or gap, last, step) for start, last, step in _PREFILL_RUNS] + [(4608, largest, 512)]
    return sum(size <= largest for start, last, step in runs for size in range(start, last + 1, step))


def prefill_graphs_on(release: Release, *, asked: bool, disabled: bool, reasons: Collection[str]) -> bool:
    """Whether prefill is captured too.

    Args:
        asked, disabled: the user's switches.
        reasons: what the deployment has that may rule it out, in the words of `tables/prefill_graphs_off.csv`.
    """
    if disabled:
        return False
    if asked:
        return True
    if rules_at(release)["prefill_graphs"] == "asked":
        return False
    return not any(row["reason"] in reasons for row in rows_at("prefill_graphs_off.csv", release))


@dataclass(frozen=True, slots=True, kw_only=True)
class FractionInputs:
    """What the default fraction follows from.

    Args:
        memory_mib: of the card.
        tensor_parallel_size, pipeline_parallel_size, data_parallel_size: as resolved.
        chunked_prefill_size: tokens (-1: prefill is not chunked), max_prefill_tokens then counts.
        graph_max_batch: largest decode graph.
        graphs: decode graphs are captured.
        prefill_graph_tokens: largest captured prefill, 0 where prefill is not captured.
        latent: attention is MLA.
        data_parallel_attention: --enable-dp-attention.
        speculation: "", "EAGLE", "STANDALONE", "NGRAM", ...
        draft_tokens: tokens that a draft proposes at once.
        role: disaggregation mode ("null", "prefill", "decode").
        max_running_requests: as asked.
        expert_exchange: "deepep" and the like; "none".
    """

    memory_mib: int
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    chunked_prefill_size: int = 8192
    max_prefill_tokens: int = 16384
    graph_max_batch: int = 0
    graphs: bool = True
    prefill_graph_tokens: int = 0
    latent: bool = False
    data_parallel_attention: bool = False
    speculation: str = ""
    draft_tokens: int = 0
    role: str = "null"
    max_running_requests: int | None = None
    expert_exchange: str = "none"


def default_fraction(release: Release, inputs: FractionInputs) -> tuple[float, str]:
    """--mem-fraction-static of a text model where the command says none, and the arithmetic."""
    rule = rules_at(release)["fraction"]
    if rule == "parallel_size":
        return _by_parallel_size(release, inputs)
    reserve, formula = (_card_reserve if rule == "card_reserve" else _terms)(release, inputs)
    fraction = round((inputs.memory_mib - reserve) / inputs.memory_mib, 3)
    return fraction, f"({inputs.memory_mib:,} - {reserve:,.0f}) / {inputs.memory_mib:,} MiB, {formula}"


def _by_parallel_size(release: Release, inputs: FractionInputs) -> tuple[float, str]:
    gpus = inputs.tensor_parallel_size * (inputs.pipeline_parallel_size if release >= (0, 4, 6, 3) else 1)
    memory = inputs.memory_mib
    large = rules_at(release)["large_card"]
    found = next(row for row in rows_at("parallel_fractions.csv", release) if gpus >= int(row["least_gpus"]))
    fraction, formula = float(found["fraction"]), f"{gpus} GPUs"
    if large == "same" or memory <= 80 * 1024:
        pass
    elif large == "reserve_13":
        return (memory - 13 * 1024) / memory, f"({memory:,} - 13 x 1024) / {memory:,} MiB"
    else:
        fraction, formula = 0.88, "a card above 80 GiB"
    if large.startswith("stretched"):
        speculative = bool(inputs.speculation) and large == "stretched_blackwell"
        if large == "stretched_blackwell" and memory > 180_000:
            return 0.79, "a card above 180,000 MiB"
        if memory > 96 * 1024:
            reserve = (20 if speculative else 18) * 1024
            fraction = min(fraction + 48 * 1024 * (1 - fraction) / memory, (memory - reserve) / memory)
            return fraction, f"stretched for {memory:,} MiB"
        if speculative:
            return fraction * 0.95, f"{formula}, x .95 with speculation"
    return fraction, formula


def _card_reserve(release: Release, inputs: FractionInputs) -> tuple[float, str]:
    gpus = inputs.tensor_parallel_size * inputs.pipeline_parallel_size
    row = next(
        row
        for row in rows_at("card_reserves.csv", release)
        if not row["below_mib"] or inputs.memory_mib < int(row["below_mib"])
    )
    reserve = float(row["base_mib"]) + gpus * float(row["mib_each_gpu"])
    drafts = _speculation_reserve(release, inputs.speculation)
    attention = 4096 if inputs.data_parallel_attention else 0
    formula = f"{float(row['base_mib']):g} + {gpus} x {float(row['mib_each_gpu']):g}"
    return reserve + drafts + attention, formula + "".join(f" + {size}" for size in (drafts, attention) if size)


def _terms(release: Release, inputs: FractionInputs) -> tuple[float, str]:
    rules = rules_at(release)
    by_role = rules["roles_reserve"] == "yes"
    decode, prefill = (by_role and inputs.role == "decode"), (by_role and inputs.role == "prefill")
    tokens = inputs.chunked_prefill_size if inputs.chunked_prefill_size > 0 else inputs.max_prefill_tokens
    if decode:
        tokens = (inputs.max_running_requests or inputs.graph_max_batch or 1) * max(1, inputs.draft_tokens)
    terms: dict[str, float] = {"base": 512, "activations": 1.5 * max(tokens, 2048)}
    graphs = inputs.graphs or rules["disabled_graphs_reserve"] == "yes"
    if graphs and not prefill:
        terms["decode graphs"] = 2 * inputs.graph_max_batch
    terms["parallel"] = inputs.tensor_parallel_size * inputs.pipeline_parallel_size / 8 * 1024
    if inputs.data_parallel_attention and not prefill:
        each = 3 if inputs.graph_max_batch <= 300 else 4.5
        terms["attention ranks"] = each * inputs.graph_max_batch * inputs.data_parallel_size
    captured = 0.0 if decode else _prefill_graph_reserve(release, inputs)
    late = rules.get("prefill_graph_after_floor") == "yes"
    if not late and captured:
        terms["prefill graphs"] = captured
    reserve = sum(terms.values())
    if inputs.memory_mib > _FLOOR_CARD_MIB and reserve < _FLOOR_MIB:
        terms = {"least": _FLOOR_MIB}
    if late and captured:
        terms["prefill graphs"] = captured
    drafts = _speculation_reserve(release, inputs.speculation)
    if drafts:
        terms["drafts"] = drafts
    if inputs.expert_exchange == "deepep" and graphs and not prefill and int(rules["expert_exchange_reserve"]):
        terms["expert exchange"] = int(rules["expert_exchange_reserve"])
    return sum(terms.values()), " + ".join(f"{size:g} {name}" for name, size in terms.items())


def _prefill_graph_reserve(release: Release, inputs: FractionInputs) -> float:
    rule, tokens = rules_at(release)["prefill_graph_reserve"], inputs.prefill_graph_tokens
    if not tokens or rule == "none":
        return 0
    if rule in ("quarter", "eighth"):
        return tokens // (4 if rule == "quarter" else 8)
    if rule == "sizes_or_latent" and inputs.latent:
        return 1536
    return 8 * prefill_graph_sizes(release, tokens)


def _speculation_reserve(release: Release, algorithm: str) -> int:
    if not algorithm:
        return 0
    name = {"STANDALONE": "standalone_reserve", "NGRAM": "ngram_reserve"}.get(algorithm, "speculation_reserve")
    return int(rules_at(release)[name])


def lowered_for_vision(release: Release, fraction: float, tower: tuple[int, int] | None, *, given: bool) -> float:
    """The fraction of a model with a tower.

    Args:
        tower: layers and width of the vision tower as its config names them, or None.
        given: the user gave the fraction.
    """
    rules = rules_at(release)
    if given and rules["vision_lowers_given"] == "no":
        return fraction
    rule = rules["vision_factor"]
    if rule != "tower":
        return fraction * float(rule)
    if tower is None:
        return fraction
    layers, width = tower
    heavier = layers * width**2 / (24 * 1024**2)
    return fraction * 0.95 * max(0.8, min(1.05, 1 - 0.1 * (heavier - 1)))
