"""A start-up log of llama.cpp or a program built on it: version, arguments it states, buffers, what it stopped with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from planner.contract.engine import MeasuredStart
from planner.units import MIB

_LONGEST_LINE: Final = 16_384
_MOST_LINES: Final = 1_000_000
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
    version = error = None
    for number, raw in enumerate(lines):
        if number >= _MOST_LINES:
            break
        line = raw[:_LONGEST_LINE]
        buffer = _BUFFER.search(line)
        if buffer:
            name = f"{buffer[2].lower()}_{buffer[1]}_bytes"
            size = float(buffer[3]) * MIB
            figures[name] = size if buffer[2] in ("compute", "output") else figures.get(name, 0.0) + size
            continue
        said = _OLLAMA.search(line)
        if said:
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
        if error is None:
            error = next((match[0][:300] for match in (one.search(line) for one in _ERRORS) if match), None)
    if words:
        words["--fit"] = "off"  # what was loaded is what it chose
    flat = tuple(word for pair in words.items() for word in pair)
    return MeasuredStart(version=version, words=flat, measured=figures, error=error)
