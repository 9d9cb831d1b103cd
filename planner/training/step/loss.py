"""From the last hidden state to the loss: final norm, output matrix, logits and cross entropy, and back.

hf            the logits, in fp32, their log-softmax; backward makes the gradient of each            2 + 4 + 4 + 4 B
shifted copy  transformers up to 4.49 also copied the logits without the last position                        + 4 B
in-place      the gradient is written over the logits (unsloth, fms foak, Triton cross entropy)
chunked       torchtune: 8 chunks; TRL: 256 tokens, recomputed; litgpt: 128 positions (see `litgpt_loss`)
liger, cce    a chunk of the logits at a time, gradients made in forward; never all logits
megatron      vocabulary-parallel cross entropy on fp32 logits

T x V logits are the largest tensors of most fine-tunes, so the order in which the copies die is kept exactly.
Sources: transformers 5.24 loss/loss_utils.py (ForCausalLMLoss), 4.45 and 4.48 modeling_llama.py; torchtune
modules/loss; liger ops/fused_linear_cross_entropy.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from planner.model.tensor import Norm
from planner.training.blocks.block import Block, Weight
from planner.training.blocks.linear import linear
from planner.training.blocks.norms import norm
from planner.training.objectives.distillation import distillation_loss
from planner.training.objectives.logprobs import LogProbs
from planner.training.tape import ops
from planner.training.tape.tape import Tape, Value, detached

FP32 = 4
_TRL_CHUNK = 256  # tokens; trl sft_config.py chunked_nll
_TORCHTUNE_CHUNKS = 8  # torchtune modules/loss CEWithChunkedOutputLoss num_output_chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What the head is run with.

    Args:
        norm: the final norm, or None.
        output: the output matrix (or the tied embedding).
        loss: the kind (see the module).
        chunking: whose chunked loss: "trl", "litgpt" or "torchtune".
        upcast: who converts the logits to fp32: "loss", "model" (transformers up to 4.45: the forward) or "none".
        shifted_copy: the logits without the last position are copied.
        keep_outputs: the logits live through backward.
        extra_scaling: the model divides or caps its logits (Gemma 2, Cohere, Granite): one more copy.
        whole_logits: litgpt: the logits of all positions are made at once (full fine-tune).
        kept_tokens: positions whose logits are made.
        softcap: tanh of the logits is kept.
        in_place_converts: the in-place kernel is handed what transformers hands to cross entropy (fp32, copied);
            False: the 16-bit logits themselves.
        compiled: the loss is compiled: fp32 copies are never written.
        compiled_apart: the loss is a graph of its own: the logits are its input, which backward may not write over.
        log_probs: reinforcement learning's head in the loss's place.
        distils: a teacher's logits are compared with these.
        batch: sequences that a chunk of positions is taken from.
    """

    norm: Norm | None
    output: Weight
    loss: str
    chunking: str = "trl"
    upcast: str = "loss"
    shifted_copy: bool = False
    keep_outputs: bool = False
    scaled: bool = False
    softcap: bool = False
    in_place_converts: bool = True
    compiled: bool = False
    compiled_apart: bool = False
    batch: int = 1
    kept_tokens: int = 0
    whole_logits: bool = False
    log_probs: LogProbs | None = None
    distils: bool = False


