"""The llama-server line that realises a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from planner.contract.inputs import words_of
from planner.contract.words.export_name import write_export

if TYPE_CHECKING:
    from planner.engines.llama_cpp.plan import LlamaPlan

PROGRAM: Final = "llama-server"


def command_words(plan: LlamaPlan) -> Sequence[str]:
    """The words; what `--fit` chose is written out, so that planned again they give the same plan."""
    asked, run = plan.deployment, plan.run
    name = plan.model.id
    if asked.quantization is not None:
        name = write_export(name, asked.quantization, group_size=None, quantize_lm_head=False)
    always: dict[str, Any] = {}
    if run is not None:
        always["ctx_size"] = run.geometry.n_ctx
        placement = run.placement
        if not placement.complete:
            always["n_gpu_layers"] = str(placement.offloaded)
        if placement.experts_on_host and not asked.cpu_moe:
            always["n_cpu_moe"] = placement.experts_on_host
    words = [PROGRAM, "-m", name]
    return [
        *words,
        *words_of(asked, always=always, leave=("quantization", *_repeated(asked))),
        *_pairs(asked),
        *asked.passed,
    ]


def _repeated(asked: Any) -> tuple[str, ...]:
    return ("override_tensor",) if asked.override_tensor else ()


def _pairs(asked: Any) -> list[str]:
    return [word for pair in asked.override_tensor for word in ("--override-tensor", pair)]
