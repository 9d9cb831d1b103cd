"""The large tensors of one workload by name, and which of them a request has the size of. Sizes in bytes.

A tensor counts when its size, rounded as the allocator rounds it, is the request to the precision of the print. Other
shapes (logits of another number of tokens, scores of another length) are given with what the workload has instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from planner.diagnosis.expectation.workload import ServingWorkload, TrainingWorkload, Workload
from planner.diagnosis.rules.large_tensors import LargeTensor, ModelShape, could_be
from planner.diagnosis.rules.thresholds import ROUNDED_REQUESTS
from planner.diagnosis.states.rewind import LARGE_LEAST_BYTES, segment_bytes
from planner.model.model import Model
from planner.model.tensors import tensors

_WIDTHS: Final = ((4, "fp32"), (2, "16 bit"))
_MOST: Final = 4
_SHARDED: Final = ("zero3", "fsdp", "fsdp2", "hsdp")


def shape_of(model: Model, *, sequences: int = 1) -> ModelShape:
    """What decides the sizes of logits and attention scores, with the heads of all `sequences` of a batch."""
    heads = max((_heads(mixer) for layer in model.spec.layers for mixer in layer.mixers), default=0)
    return ModelShape(
        vocab_size=model.spec.vocab_size,
        num_attention_heads=heads * sequences,
        hidden_size=model.spec.hidden_size,
    )


def _heads(mixer: object) -> int:
    heads = getattr(mixer, "num_attention_heads", 0)
    return heads if isinstance(heads, int) else 0


def matching(tried_bytes: int, margin_bytes: int, workload: Workload) -> tuple[LargeTensor, ...]:
    """The workload's tensors that have the size of a request; none for sizes that the allocator rounds to anyway."""
    if tried_bytes in ROUNDED_REQUESTS or tried_bytes < LARGE_LEAST_BYTES:
        return ()
    found: dict[str, LargeTensor] = {}
    for tensor in large_tensors(workload):
        sizes = (tensor.size_bytes, segment_bytes(tensor.size_bytes))
        if any(abs(size - tried_bytes) <= margin_bytes for size in sizes):
            found.setdefault(tensor.name, tensor)
    return tuple(found.values())[:_MOST]


def large_tensors(workload: Workload) -> Iterator[LargeTensor]:
    """Every tensor of at least 10 MiB that this workload is known to make in one piece."""
    for tensor in _of(workload):
        if tensor.size_bytes >= LARGE_LEAST_BYTES:
            yield tensor


def _of(workload: Workload) -> Iterator[LargeTensor]:
    if isinstance(workload, TrainingWorkload):
        yield from _training(workload)
    else:
        yield from _serving(workload)


def _training(workload: TrainingWorkload) -> Iterator[LargeTensor]:
    recipe, model = workload.plan.recipe, workload.model
    shape = shape_of(model)
    batch, length, vocabulary = recipe.sequences, recipe.max_seq_length, shape.vocab_size
    for width, dtype in _WIDTHS:
        yield _tensor(f"logits in {dtype}", (batch, length, vocabulary), width)
        yield _tensor(f"logits in {dtype} without the last position", (batch, length - 1, vocabulary), width)
    for width, dtype in _WIDTHS:
        yield _tensor(f"attention scores in {dtype}", (batch, shape.num_attention_heads, length, length), width)
    for width, dtype in _WIDTHS:
        yield _tensor(f"hidden states in {dtype}", (batch, length, model.spec.hidden_size), width)
        for inner in _inner_sizes(model):
            yield _tensor(f"inner activations of an MLP in {dtype}", (batch, length, inner), width)
    if recipe.tensor_parallel_size == 1 and recipe.sharding not in _SHARDED:
        yield from _weights(model)