def run_head(block: Block, head: Head, hidden: Value) -> tuple[Value, list[Value]]:
    """The loss, and what the program keeps alive through backward."""
    if head.norm is not None:
        normed = norm(block, head.norm, hidden)
        hidden.release()  # the model's forward gives the normed states the name that these had
        hidden = normed
    if head.kept_tokens:
        hidden = ops.part(block.tape, hidden, hidden.numel // block.tokens * head.kept_tokens)
    if head.loss in ("liger", "cce"):
        return _fused_linear(block, head, hidden), []
    if head.loss == "chunked":
        return _chunked(block, head, hidden)
    logits = linear(block, "lm_head", hidden)
    if head.scaled:
        logits = ops.scale(block.tape, logits)
    if head.softcap:
        logits = softcapped(block.tape, logits)
    if head.log_probs is not None:
        return _log_probabilities(block.tape, head.log_probs, logits), []
    if head.distils:
        return distillation_loss(block.tape, logits), []
    if head.upcast == "model":
        logits = ops.cast(block.tape, logits, FP32)
    loss = _loss(block.tape, head, logits)
    return loss, [detached(logits)] if head.keep_outputs else []


def _log_probabilities(tape: Tape, kind: LogProbs, logits: Value) -> Value:
    """A stack's log-probabilities: what it makes beside the logits, keeps, and makes in backward, a logit each."""
    numel, own = logits.numel, Fraction(logits.width)
    beside = tape.new(1, max(0, int((kind.forward - kind.kept) * numel)))
    kept = tape.new(1, max(0, int((kind.kept - own) * numel)))
    del beside
    tape.saves()
    saved = detached(logits)

    def backward(grad: Value) -> list[Value | None]:
        assert kept.width >= 0
        made = tape.new(1, max(0, int((kind.backward - max(kind.kept, own) - own) * numel)))
        result = tape.like(saved)
        del made
        return [result]

    return tape.record(tape.new(1, FP32), (logits,), backward)


def softcapped(tape: Tape, logits: Value) -> Value:
    """cap * tanh(logits / cap)."""
    return ops.scale(tape, ops.keep_result(tape, ops.scale(tape, logits)))


def _loss(tape: Tape, head: Head, logits: Value) -> Value:
    if head.compiled:
        return _compiled(tape, head, logits)
    if head.loss == "in-place" and not head.in_place_converts:
        return _written_over(tape, logits)
    if head.upcast == "none":  # CrossEntropyLoss on the model's own logits (modeling_t5.py, _bart.py, _whisper.py)
        return cross_entropy(tape, logits)
    logits = ops.cast(tape, logits, FP32)
    if head.loss == "megatron":
        return _written_over(tape, logits)
    # Kernels that write over the logits were made for releases that copy them; the fp32 logits stay in the function.
    copies = head.shifted_copy or head.loss == "in-place"
    shifted = ops.copy(tape, ops.part(tape, logits, logits.numel)) if copies else logits
    return _written_over(tape, shifted) if head.loss == "in-place" else cross_entropy(tape, shifted)


def _compiled(tape: Tape, head: Head, logits: Value) -> Value:
    """Cross entropy fused by inductor: keeps the logits, and makes the gradient in their place, or beside an input.

    Source: torch 2.6 functorch config donated_buffer: backward may reuse what was saved for it, but for the graph's
    inputs.
    """
    if not head.compiled_apart:
        return _written_over(tape, logits)
    saved = detached(logits)
    return tape.record(tape.new(1, FP32), (logits,), lambda grad: (tape.like(saved),))


def cross_entropy(tape: Tape, logits: Value) -> Value:
    """log_softmax, then the mean of the targets' entries; under autocast in fp32."""
    if tape.autocast:
        logits = ops.cast(tape, logits, FP32)
    probabilities = ops.keep_result(tape, logits)
    saved = detached(probabilities)
    return tape.record(tape.new(1, FP32), (probabilities,), lambda grad: (tape.like(saved),))


def _written_over(tape: Tape, logits: Value) -> Value:
    """Cross entropy whose gradient takes the logits' place."""
    saved = detached(logits)
    return tape.record(tape.new(1, FP32), (logits,), lambda grad: (Value(saved.numel, saved.width, saved.storage),))


def _fused_linear(block: Block, head: Head, hidden: Value) -> Value:
    """Liger's fused linear cross entropy: chunks of next_pow2(T / ceil(V / H)) tokens, gradients made in forward.

    The gradient of the hidden state, and of the matrix if it is trained, live from forward on.
    """
    tape, weight = block.tape, head.output
    tokens = hidden.numel // weight.in_features
    vocabulary, width = weight.out_features, tape.autocast or weight.width
    increments = -(-vocabulary // weight.in_features)
    rows = min(tokens, 1 << (-(-tokens // increments) - 1).bit_length())
    matrix = block.weight("lm_head.weight")
    grad_hidden = tape.new(hidden.numel, width)
    grad_matrix = tape.new(weight.numel, weight.width) if matrix.needs_grad else None
    chunk = [tape.new(rows * vocabulary, width)]
    if head.loss == "liger":
        chunk.append(tape.new(rows * vocabulary, FP32))  # the chunk in fp32 where the kernel softmaxes
    if grad_matrix is not None:
        chunk.append(tape.new(weight.numel, weight.width))  # one chunk's product before it is added
    chunk.clear()
    del chunk
    kept = detached(grad_hidden)
    kept_matrix = None if grad_matrix is None else detached(grad_matrix)

    def backward(grad: Value) -> list[Value | None]:
        result: list[Value | None] = [Value(kept.numel, kept.width, kept.storage)]
        result.append(None if kept_matrix is None else Value(kept_matrix.numel, kept_matrix.width, kept_matrix.storage))
        return result

    return tape.record(tape.new(1, FP32), (hidden, matrix), backward)


def _chunked(block: Block, head: Head, hidden: Value) -> tuple[Value, list[Value]]:
    tape = block.tape
    tokens = hidden.numel // head.output.in_features
    if head.chunking == "trl":
        return _recomputed_chunks(block, head, hidden, tokens), []
    rows = -(-tokens // min(tokens, _TORCHTUNE_CHUNKS))
    sizes = [min(rows, tokens - start) for start in range(0, tokens, rows)]
    pieces = ops.split(tape, hidden, [size * head.output.in_features for size in sizes])
    if head.chunking == "torchtune" and head.batch > 1:
        # rows of several sequences do not follow each other: the product gets a copy of them, and keeps it
        pieces = [ops.copy(tape, piece) for piece in pieces]
    logits = [linear(block, "lm_head", piece) for piece in pieces]
    del pieces
    if head.chunking == "torchtune":
        hidden.release()  # the model has handed out its logits, and its forward is over
    if head.softcap:
        logits = [softcapped(tape, piece) for piece in logits]
    losses = []
    for piece in logits:
        if head.compiled:
            losses.append(_compiled(tape, head, piece))
            continue
        if head.chunking == "torchtune":
            piece = ops.cast(tape, piece, FP32)
        losses.append(cross_entropy(tape, piece))
    del piece
    total = losses[0]
    for one in losses[1:]:
        total = ops.add(tape, total, one)
    return total, []


def _recomputed_chunks(block: Block, head: Head, hidden: Value, tokens: int) -> Value:
    """Each chunk is a checkpoint: its logits live only while it is computed, in forward and again in backward."""
    tape, rows = block.tape, min(tokens, _TRL_CHUNK)
    vocabulary, matrix, output = head.output.out_features, block.weight("lm_head.weight"), head.output
    width = tape.autocast or output.width
    held = [tape.new(rows * vocabulary, width), tape.new(rows * vocabulary, FP32), tape.new(rows * vocabulary, FP32)]
    held.clear()
    saved = detached(hidden)

    def backward(grad: Value) -> list[Value | None]:
        result: list[Value | None] = [tape.like(saved)]
        result.append(tape.new(output.numel, output.width) if matrix.needs_grad else None)
        sizes = (width, FP32, FP32, FP32)
        temporary = [tape.new(rows * vocabulary, size) for size in sizes]
        temporary.clear()
        return result

    return tape.record(tape.new(1, FP32), (hidden, matrix), backward)
