"""Option values as they stand in the commands that people paste: JSON, counts, sizes."""

from __future__ import annotations

import json

from planner.errors import UsageError
from planner.units import MIB, parse_size

_WITHOUT_WEIGHTS = ("ngram", "ngram_gpu", "suffix", "[ngram]")
_MOST_TOKENS = 1 << 10


def image_limit(text: str | None) -> int | None:
    """Images of --limit-mm-per-prompt: image=2 (V0), or JSON {"image": 2} or {"image": {"count": 2}}.

    Raises:
        UsageError: not of that form.
    """
    if text is None:
        return None
    try:
        if text.lstrip().startswith("{"):
            value = json.loads(text).get("image")
            value = value.get("count") if isinstance(value, dict) else value
        else:
            value = dict(part.split("=", 1) for part in text.split(",")).get("image")
        return None if value is None else int(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise UsageError(
            f'--limit-mm-per-prompt is {text[:40]!r}; write image=1 or {{"image": 1}}', field="limit_mm_per_prompt"
        ) from None


def speculation(text: str) -> tuple[int, tuple[str, ...]]:
    """(tokens that the model's own draft layers propose, notes) of a --speculative-config.

    A method that needs no weights proposes nothing of its own; a separate draft model is noted, not counted.

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
            f'--speculative-config is {text[:60]!r}; write {{"method": "mtp", "num_speculative_tokens": 1}}',
            field="speculative_config",
        )
    method = str(config.get("method") or config.get("model") or "mtp")
    if "mtp" in method.lower():
        return tokens, ()
    if method in _WITHOUT_WEIGHTS:
        return 0, (f"--speculative-config: {method} takes its proposals from the text, without weights",)
    draft = str(config.get("model") or method)[:80]
    return 0, (f"--speculative-config: the draft model {draft} is not counted; its weights and cache come on top",)


def config_overrides(words: list[str]) -> dict[str, object]:
    """What --hf-overrides, and --rope-scaling of older versions, put over the config; {} without them.

    Raises:
        UsageError: not a JSON object.
    """
    found: dict[str, object] = {}
    for index, word in enumerate(words):
        name, attached, value = word.partition("=")
        if name not in ("--hf-overrides", "--rope-scaling"):
            continue
        text = value if attached else " ".join(words[index + 1 : index + 2])
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            raise UsageError(f"{name} is {text[:60]!r}; expected a JSON object", field=name)
        found |= {"rope_scaling": given} if name == "--rope-scaling" else given
    _check_overrides(found)
    return found


def _check_overrides(found: dict[str, object]) -> None:
    positions = found.get("max_position_embeddings", 1)
    if type(positions) is not int or not 1 <= positions <= 1 << 30:
        raise UsageError(f"--hf-overrides: max_position_embeddings is {str(positions)[:40]!r}; expected a whole number",
                         field="--hf-overrides")  # fmt: skip
    for key in ("rope_scaling", "rope_parameters"):
        section = found.get(key)
        if section is None:
            continue
        factor = section.get("factor", 1.0) if isinstance(section, dict) else None
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1 << 20:
            raise UsageError(f"--hf-overrides: {key} is {str(section)[:60]!r}; expected an object with a factor",
                             field="--hf-overrides")  # fmt: skip


def memory_size(text: str | None, option: str) -> int:
    """Bytes of a size on a card; a bare number below 1 MiB is a unit forgotten.

    Raises:
        UsageError: not a size.
    """
    if not text:
        return 0
    size = parse_size(text, option=option)
    if 0 < size < MIB:
        raise UsageError(
            f"{option} {text} is {size} bytes; write the unit, such as {text.strip()[:20]}GiB", field=option
        )
    return size
