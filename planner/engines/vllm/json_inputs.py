"""vLLM's inputs that are JSON on the command line: read once, kept as text, and asked for what plans need of them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

from planner.contract.reading import field_of, read_object, shown
from planner.errors import UsageError

_WITHOUT_WEIGHTS: Final = ("ngram", "ngram_gpu", "suffix", "[ngram]")
_MOST_TOKENS: Final = 1 << 10
_MOST_POSITIONS: Final = 1 << 30
_LARGEST_FACTOR: Final = 1 << 20


def _text(value: object) -> str:
    return json.dumps(value, separators=(", ", ": "))


@cache
def _object(text: str | None) -> dict[str, Any]:
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def read_limits(text: str, option: str) -> str:
    """`--limit-mm-per-prompt`: image=2 (V0), or JSON {"image": 2} or {"image": {"count": 2}}.

    Raises:
        UsageError: not of that form.
    """
    try:
        if text.lstrip().startswith("{"):
            found: dict[str, Any] = json.loads(text)
        else:
            found = {name: int(value) for name, value in (part.split("=", 1) for part in text.split(","))}
        for value in found.values():
            count = value.get("count") if isinstance(value, dict) else value
            if count is not None and (type(count) is not int or not 0 <= count < 1 << 40):
                raise ValueError
    except (TypeError, ValueError, OverflowError, RecursionError, AttributeError):
        raise UsageError(
            f'{option} is {shown(text)}; write image=1 or {{"image": 1}}', field=field_of(option)
        ) from None
    return _text(found)


def read_json(text: str, option: str) -> str:
    """Any JSON object, kept as it is.

    Raises:
        UsageError: not a JSON object.
    """
    return _text(read_object(text, option))


def pixels_of(processor: str | None, limits: str | None) -> int | None:
    """Pixels of an image at most: the processor's max_pixels or size, or the size stated with the limit."""
    kwargs = _object(processor)
    images = kwargs.get("images_kwargs")
    size = kwargs.get("size")
    hint = _object(limits).get("image")
    stated = [
        kwargs.get("max_pixels"),
        images.get("max_pixels") if isinstance(images, dict) else None,
        size.get("longest_edge") if isinstance(size, dict) else None,
    ]
    if isinstance(hint, dict) and type(hint.get("width")) is int and type(hint.get("height")) is int:
        stated.append(hint["width"] * hint["height"])
    found = [value for value in stated if type(value) is int and value > 0]
    return min(found, default=None)


def images_of(text: str | None) -> int | None:
    """Images of a prompt that the limits state; None where they state none."""
    return items_of(text, "image")


def items_of(text: str | None, modality: str) -> int | None:
    """Items of a modality ("image", "video", "audio") that the limits state; None where they state none."""
    value = _object(text).get(modality)
    value = value.get("count") if isinstance(value, dict) else value
    return value if type(value) is int else None


def read_speculation(text: str, option: str) -> str:
    """`--speculative-config`: a JSON object with a number of tokens.

    Raises:
        UsageError: no JSON object, or without a number of tokens.
    """
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        config = None
    tokens = config.get("num_speculative_tokens") if isinstance(config, dict) else None
    if not isinstance(config, dict) or type(tokens) is not int or not 1 <= tokens <= _MOST_TOKENS:
        raise UsageError(
            f'{option} is {text[:60]!r}; write {{"method": "mtp", "num_speculative_tokens": 1}}', field=field_of(option)
        )
    return _text(config)


def draft_tokens_of(text: str | None) -> int:
    """Tokens that the model's own draft layers propose by this configuration; 0 for every other method."""
    config = _object(text)
    return int(config["num_speculative_tokens"]) if config and "mtp" in _method(config).lower() else 0


def separate_draft_of(text: str | None, *, own_drafts: bool = True) -> tuple[str, str] | None:
    """(name, method) of the separate model that proposes tokens, the method "" where it is not stated; None: none.

    Args:
        own_drafts: the target has draft layers of its own, which "mtp" then means.
    """
    config = _object(text)
    method = _method(config) if config else "mtp"
    if ("mtp" in method.lower() and (own_drafts or not config.get("model"))) or method in _WITHOUT_WEIGHTS:
        return None
    return str(config.get("model") or method)[:200], str(config.get("method") or "")[:40].lower()


def draft_ways_of(text: str | None) -> int | None:
    """GPUs that cut the draft, where the configuration states them."""
    ways = _object(text).get("draft_tensor_parallel_size")
    return ways if type(ways) is int and 1 <= ways <= _MOST_TOKENS else None


def proposed_tokens_of(text: str | None) -> int:
    """Tokens that are proposed at once, by any method."""
    tokens = _object(text).get("num_speculative_tokens")
    return tokens if type(tokens) is int else 0


def speculation_notes(text: str | None) -> tuple[str, ...]:
    """What a reader should know of a configuration without a separate model."""
    config = _object(text)
    if not config or _method(config) not in _WITHOUT_WEIGHTS:
        return ()
    return (f"--speculative-config: {_method(config)} takes its proposals from the text, without weights",)


def _method(config: dict[str, Any]) -> str:
    return str(config.get("method") or config.get("model") or "mtp")[:200]


def read_overrides(text: str, option: str) -> str:
    """`--hf-overrides`, and `--rope-scaling` of older releases: a JSON object laid over config.json.

    Raises:
        UsageError: not a JSON object, or positions and factors that are none.
    """
    found = read_object(text, option)
    sections = {"rope_scaling": found} if "rope" in option else found
    positions = sections.get("max_position_embeddings", 1)
    if type(positions) is not int or not 1 <= positions <= _MOST_POSITIONS:
        raise UsageError(
            f"{option}: max_position_embeddings is {shown(positions)}; expected a whole number", field=field_of(option)
        )
    for key in ("rope_scaling", "rope_parameters"):
        section = sections.get(key)
        if section is None:
            continue
        factor = section.get("factor", 1.0) if isinstance(section, dict) else None
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < _LARGEST_FACTOR:
            raise UsageError(
                f"{option}: {key} is {str(section)[:60]!r}; expected an object with a factor", field=field_of(option)
            )
    return _text(found)


_READ_OVERRIDES: Final = ("max_position_embeddings", "rope_scaling", "rope_parameters", "text_config", "model_type")


def override_notes(hf_overrides: str | None) -> tuple[str, ...]:
    """What of --hf-overrides no plan reads."""
    unread = [key[:40] for key in _object(hf_overrides) if key not in _READ_OVERRIDES]
    if not unread:
        return ()
    return (f"--hf-overrides: not planned, though memory may depend on it: {', '.join(unread[:8])}",)


def overrides_of(hf_overrides: str | None, rope_scaling: str | None) -> dict[str, Any]:
    """What lies over config.json; {} where nothing does."""
    found = dict(_object(hf_overrides))
    if rope_scaling:
        found["rope_scaling"] = _object(rope_scaling)
    return found
