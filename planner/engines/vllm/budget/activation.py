"""The peak of vLLM's profile run: what is alive at once while one dummy batch goes through the model.

    peak = persistent + max(forward, sampler)

persistent: buffers that stay referenced from the first layer to the sampler (expert workspaces, the cuBLAS
workspace, multimodal inputs and outputs). forward: the fullest moment inside one layer. sampler: logits and what
sampling makes of them, with the hidden states that the profile run still holds.

Source: vLLM 0.19.0 `v1/worker/gpu_model_runner.py` profile_run, _dummy_run, _dummy_sampler_run;
docs/method.md derives each term and compares it with printed peaks.
"""

from __future__ import annotations

from typing import Final

from planner.contract.component import Component
from planner.engines.vllm.budget.encoder import encoder_run
from planner.engines.vllm.budget.kept import (
    SHARED_WORKSPACE,
    expert_width,
    held_through_forward,
    kept_buffers,
    latent_workspace_tokens,
    mxfp4,
    sparse_workspace,
)
from planner.engines.vllm.budget.runner import (
    Term,
    distinct,
    other_sampler,
    sampler_path,
    sampler_terms,
    samples,
    situation_of,
    uses_v2_runner,
)
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.overhead import overhead
from planner.engines.vllm.tables.profile import parse_version
from planner.memory import activations as terms
from planner.memory.parallel.sharding import Parallelism
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.kinds.latent import LatentAttention
from planner.model.model import Model
from planner.model.spec import Layer
from planner.units import gib


def activation_peak(
    model: Model, resolved: Resolved, parallelism: Parallelism, *, layers: slice, last: bool, quantised_inputs: bool
) -> Component:
    """The profile run's peak on one GPU of a pipeline stage, in bytes.

    Args:
        layers: the stage's layers.
        last: the stage has the head, so the sampler runs on it.
        quantised_inputs: linear layers quantise their input to 8 bit (W8A8, fp8).
    """
    kept = kept_buffers(model, resolved, parallelism, layers)
    fixed = kept + held_through_forward(model, resolved, parallelism, layers)
    forward = _forward(model, resolved, parallelism, layers, quantised_inputs=quantised_inputs)
    sampler = sampler_terms(model, resolved) if last and samples(model, resolved) else ()
    forward_bytes, sampler_bytes = (sum(term.size for term in side) for side in (forward, sampler))
    winner = sampler if sampler_bytes > forward_bytes else forward
    chosen = fixed + winner
    best = sum(term.size for term in chosen)
    encoder = encoder_run(model, resolved, parallelism)
    if sum(term.size for term in encoder) > best:
        # the encoder runs before the text model and holds only its own inputs
        winner, chosen = encoder, encoder
        best = sum(term.size for term in chosen)
    parts = " + ".join(str(term) for term in chosen)
    if resolved.profile.accounting == "consumed":
        # what stays is in the free memory lost; the peak is what comes on top of it
        stays = sum(term.size for term in kept)
        best = max(0, best - stays)
        parts += f" - {gib(stays)} that stays"
    spread = _spread(model, resolved, sampler_wins=winner is sampler)
    low, other_path = round(best * (1 - spread)), other_sampler(model, resolved)
    if other_path is not None and winner is sampler:
        other = sum(term.size for term in sampler_terms(model, resolved, other_path))
        low = min(low, best - sampler_bytes + max(other, forward_bytes))
        parts += f"; low: the {other_path} sampler of an official image"
    lesser = min(forward_bytes, sampler_bytes)
    which = "sampler" if winner is sampler else "encoder" if winner is encoder else "forward"
    return Component(
        name="activation_peak",
        low=low,
        best=best,
        high=round(best * (1 + spread)),
        evidence="derived",
        formula=f"{parts} GiB ({which} peak; the lesser of forward and sampler needs {gib(lesser)} GiB)",
        source=f"vLLM {resolved.profile.version} profile run; {resolved.profile.source}",
    )


