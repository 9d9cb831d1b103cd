"""The command that realises a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from planner.contract.inputs import words_of
from planner.contract.words.export_name import write_export
from planner.engines.sglang.tables.quantization import loads_plain

if TYPE_CHECKING:
    from planner.engines.sglang.plan import SglangPlan

PROGRAM: Final = ("python", "-m", "sglang.launch_server")


def command_words(plan: SglangPlan) -> Sequence[str]:
    """Environment first, then words; planned again they give the same plan."""
    asked, resolved = plan.deployment, plan.resolved
    export = asked.quantization if plan.model.spec.quantization_config is None else None
    online = export is None or loads_plain(export, resolved.release)
    name = (
        plan.model.id
        if online or export is None
        else write_export(plan.model.id, export, group_size=asked.group_size, quantize_lm_head=asked.quantize_lm_head)
    )
    words: list[str] = []
    if asked.allow_longer_context:
        words.append("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1")
    words += [*PROGRAM, "--model-path", name]
    # a context that was not asked for stays unasked: the engine caps captured prefills by the option alone
    always: dict[str, Any] = {"mem_fraction_static": _short(resolved.mem_fraction_static)}
    leave = [] if online else ["quantization"]
    words += words_of(asked, always=always, leave=leave)
    words += asked.passed
    return words


def _short(fraction: float) -> float:
    """The fraction with as many digits as it takes."""
    for digits in (3, 4, 6):
        if abs(round(fraction, digits) - fraction) < 1e-9:
            return round(fraction, digits)
    return fraction
