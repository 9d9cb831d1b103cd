"""What plain transformers is asked to do: every input of a forward pass or of `generate`, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from annotated_types import Ge, Le

from planner.contract.card import Card
from planner.contract.inputs import option
from planner.contract.reading import read_tokens

RUN: Final = "Run"
RELEASE: Final = "4.57"
_MOST: Final = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Card):
    """The inputs of a run, under the names of `from_pretrained` and `generate`; None means the default.

    Args:
        max_model_len: prompt and answer together, where the workload does not say how long they are.
        logits_to_keep: "all" positions (a bare forward) or the "last" of each sequence; None: as the run does.
    """

    engine_version: Annotated[str, option("Release of transformers.", panel=RUN, ours=True, choices=(RELEASE,))] = (
        RELEASE
    )
    dtype: Annotated[str, option("auto, bfloat16, float16 or float32.", panel=RUN, common=True)] = "auto"
    quantization: Annotated[
        str | None, option("Plan the usual export of this name.", "--quantization", "-q", panel=RUN, common=True)
    ] = None
    group_size: Annotated[int | None, Ge(1), option("Group of the export.", panel=RUN)] = None
    batch_size: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option("Sequences at once; else --concurrency.", "--batch-size", "--max-num-seqs", panel=RUN, common=True),
    ] = None
    max_model_len: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option("Prompt and answer together.", panel=RUN, unit="tokens", read=read_tokens, common=True),
    ] = None
    attn_implementation: Annotated[
        str,
        option("How attention is computed.", panel=RUN, choices=("sdpa", "flash_attention_2", "eager"), common=True),
    ] = "sdpa"
    cache_implementation: Annotated[
        str, option("How keys and values are kept.", panel=RUN, choices=("dynamic", "static", "none"), common=True)
    ] = "dynamic"
    logits_to_keep: Annotated[
        str | None, option("Positions whose logits are made.", panel=RUN, choices=("all", "last"), common=True)
    ] = None

    @staticmethod
    def settle(given: Mapping[str, Any]) -> dict[str, Any]:
        """As `Card.settle`."""
        return Card.settle(given)