def _forward(
    model: Model, resolved: Resolved, parallelism: Parallelism, layers: slice, *, quantised_inputs: bool
) -> tuple[Term, ...]:
    candidates = [
        _layer_peak(layer, model, resolved, parallelism, quantised_inputs=quantised_inputs)
        for layer in distinct(model.spec.layers[layers])
    ]
    found = [max(candidates, key=lambda term: term.size)] if candidates else []
    sparse = sparse_workspace(model, resolved)
    if sparse is not None and parse_version(resolved.profile.version) < SHARED_WORKSPACE:
        found.append(sparse)
    width = per_layer_width(model)
    if width:
        tokens, element = resolved.max_num_batched_tokens, resolved.element_bytes
        found.append(Term("per-layer inputs", tokens * width * element, f"{tokens:,} x {width:,} x {element}"))
    if resolved.profile.compiled_scratch and not resolved.asked.enforce_eager:
        scratch = overhead("benchmark_scratch", situation_of(model, resolved))
        found.append(Term("kernel benchmark buffer", scratch.best, "L2 cache"))
    return tuple(found)


def per_layer_width(model: Model) -> int:
    """Elements that a token's own embedding of every layer has (Gemma 3n, Gemma 4); 0 when there is none."""
    for tensor in model.spec.embeddings:
        if tensor.name.endswith("embed_tokens_per_layer.weight"):
            return tensor.shape[-1]
    return 0


