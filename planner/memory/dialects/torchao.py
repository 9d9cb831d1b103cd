"""torchao: a named configuration for every linear layer.

Source: torchao 0.18.0 `quantization/quant_api.py`; transformers 5.24 TorchAoConfig.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.memory.dialects.compressed import replace_name
from planner.memory.dialects.reading import Reading, all_but, skipped, unsupported
from planner.memory.format_table import grouped_format, weight_format
from planner.memory.formats import WeightFormat
from planner.memory.schemes.scheme import TOWERS, Rules
from planner.model.config import RawConfig


def read(raw: RawConfig) -> Reading:
    """torchao: the default configuration; `modules_to_not_convert` stays plain."""
    stored = _format(raw)
    rules = all_but(skipped(raw, "modules_to_not_convert"), stored)
    return Reading(label=f"torchao {stored.name}", rules=Rules(rules, skip_roles=TOWERS))


def _format(raw: RawConfig) -> WeightFormat:
    kind = raw.raw("quant_type")
    options: Mapping[str, object] = {}
    if isinstance(kind, Mapping):
        entry = kind.get("default", kind)
        if isinstance(entry, Mapping):
            data = entry.get("_data")
            options = data if isinstance(data, Mapping) else {}
            kind = entry.get("_type")
    else:
        section = raw.section("quant_type_kwargs")
        options = section.mapping() if section is not None else {}
    if not isinstance(kind, str):
        raise unsupported(raw, "quant_type", kind, "a torchao configuration's name")
    name = kind.lower().replace("_", "").removesuffix("config")
    group = options.get("group_size", 128)
    if name in ("int4weightonly", "int4weightonlyfloat8activation"):
        return grouped_format("torchao_int4", group if isinstance(group, int) else 128)
    if name in ("int8weightonly", "int8dynamicactivationint8weight"):
        return weight_format("torchao_int8")
    if name in ("float8weightonly", "float8dynamicactivationfloat8weight"):
        per_row = "PerRow" in str(options.get("granularity", ""))
        return weight_format("fp8_channel") if per_row or name == "float8weightonly" else replace_name("fp8", "fp8")
    raise unsupported(raw, "quant_type", kind, "int4 or int8 weight-only, int8 dynamic, or float8")
