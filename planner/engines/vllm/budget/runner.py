"""Which model runner and sampler a version of vLLM profiles a model with, and what the sampler holds.

Source: vLLM 0.8.5 to 0.33.0 `v1/worker/gpu_model_runner.py` _dummy_sampler_run, `v1/worker/gpu/`, `config/vllm.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.engines.vllm.model.tasks import pools
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.overhead import Situation
from planner.engines.vllm.tables.profile import parse_version
from planner.hardware.gpus import Gpu
from planner.hardware.links import reach_of
from planner.memory import activations as terms
from planner.model.kinds.feed_forward import Moe
from planner.model.model import Model
from planner.model.spec import Layer
from planner.units import gib

_UNKNOWN_SM_COUNT: Final = 132
# Of a row and word: fp32 copy, its penalised and its masked copy, probabilities and log-probabilities, 4 B each
SECOND_PASS_BYTES: Final = 20


@dataclass(frozen=True, slots=True)
class Term:
    """One addend of the peak: bytes and the arithmetic that gave them."""

    name: str
    size: int
    formula: str

    def __str__(self) -> str:
        """Name, arithmetic and result; a sum of products stands in brackets."""
        formula = f"({self.formula})" if " + " in self.formula else self.formula
        return f"{self.name} {formula} = {gib(self.size)}"


def situation_of(model: Model, resolved: Resolved) -> Situation:
    """What the readings of the overhead table are looked up for."""
    asked, card = resolved.asked, resolved.asked.gpu
    ways = asked.tensor_parallel_size
    names: tuple[str, ...] = ()
    if card is not None:
        names = ("unified",) if card.unified_memory else (card.id, card.architecture)
    return Situation(
        version=parse_version(resolved.profile.version),
        card=names,
        topology="tpn" if ways > 1 else "pp" if asked.pipeline_parallel_size > 1 else "tp1",
        link=reach_of(card, asked.interconnect),
        gpus=ways,
        runner="v2" if uses_v2_runner(model, resolved) else resolved.profile.runner,
        graphs=not asked.enforce_eager and model.spec.decoder,
    )


def samples(model: Model, resolved: Resolved) -> bool:
    """The engine draws tokens, so it has a head over the vocabulary and a sampler."""
    return model.spec.decoder and not pools(model, resolved.asked)


def uses_v2_runner(model: Model, resolved: Resolved) -> bool:
    """Whether this version runs this model on the V2 model runner (config/vllm.py use_v2_model_runner)."""
    rule, spec = resolved.profile.v2_models, model.spec
    if rule == "none":
        return False
    if rule == "all":
        return True
    if not spec.decoder:
        return False
    kind, _, names = rule.rpartition(":")
    if spec.architecture in names.split(","):
        # 0.22: not for quantised checkpoints
        return kind != "plain" or (spec.quantization_config is None and resolved.asked.quantization is None)
    return kind == "dense" and not model.is_recurrent and not is_moe(model)


def is_moe(model: Model) -> bool:
    return any(isinstance(layer.feed_forward, Moe) for layer in distinct(model.spec.layers))


def sampler_path(model: Model, resolved: Resolved) -> str:
    """Which sampler the profile run exercises.

    "sort", "triton", "flashinfer", "second_pass"; "logits" (none), "copied_logits" (an fp32 copy) or "all_logits".
    """
    asked, card = resolved.asked.sampler, resolved.asked.gpu
    v2 = uses_v2_runner(model, resolved)
    default = resolved.profile.v2_sampler if v2 else resolved.profile.sampler
    if v2 and default in ("logits", "copied_logits", "second_pass"):
        # the dummy requests are greedy: no top-k, no top-p; from 0.31 a second pass tries them all
        return default
    path = {"auto": default, "pytorch": "sort"}.get(asked, asked)
    if path == "flashinfer" and asked == "auto" and card is not None and not _has_flashinfer(card):
        path = "triton"
    if path == "triton" and rows(resolved) < resolved.profile.triton_from_rows:
        return "sort"
    return path


def other_sampler(model: Model, resolved: Resolved) -> str | None:
    """The sampler that an installation with its package takes instead of the planned one; None: nothing is open."""
    other, card = resolved.profile.optional_sampler, resolved.asked.gpu
    if not other or resolved.asked.sampler != "auto" or sampler_path(model, resolved) == other:
        return None
    return other if card is None or _has_flashinfer(card) else None


def _has_flashinfer(card: Gpu) -> bool:
    """NVIDIA, compute capability 7.5 to 12.1 (flashinfer.py supports_compute_capability)."""
    return card.vendor in ("", "NVIDIA") and (card.capability is None or card.capability >= (7, 5))


def rows(resolved: Resolved) -> int:
    """Requests in the dummy batch: R = min(max_num_batched_tokens, max_num_seqs)."""
    return min(resolved.max_num_batched_tokens, resolved.max_num_seqs)


def sampler_terms(model: Model, resolved: Resolved, path: str | None = None) -> tuple[Term, ...]:
    """What the sampler of the profile run holds; `path` plans another than the one that is taken."""
    path = path or sampler_path(model, resolved)
    count, vocabulary, element = rows(resolved), model.spec.vocab_size, resolved.element_bytes
    tokens, hidden = resolved.max_num_batched_tokens, model.spec.hidden_size
    found = []
    if path == "all_logits":
        return (Term("logits", element * tokens * vocabulary, f"{tokens:,} x {vocabulary:,} x {element}"),)
    if path == "logits":
        found.append(Term("logits", element * count * vocabulary, f"{count:,} x {vocabulary:,} x {element}"))
    elif path == "second_pass":
        size = (element + SECOND_PASS_BYTES) * count * vocabulary
        found.append(Term("sampler", size, f"{count:,} x {vocabulary:,} x ({element} + {SECOND_PASS_BYTES})"))
    elif path == "sort":
        size = terms.sort_sampler_peak(rows=count, vocab_size=vocabulary, logits_bytes=element)
        found.append(Term("sorting sampler", size, f"{count:,} x {vocabulary:,} x ({element} + 36)"))
    elif path == "copied_logits":
        found.append(
            Term("logits", (element + 4) * count * vocabulary, f"{count:,} x {vocabulary:,} x ({element} + 4)")
        )
    elif path == "triton" and uses_v2_runner(model, resolved):
        # masked in place, and noise is drawn inside the kernel: logits and their fp32 copy
        found.append(
            Term("sampler", (element + 4) * count * vocabulary, f"{count:,} x {vocabulary:,} x ({element} + 4)")
        )
    else:
        size = terms.random_sampler_peak(rows=count, vocab_size=vocabulary, logits_bytes=element)
        found.append(Term("sampler", size, f"{count:,} x {vocabulary:,} x ({element} + 12)"))
    if path == "triton":
        multiprocessors = (resolved.asked.gpu.sm_count if resolved.asked.gpu else None) or _UNKNOWN_SM_COUNT
        size = terms.triton_sampler_buffer(sm_count=multiprocessors, rows=count, vocab_size=vocabulary)
        found.append(Term("top-k/top-p scratch", size, f"{multiprocessors} SMs x {vocabulary:,} x 4"))
    copies = 2 if resolved.profile.runner == "v1" and not uses_v2_runner(model, resolved) else 1
    held = terms.hidden_rows(tokens=tokens + copies * count, hidden_size=hidden, element_bytes=element)
    found.append(Term("hidden states", held, f"({tokens:,} + {copies} x {count:,}) x {hidden:,} x {element}"))
    return tuple(found)


def distinct(layers: tuple[Layer, ...]) -> list[Layer]:
    """Each layer object once; a deep model has thousands of places and a few objects."""
    return list(dict(zip(map(id, layers), layers, strict=True)).values())