def _layer_peak(
    layer: Layer, model: Model, resolved: Resolved, parallelism: Parallelism, *, quantised_inputs: bool
) -> Term:
    ways = parallelism.tensor_parallel_size
    tokens, element, hidden = resolved.max_num_batched_tokens, resolved.element_bytes, model.spec.hidden_size
    found: list[Term] = []
    block = layer.feed_forward
    if isinstance(block, Mlp):
        inner, kept = -(-block.intermediate_size // ways), block.gated and _keeps_gate(model, resolved)
        if block.gated:
            size = terms.gated_mlp_peak(
                tokens=tokens, hidden_size=hidden, intermediate_size=inner, element_bytes=element, keeps_gate=kept
            )
        else:
            size = terms.plain_mlp_peak(
                tokens=tokens, hidden_size=hidden, intermediate_size=inner, element_bytes=element
            )
        formula = f"{tokens:,} x ({3 if block.gated else 2} x {inner:,} + {4 if kept else 3} x {hidden:,}) x {element}"
        if ways > 1 and resolved.profile.runner == "v0":
            # the sum over the GPUs is made out of place
            size += tokens * hidden * element
            formula += f" + {tokens:,} x {hidden:,} x {element}"
        if quantised_inputs:
            size += tokens * (inner + hidden)
            formula += f" + {tokens:,} x ({inner:,} + {hidden:,}) x 1"
        found.append(Term("MLP", size, formula))
    elif isinstance(block, Moe):
        shared = -(-block.shared.intermediate_size // ways) if block.shared is not None else 0
        size = terms.expert_forward_peak(
            tokens=tokens,
            hidden_size=hidden,
            num_experts=block.num_experts,
            shared_intermediate_size=shared,
            element_bytes=element,
        )
        formula = f"{tokens:,} x ((4 x {hidden:,} + 3 x {shared:,}) x {element} + 4 x {block.num_experts})"
        if resolved.profile.expert_buffers != "workspace" or mxfp4(model):
            chunk = min(tokens, resolved.profile.expert_chunk or tokens)
            inner = expert_width(block, parallelism)
            size += terms.fused_expert_buffers(
                tokens=chunk,
                hidden_size=block.expert_input_size or hidden,
                moe_intermediate_size=inner,
                experts_per_token=block.num_experts_per_tok,
                element_bytes=element,
                separate=resolved.profile.expert_buffers == "separate",
            )
            formula += f" + expert buffers of {chunk:,} tokens"
        found.append(Term("MoE", size, formula))
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            query = -(-mixer.query_size // ways)
            key_value = max(mixer.head_dim, mixer.key_size // ways) + max(mixer.head_dim, mixer.value_size // ways)
            size = terms.attention_peak(
                tokens=tokens, hidden_size=hidden, query_size=query, key_value_size=key_value, element_bytes=element
            )
            formula = f"{tokens:,} x (3 x {query:,} + 2 x {key_value:,} + 2 x {hidden:,}) x {element}"
            found.append(Term("attention", size, formula))
        elif isinstance(mixer, LatentAttention):
            found.append(_latent_peak(mixer, model, resolved, ways))
        else:
            found.append(_recurrent_peak(layer, model, resolved, ways))
    return max(found, key=lambda term: term.size) if found else Term("none", 0, "0")


# Model types that run on models/llama.py (vLLM 0.6.6 to 0.9.2), whose MLP gives its gate up before it projects down.
_ON_LLAMA: Final = frozenset({"llama", "mistral", "phi3", "internlm3", "aquila", "bamba", "falcon_h1"})


def _keeps_gate(model: Model, resolved: Resolved) -> bool:
    return resolved.profile.runner == "v0" and model.spec.model_type not in _ON_LLAMA


def _latent_peak(mixer: LatentAttention, model: Model, resolved: Resolved, ways: int) -> Term:
    heads = mixer.num_attention_heads // ways
    workspace_tokens = latent_workspace_tokens(resolved)
    element, hidden = resolved.element_bytes, model.spec.hidden_size
    size = terms.latent_prefill_workspace(
        workspace_tokens=workspace_tokens,
        num_attention_heads=heads,
        qk_nope_head_dim=mixer.qk_nope_head_dim,
        v_head_dim=mixer.v_head_dim,
        element_bytes=element,
    )
    size += terms.hidden_rows(tokens=resolved.max_num_batched_tokens, hidden_size=3 * hidden, element_bytes=element)
    formula = (
        f"{workspace_tokens:,} x {heads} x ({mixer.qk_nope_head_dim} + {mixer.v_head_dim}) x {element}"
        f" + {resolved.max_num_batched_tokens:,} x 3 x {hidden:,} x {element}"
    )
    return Term("MLA prefill workspace", size, formula)


def _recurrent_peak(layer: Layer, model: Model, resolved: Resolved, ways: int) -> Term:
    """Projection, convolution output and gated output of a recurrent mixer, and its chunk states in fp32."""
    tokens, element, hidden = resolved.max_num_batched_tokens, resolved.element_bytes, model.spec.hidden_size
    widest = 0
    for mixer in layer.mixers:
        outputs = [tensor.shape[0] for tensor in mixer.tensors(hidden) if tensor.linear and tensor.shape[-1] == hidden]
        widest = max(widest, -(-sum(outputs) // ways))
    size = tokens * (2 * widest + 3 * hidden) * element
    formula = f"{tokens:,} x (2 x {widest:,} + 3 x {hidden:,}) x {element}"
    for cache in layer.caches():
        chunk = getattr(cache, "chunk_size", 0)
        states = getattr(cache, "states", ())
        if chunk and states:
            elements = max(state.elements(ways) for state in states)
            size += -(-tokens // chunk) * elements * 4
            formula += f" + {-(-tokens // chunk)} chunks x {elements:,} x 4"
    return Term("recurrent", size, formula)


def _spread(model: Model, resolved: Resolved, *, sampler_wins: bool) -> float:
    """Half width of the band as a fraction of the peak, from how well each side is known (docs/method.md)."""
    if any(stack.tokens_per_item for stack in model.spec.stacks):
        return 0.15
    if uses_v2_runner(model, resolved):
        # derived from the source, no start that prints the term alone is at hand
        if not sampler_wins:
            return 0.2
        # which of the second pass's copies live at once was not read (15 to 30 B a row and word)
        return 0.35 if sampler_path(model, resolved) == "second_pass" else 0.15
    if sampler_wins:
        return 0.03
    if any(isinstance(layer.feed_forward, Moe) for layer in distinct(model.spec.layers)) or model.is_recurrent:
        return 0.3
    return 0.1
