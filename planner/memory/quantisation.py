"""Weight schemes: plain, as a checkpoint's config says, or as the usual export of a name would be.

plain_scheme("bfloat16")             nothing quantised
scheme_from_config(spec)             the checkpoint's own quantization_config, in any dialect
scheme_from_name("awq", spec)        what people mean by that name when they quantise this model
"""

from __future__ import annotations

from planner.errors import UnsupportedQuantization
from planner.memory.format_table import plain_format
from planner.memory.scheme import WeightScheme
from planner.model.config import RawConfig
from planner.model.spec import ModelSpec

__all__ = ["WeightScheme", "plain_scheme", "scheme_from_config", "scheme_from_name"]


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
    stored = dtype or spec.dtype
    if spec.quantization_config is None:
        return plain_scheme(stored)
    # readers of quantised checkpoints are loaded when there is one: plain models start faster
    from planner.memory.dialects import read_dialect

    reading = read_dialect(RawConfig(spec.quantization_config, path="config.json: quantization_config"))
    named, layers = reading.layers_named, len(spec.layers)
    if named is not None and named * 2 < layers:
        raise UnsupportedQuantization(
            f"quantization_config: quantized_layers names only {named} of {layers} layers; the list looks cut short, "
            "take the published config.json",
            field="quantized_layers",
        )
    return WeightScheme(label=reading.label, plain=plain_format(stored), assignment=reading.rules, notes=reading.notes)


def scheme_from_name(
    name: str,
    spec: ModelSpec,
    *,
    dtype: str | None = None,
    group_size: int | None = None,
    quantize_lm_head: bool = False,
) -> WeightScheme:
    """The usual export of that name for a plain model; its defaults are in the notes.

    Args:
        name: "awq", "gptq", "w4a16", "fp8", "nf4", "exl3-4.0bpw", "Q4_K_M", ... (see the formats command).
        dtype: type of what is not quantised (None: the config's).
        group_size: inputs that share a scale, for formats with groups (None: what is usual).
        quantize_lm_head: the output matrix is converted too.

    Raises:
        UnsupportedQuantization: no such name, or an option that it does not have; lists the names.
    """
    if spec.quantization_config is not None:
        raise UnsupportedQuantization(
            f"this model is already quantised; leave out --quantization {name} or take the unquantised model",
            field="quantization",
        )
    stored = plain_format(dtype or spec.dtype)
    from planner.memory.exports import read_export
    from planner.memory.ggml_mixes import ggml_mix, is_mix

    if is_mix(name):
        if group_size is not None:
            raise UnsupportedQuantization(f"{name} has blocks of its own; leave out --group-size", field="group_size")
        mix, notes = ggml_mix(name, spec)
        return WeightScheme(label=mix.name, plain=plain_format("float32"), assignment=mix, notes=notes)
    reading = read_export(name, spec, group_size=group_size, quantize_lm_head=quantize_lm_head)
    return WeightScheme(label=reading.label, plain=stored, assignment=reading.rules, notes=reading.notes)
