"""The inputs that a measured case's free part states, read by the engine's own declaration.

A case says them as people and logs do: under the engine's name with dashes or underscores, or under an environment
variable's, as a JSON value or as the text that a command line has. Whatever `serve` takes, a case can state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from planner.contract.inputs import Input, inputs_of, read_value
from planner.engines.vllm.deployment import Deployment
from planner.errors import UsageError

# What people call an input, where that is not its name
_ALIASES: Final = {
    "chunked_prefill": "enable_chunked_prefill",
    "cpu_offload_gib": "cpu_offload_gb",
    "swap_space_gib": "swap_space",
    "cudagraph_capture_size": "cudagraph_capture_sizes",
}
_ITEMS: Final = re.compile(r"\b(image|video|audio)s?\W{0,3}(\d{1,6})\b")
_NODES: Final = re.compile(r"(\d{1,3}) nodes")
_MTP: Final = re.compile(r"mtp\D*(\d{1,4})?")
_DRAFT: Final = re.compile(r"^([\w./-]+)(?: draft)?(?: model)?[^\w./-].*?(\d{1,4}) tokens")
_LEFT_TO_THE_ENGINE: Final = ("None", "default", "auto")
_WITHOUT_WEIGHTS: Final = ("ngram", "suffix")


def read_flags(flags: Mapping[str, object], *, gpus: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(values by field, names of what is no input here).

    Args:
        gpus: that hold the model together.

    Raises:
        UsageError: an input with a value that it cannot have.
    """
    known, variables = _inputs(), _variables()
    found: dict[str, Any] = {}
    left = []
    for name, value in flags.items():
        plain = _ALIASES.get(name.lstrip("-").replace("-", "_").lower(), name.lstrip("-").replace("-", "_").lower())
        if value is None or value in _LEFT_TO_THE_ENGINE:
            continue
        if plain == "speculative":
            found |= _speculation(str(value))
        elif plain == "limit_mm_per_prompt" and isinstance(value, str) and not value.lstrip().startswith("{"):
            items = {kind: int(count) for kind, count in _ITEMS.findall(value)}
            if items:
                found[plain] = json.dumps(items)
        elif plain == "v2_model_runner":
            found["model_runner"] = "v2" if value is True else "v1"
        elif plain == "kv_connector":
            found["kv_transfer_config"] = json.dumps({"kv_connector": str(value)})
        elif plain == "executor" and (nodes := _NODES.search(str(value))) and int(nodes[1]) >= gpus > 1:
            # a card a node: nothing but the network between them
            found["interconnect"] = "none"
        elif name in variables:
            one, reader = variables[name]
            read = reader(str(int(value)) if isinstance(value, bool) else str(value), name)
            if read is not None:
                found[one.name] = read
        elif plain in known:
            try:
                found[known[plain].name] = _value(known[plain], value)
            except UsageError:
                if isinstance(value, str) and known[plain].option.choices:
                    left.append(name)  # a remark in the place of a choice
                    continue
                raise
        else:
            left.append(name)
    if "max_loras" in found or "max_lora_rank" in found:
        found.setdefault("enable_lora", True)
    return found, tuple(left)


def _inputs() -> dict[str, Input]:
    """Every input by its field's name and by its spellings, with underscores and without leading dashes."""
    found: dict[str, Input] = {}
    for one in inputs_of(Deployment):
        for name in (one.name, *one.spellings):
            found.setdefault(name.lstrip("-").replace("-", "_"), one)
    return found


def _variables() -> dict[str, tuple[Input, Any]]:
    return {name: (one, read) for one in inputs_of(Deployment) for name, read in one.option.environment.items()}


def _value(one: Input, value: object) -> Any:
    if isinstance(value, bool) and one.is_switch:
        return value
    if isinstance(value, list) and one.items is not None:
        return tuple(one.items(item) for item in value)
    if isinstance(value, dict | list):
        return read_value(one, json.dumps(value), spelled=one.spelling)
    text = re.sub(r"\s*\(.*\)", "", str(value)) if one.option.choices else str(value)
    if one.name.endswith("_bytes") and isinstance(value, int) and one.option.unit == "bytes":
        return value
    return read_value(one, text, spelled=one.spelling)


def _speculation(text: str) -> dict[str, Any]:
    """A remark such as "mtp, 3 tokens" or "gemma-4-31b-it-assistant draft, 2 tokens"."""
    match = _MTP.match(text)
    if match:
        return {"num_speculative_tokens": int(match[1] or 1)}
    if text.lower().startswith(_WITHOUT_WEIGHTS):
        return {}
    draft = _DRAFT.match(text)
    name, tokens = (draft[1], int(draft[2])) if draft else (text.split()[0][:100], 1)
    config = {"method": "draft_model", "model": name, "num_speculative_tokens": tokens}
    return {"speculative_config": json.dumps(config)}