def _serving(workload: ServingWorkload) -> Iterator[LargeTensor]:
    plan, model = workload.plan, workload.model
    resolved, shape = plan.resolved, shape_of(workload.model)
    ways = resolved.asked.tensor_parallel_size
    tokens, vocabulary = resolved.max_num_batched_tokens, shape.vocab_size
    for width, dtype in _WIDTHS:
        yield _tensor(f"logits of max_num_seqs requests in {dtype}", (resolved.max_num_seqs, vocabulary), width)
        yield _tensor(
            f"logits of a whole prompt of max_model_len in {dtype} (prompt_logprobs)",
            (resolved.max_model_len, vocabulary),
            width,
        )
        yield _tensor(f"logits of max_num_batched_tokens in {dtype}", (tokens, vocabulary), width)
    width = resolved.element_bytes
    yield _tensor("hidden states of max_num_batched_tokens", (tokens, model.spec.hidden_size), width)
    for inner in _inner_sizes(model):
        yield _tensor("gate and up activations of an MLP", (tokens, 2 * inner // ways), width)
    yield from _cache_of_a_layer(workload)
    if ways == 1:
        yield from _weights(model)


def _cache_of_a_layer(workload: ServingWorkload) -> Iterator[LargeTensor]:
    plan = workload.plan
    for group in plan.pool.groups[:1]:
        yield LargeTensor(
            name="KV cache of one layer",
            shape=(plan.num_blocks, group.layer.page_bytes),
            element_bytes=1,
            formula=f"{plan.num_blocks} blocks x {group.layer.page_bytes} B",
        )


def _weights(model: Model) -> Iterator[LargeTensor]:
    """One of every distinct shape: as stored in 16 bit, and as its fp32 copy, gradient or optimizer state."""
    seen: set[tuple[int, ...]] = set()
    for tensor in tensors(model.spec):
        if tensor.shape not in seen:
            seen.add(tensor.shape)
            yield _tensor(f"{tensor.name} in 16 bit", tensor.shape, 2)
            yield _tensor(f"{tensor.name} in fp32 (weight, gradient or optimizer state)", tensor.shape, 4)


def _inner_sizes(model: Model) -> tuple[int, ...]:
    found = (getattr(layer.feed_forward, "intermediate_size", 0) for layer in model.spec.layers)
    return tuple(dict.fromkeys(size for size in found if isinstance(size, int) and size))


def _tensor(name: str, shape: tuple[int, ...], width: int) -> LargeTensor:
    return LargeTensor(
        name=name, shape=shape, element_bytes=width, formula=f"{' x '.join(str(side) for side in shape)} x {width} B"
    )


def shapes_instead(tried_bytes: int, margin_bytes: int, workload: Workload) -> tuple[str, ...]:
    """Sentences: how many tokens or what length a large request would be for this model, beside the workload's own."""
    sequences, length, tokens = _extent(workload)
    found = []
    for tensor in could_be(tried_bytes, margin_bytes, shape_of(workload.model, sequences=sequences)):
        if tensor.name.startswith("logits"):
            found.append(f"as {tensor.name} of this model: {tensor.shape[0]:,} tokens; the plan has {tokens:,}")
        else:
            of = f"{sequences:,} sequences" if sequences > 1 else "one sequence"
            heads = tensor.shape[0] // sequences
            found.append(
                f"as {tensor.name} of {of} with {heads} heads: a length of {tensor.shape[1]:,}; the plan has {length:,}"
            )
    return tuple(found)


def _extent(workload: Workload) -> tuple[int, int, int]:
    """(sequences whose scores lie in one tensor, length, tokens of one forward)."""
    if isinstance(workload, TrainingWorkload):
        recipe = workload.plan.recipe
        return recipe.sequences, recipe.max_seq_length, recipe.tokens
    resolved = workload.plan.resolved
    return 1, resolved.max_model_len, resolved.max_num_batched_tokens


def tensor_words(tensor: LargeTensor) -> str:
    """The tensor in words: its name, the product and its size."""
    return f"{tensor.name}: {tensor.formula} = {prod(tensor.shape) * tensor.element_bytes:,} B"
