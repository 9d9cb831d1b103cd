"""Prefill and decode with a real cache in transformers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from planner.probe.backends.base import Meter
from planner.probe.build import build_model, storage_bytes, tensors_in
from planner.probe.extras import library
from planner.training.generation import Generation

JUDGED: Final = ("weights", "kv_cache", "prefill_peak")


class ServeRun:
    """One run of a workload; `measured` fills as it goes, `phase` says where it is."""

    def __init__(self, meter: Meter, values: Mapping[str, object], workload: Generation) -> None:
        self.meter, self.values, self.workload = meter, values, workload
        self.measured: dict[str, int] = {}
        self.phase = "loading"

    def run(self) -> None:
        """Build, prefill, decode.

        Raises:
            PlannerError: the model cannot be built.
            RuntimeError: what the device says, out of memory among it.
        """
        torch, meter, workload = library("torch"), self.meter, self.workload
        model = build_model(
            self.values,
            dtype=workload.dtype,
            attn_implementation=workload.attn_implementation,
            device=meter.torch_device,
        ).eval()
        self.measured["weights"] = storage_bytes(model.parameters())
        self.measured["buffers"] = storage_bytes(model.buffers())
        vocabulary = _vocabulary(model)
        shape = (workload.batch_size, workload.input_len)
        with torch.no_grad():
            self.phase = "prefill"
            tokens = torch.randint(0, vocabulary, shape, device=meter.torch_device)
            meter.restart_peak()
            out = model(input_ids=tokens, use_cache=True, logits_to_keep=1)
            self.measured["prefill_peak"] = meter.peak_bytes()
            name = _cache_name(model)
            cache = getattr(out, name)
            token = out.logits[:, -1:].argmax(-1)
            del out, tokens
            self.phase = "decode"
            meter.restart_peak()
            for _ in range(workload.output_len):
                out = model(input_ids=token, use_cache=True, logits_to_keep=1, **{name: cache})
                token = out.logits[:, -1:].argmax(-1)
                del out
            self.measured["decode_peak"] = meter.peak_bytes()
        self.measured["kv_cache"] = storage_bytes(tensors_in(cache))


def _cache_name(model: Any) -> str:
    """What this model, in this transformers, calls the cache: "cache" from 5.24 on."""
    takes = inspect.signature(type(model).forward).parameters
    return next((name for name in ("cache", "past_key_values", "cache_params") if name in takes), "past_key_values")


def _vocabulary(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[0])
