"""A start-up log of llama.cpp or a program built on it: version, arguments it states, buffers, what it stopped with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from planner.contract.start_log import COMMAND_LINE, Compared, LoggedError, MeasuredStart
from planner.engines.llama_cpp.plan import LlamaPlan
from planner.engines.llama_cpp.section import device_names
from planner.units import GIB, MIB

_LONGEST_LINE: Final = 16_384
_MOST_LINES: Final = 1_000_000
_MOST_ERRORS: Final = 50
_VERSION: Final = re.compile(r"\bbuild(?:_info)?: ?b?(\d{3,6})\b|\bversion: (\d{3,6}) \(", re.ASCII)
_BUFFER: Final = re.compile(
    r"\b([A-Za-z]+\d*(?:_Host|_Mapped|_REPACK)?)\s+(model|KV|RS|compute|output) buffer size\s*=\s*([\d.]+) MiB",
    re.ASCII,
)
_SETTING: Final = re.compile(r"\b(n_ctx|n_batch|n_ubatch|n_seq_max|flash_attn|kv_unified)\s*=\s*(\w+)", re.ASCII)
_FILE_TYPE: Final = re.compile(r"\bfile type\s*=\s*([\w.]+)(?: - (Small|Medium|Large))?", re.ASCII)
_OFFLOADED: Final = re.compile(r"offloaded (\d+)/(\d+) layers to GPU", re.ASCII)
_CACHE: Final = re.compile(r"\bK \((\w+)\):.*\bV \((\w+)\):", re.ASCII)
_OLLAMA: Final = re.compile(
    r'msg="?(model weights|kv cache|compute graph)"? device=(\S+) size="?([\d.]+) (B|KiB|MiB|GiB)', re.ASCII
)
_ERRORS: Final = (
    re.compile(r"cudaMalloc failed: out of memory.*"),
    re.compile(r"failed to allocate .* buffer.*"),
    re.compile(r"unable to allocate .* buffer.*"),
    re.compile(r"quantized V cache was requested, but this requires Flash Attention"),
    re.compile(r"error loading model: .*"),
    re.compile(r"failed to create context.*"),
)
_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_OPTIONS: Final = {
    "n_ctx": "--ctx-size",
    "n_batch": "--batch-size",
    "n_ubatch": "--ubatch-size",
    "n_seq_max": "--parallel",
}
_OLLAMA_KIND: Final = {"model weights": "model", "kv cache": "kv", "compute graph": "compute"}


def read_log(lines: Iterable[str]) -> MeasuredStart:
    """What the lines say; buffers by kind and device in bytes ("compute_CUDA0_bytes"), summed over repeats of a kind.

    A model that is loaded twice (a fitting pass, a draft) counts once: the last figure of a compute buffer stays.
    """
    figures: dict[str, float] = {}
    words: dict[str, str] = {}
    version = None
    errors: list[LoggedError] = []
    recognised = 0
    for number, raw in enumerate(lines):
        if number >= _MOST_LINES:
            break
        line = raw[:_LONGEST_LINE]
        buffer = _BUFFER.search(line)
        if buffer:
            recognised += 1
            name = f"{buffer[2].lower()}_{buffer[1]}_bytes"
            size = float(buffer[3]) * MIB
            figures[name] = size if buffer[2] in ("compute", "output") else figures.get(name, 0.0) + size
            continue
        said = _OLLAMA.search(line)
        if said:
            recognised += 1
            figures[f"{_OLLAMA_KIND[said[1]]}_{said[2]}_bytes"] = float(said[3]) * _UNITS[said[4]]
            continue
        setting = _SETTING.search(line)
        if setting and setting[1] in _OPTIONS and setting[2].isdigit():
            words[_OPTIONS[setting[1]]] = setting[2]
        elif setting and setting[1] == "flash_attn":
            words["--flash-attn"] = "on" if setting[2] in ("1", "true", "enabled", "auto") else "off"
        elif setting and setting[1] == "kv_unified":
            words["--kv-unified"] = "true" if setting[2] in ("1", "true") else "false"
        offloaded = _OFFLOADED.search(line)
        if offloaded:
            recognised += 1
            words["--n-gpu-layers"] = offloaded[1]
        kind = _FILE_TYPE.search(line)
        if kind:
            words["--quantization"] = kind[1] + (f"_{kind[2][0]}" if kind[2] else "")
        types = _CACHE.search(line)
        if types:
            words["--cache-type-k"], words["--cache-type-v"] = types[1], types[2]
        found = _VERSION.search(line)
        if version is None and found:
            version = f"b{found[1] or found[2]}"
        failed = next((match[0][:300] for match in (one.search(line) for one in _ERRORS) if match), None)
        if failed is not None:
            recognised += 1
            if len(errors) < _MOST_ERRORS:
                errors.append(LoggedError("start", failed, number + 1))
    if words:
        words["--fit"] = "off"  # what was loaded is what it chose
    flat = tuple(word for pair in words.items() for word in pair)
    return MeasuredStart(
        version=version,
        words=flat,
        stated={option[2:].replace("-", "_"): value for option, value in words.items()},
        measured=figures,
        errors=tuple(errors),
        recognised=recognised,
    )


def beside(
    plan: LlamaPlan, measured: Mapping[str, float], unknown: Sequence[str] = ()
) -> tuple[list[Compared], list[tuple[str, str]]]:
    """Every printed buffer beside the planned one, caches of a device together; (mode, reason) for what is left.

    Args:
        measured: bytes under the names that `read_log` gives.
        unknown: inputs that the plan stands on and nobody stated.
    """
    if plan.run is None or plan.buffers is None:
        return [], [(COMMAND_LINE, "the plan does not start")]
    if unknown and plan.deployment.n_gpu_layers is None:
        # the card decides where the layers lie
        return [], [(COMMAND_LINE, f"not known: {', '.join(unknown)}")]
    found, buffers = [], plan.buffers
    for index, device in enumerate(device_names(plan.run)):
        planned = {
            "model": buffers.model[index],
            "kv": buffers.full[index] + buffers.window[index],
            "rs": buffers.state[index],
            "compute": buffers.compute[index],
        }
        for kind, size in planned.items():
            printed = measured.get(f"{kind}_{device}_bytes")
            if printed:
                found.append(Compared(figure=f"{kind} {device}", planned=size / GIB, measured=printed / GIB))
    return found, []
