"""Which type vLLM computes in: `--dtype`, or what `auto` makes of the checkpoint, the card and the release.

Source: vllm/config.py 0.8.5 _get_and_verify_dtype, config/model.py 0.11.0 _resolve_auto_dtype, platforms/cuda.py
0.11.0 supported_dtypes (bfloat16 from compute capability 8.0); rows by release in tables/dtypes.csv.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.model.tasks import pools
from planner.engines.vllm.tables.profile import parse_version
from planner.errors import UsageError
from planner.model.model import Model
from planner.model.sources.held_types import plain_type_held

ELEMENT_BYTES: Final = {"bfloat16": 2, "float16": 2, "float32": 4}
_NAMES: Final = {"half": "float16", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
# before the list of models was there: vllm/config.py 0.8.5 names these two where it downcasts float32
_NOT_TO_FLOAT16: Final = ("gemma2", "gemma3", "gemma3_text")


@dataclass(frozen=True, slots=True)
class _Rule:
    """What `auto` does from a release on: tables/dtypes.csv."""

    float32_becomes: str
    pooling: str
    stored_counts: bool
    unstable_in_float16: tuple[str, ...]


@cache
def _rules() -> tuple[tuple[tuple[int, int, int], _Rule], ...]:
    text = files("planner.engines.vllm.tables").joinpath("dtypes.csv").read_text("utf-8")
    return tuple(
        (
            parse_version(row["from"]),
            _Rule(
                row["float32_becomes"],
                row["pooling"],
                row["stored_counts"] == "yes",
                tuple(row["unstable_in_float16"].split()),
            ),
        )
        for row in csv.DictReader(text.splitlines())
    )


def _rule_of(version: str) -> _Rule:
    asked = parse_version(version)
    return [rule for first, rule in _rules() if first <= asked][-1]


def resolve_dtype(model: Model, deployment: Deployment, notes: list[str]) -> str:
    """The type that weights and activations have: "bfloat16", "float16" or "float32".

    Args:
        notes: gets a line where the type is not the one that the checkpoint states.

    Raises:
        UsageError: a type that vLLM, the card or the model does not take; names dtype.
    """
    rule = _rule_of(deployment.engine_version)
    refused = model.spec.model_type in rule.unstable_in_float16
    asked = _NAMES.get(deployment.dtype, deployment.dtype)
    if asked == "auto":
        return _automatic(model, deployment, rule, notes)
    if asked not in ELEMENT_BYTES:
        raise UsageError(f"--dtype is {deployment.dtype!r}; expected auto, bfloat16, float16 or float32", field="dtype")
    if asked == "float16" and refused:
        raise UsageError(
            f"--dtype float16: vLLM {deployment.engine_version} refuses it for {model.spec.model_type} (numerical"
            " instability) and says to use bfloat16 or float32",
            field="dtype",
        )
    if asked not in _supported(deployment):
        assert deployment.gpu is not None
        raise UsageError(
            f"--dtype {asked}: {deployment.gpu.name} has no {asked}; vLLM says to use --dtype float16", field="dtype"
        )
    return asked


def _supported(deployment: Deployment) -> tuple[str, ...]:
    """The types of the card, the platform's first choice first."""
    bf16 = deployment.gpu is None or deployment.gpu.supports_bf16
    return ("bfloat16", "float16", "float32") if bf16 else ("float16", "float32")


def _automatic(model: Model, deployment: Deployment, rule: _Rule, notes: list[str]) -> str:
    kind, config = model.spec.model_type, model.spec.dtype
    supported = [one for one in _supported(deployment) if one != "float16" or kind not in rule.unstable_in_float16]
    pooling = (pools(model, deployment) or not model.spec.decoder) and rule.pooling in supported
    preferred = rule.pooling if pooling else supported[0]
    chosen, said = config, f"the checkpoint is {config}"
    if chosen is None and rule.stored_counts and (chosen := plain_type_held(model.stored)) is not None:
        said = f"the config states no dtype and the files hold {chosen}"
    elif chosen is None:
        chosen, said = "float32", "the config states no dtype, which vLLM takes for float32"
    if chosen == "float32":
        chosen = rule.float32_becomes if rule.float32_becomes in ELEMENT_BYTES else preferred
        if chosen == "float16" and kind in _NOT_TO_FLOAT16:
            chosen = "bfloat16"
    if chosen not in supported:
        said = f"{deployment.gpu.name if deployment.gpu else 'the card'} has no {chosen}"
        if kind in rule.unstable_in_float16:
            said += f" and vLLM runs no {kind} in float16"
        chosen = preferred
    if chosen != config:
        notes.append(f"{said}: --dtype auto runs it in {chosen}")
    return chosen
