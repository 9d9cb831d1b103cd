"""Weight schemes: plain, as a checkpoint's config says, or as the usual export of a name would be.

plain_scheme("bfloat16")             nothing quantised
scheme_from_config(spec)             the checkpoint's own quantization_config, in any dialect
scheme_from_name("awq", spec)        what people mean by that name when they quantise this model
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.errors import UnsupportedQuantization
from planner.memory.format_table import format_rows, plain_format
from planner.memory.schemes.scheme import TOWERS, Rules, WeightScheme
from planner.model.config import RawConfig
from planner.model.model import Model
from planner.model.spec import ModelSpec
from planner.model.tensor import Role

__all__ = ["WeightScheme", "as_asked", "plain_scheme", "scheme_from_config", "scheme_from_name"]

# Formats whose kernels take 8-bit inputs; w8a16 and bitsandbytes int8 keep 16-bit ones.
_EIGHT_BIT_INPUTS = ("fp8", "w8a8", "int8")

_ROLES_OF: Final = {
    "attention": (Role.ATTENTION,),
    "indexer": (Role.INDEXER,),
    "recurrent": (Role.RECURRENT,),
    "mlp": (Role.MLP,),
    "shared_experts": (Role.SHARED_EXPERT,),
    "vision": tuple(TOWERS),
}


def plain_scheme(dtype: str | None) -> WeightScheme:
    """Every tensor in that type, but for those that state their own.

    Raises:
        UnsupportedQuantization: not float32, float16 or bfloat16.
    """
    stored = plain_format(dtype)
    return WeightScheme(label=stored.name, plain=stored)


def scheme_from_config(spec: ModelSpec, *, dtype: str | None = None) -> WeightScheme:
    """The scheme that the model's own config describes; plain when it says nothing.

    Args:
        dtype: type of what is not quantised (None: the config's).

    Raises:
        UnsupportedQuantization: a quant_method, or a value under it, that is not understood; names the field.
        ConfigError: a value of the wrong type.
    """
    stored, config = dtype or spec.dtype, spec.quantization_config
    if config is None:
        return plain_scheme(stored)
    raw = RawConfig(config, path="config.json: quantization_config")
    spread = read_spread(raw)
    if config.get("quant_method") == "gguf":
        return _mix_scheme(raw.text("mix"), spec)
    # readers of quantised checkpoints are loaded when there is one: plain models start faster
    from planner.memory.dialects import read_dialect

    reading = read_dialect(raw)
    named, layers = reading.layers_named, len(spec.layers)
    if named is not None and named * 2 < layers:
        raise UnsupportedQuantization(
            f"quantization_config: quantized_layers names only {named} of {layers} layers; the list looks cut short, "
            "take the published config.json",
            field="quantized_layers",
        )
    return WeightScheme(
        label=reading.label,
        plain=plain_format(stored),
        assignment=keep_kinds(reading.rules, raw),
        notes=reading.notes,
        spread=spread,
    )


def as_asked(model: Model, quantization: str | None) -> Model:
    """The model that an export of this name is made from.

    A checkpoint that is released quantised is the model itself as long as the name is of its own kind of storage
    ("fp8" for DeepSeek-V3, whose blocks are fp8); another name ("awq") means an export, which is made from the
    unquantised shape. Its plan says so.
    """
    if quantization is None or model.spec.quantization_config is None or model.stored:
        return model
    wanted = _families_of_name(quantization, model.spec)
    released = scheme_from_config(model.spec)
    if not wanted or wanted & _families(released):
        return model
    key = ("as asked", quantization)
    found = model.memo.get(key)
    if not isinstance(found, Model):
        note = (
            f"released as {released.label}; --quantization {quantization} is planned as an export of the unquantised"
            f" shape"
        )
        found = replace(
            model,
            spec=replace(model.spec, quantization_config=None),
            notes=(*model.notes, note),
            stored_bytes=None,
            memo={},
        )
        model.memo[key] = found
    return found


def _families_of_name(name: str, spec: ModelSpec) -> frozenset[str]:
    """The kinds of storage that a name stands for; empty for a name that is not understood, which is refused later."""
    try:
        return _families(scheme_from_name(name, replace(spec, quantization_config=None)))
    except UnsupportedQuantization:
        return frozenset()


def _families(scheme: WeightScheme) -> frozenset[str]:
    """Families of the formats, by the rows of `formats.csv`."""
    names = [stored.name for stored in scheme.assignment.formats] if scheme.assignment is not None else []
    rows = format_rows()
    known = [max((row for row in rows if name.startswith(row)), key=len, default="") for name in names]
    return frozenset(rows[row].family for row in known if row)


def keep_kinds(rules: Rules, raw: RawConfig) -> Rules:
    """The rules, leaving plain what `kept_kinds` names (see planner/model/names/storage.py)."""
    kinds = raw.texts("kept_kinds") or []
    unknown = [kind for kind in kinds if kind not in _ROLES_OF and kind != "draft"]
    if unknown:
        raise raw.error("kept_kinds", f"holds {unknown[0][:40]!r}; expected draft, {', '.join(_ROLES_OF)}")
    roles = frozenset(role for kind in kinds if kind != "draft" for role in _ROLES_OF[kind])
    return replace(rules, skip_roles=rules.skip_roles | roles, skip_drafts=rules.skip_drafts or "draft" in kinds)


def read_spread(raw: RawConfig) -> tuple[int, int]:
    """Thousandths below and above that the name of an export leaves open (`spread`)."""
    found = raw.integers("spread", length=2)
    return (min(found[0], 1000), found[1]) if found else (0, 0)


def _mix_scheme(name: str, spec: ModelSpec) -> WeightScheme:
    from planner.memory.ggml.mixes import ggml_mix

    mix, notes = ggml_mix(name, spec)
    return WeightScheme(label=mix.name, plain=plain_format("float32"), assignment=mix, notes=notes, spread=mix.spread)


def scheme_from_name(
    name: str,
    spec: ModelSpec,
    *,
    dtype: str | None = None,
    group_size: int | None = None,
    quantize_lm_head: bool = False,
) -> WeightScheme:
    """The usual export of that name; its defaults are in the notes.

    A model that is released quantised (DeepSeek-V3 in fp8) is taken in its unquantised shape, as whoever makes an
    export of it does.

    Args:
        name: "awq", "gptq", "w4a16", "fp8", "nf4", "exl3-4.0bpw", "Q4_K_M", ... (see the formats command).
        dtype: type of what is not quantised (None: the config's).
        group_size: inputs that share a scale, for formats with groups (None: what is usual).
        quantize_lm_head: the output matrix is converted too.

    Raises:
        UnsupportedQuantization: no such name, or an option that it does not have; lists the names.
    """
    stored = plain_format(dtype or spec.dtype)
    from planner.memory.exports import read_export
    from planner.memory.ggml.mixes import is_mix

    if is_mix(name):
        if group_size is not None:
            raise UnsupportedQuantization(f"{name} has blocks of its own; leave out --group-size", field="group_size")
        return _mix_scheme(name, spec)
    reading = read_export(name, spec, group_size=group_size, quantize_lm_head=quantize_lm_head)
    return WeightScheme(label=reading.label, plain=stored, assignment=reading.rules, notes=reading.notes)


def quantises_inputs(scheme: WeightScheme) -> bool:
    """Linear layers convert their input to 8 bit before they multiply (W8A8, fp8)."""
    if scheme.assignment is None or not scheme.assignment.formats:
        return False
    return scheme.assignment.formats[0].name.startswith(_EIGHT_BIT_INPUTS)
