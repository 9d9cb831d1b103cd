"""litgpt's head and loss: cross entropy of 128 tokens at a time, on logits that are made so too, or whole.

adapters    the head is run on 128 positions (of all sequences) at a time (finetune/lora.py lm_head_chunk_size); the
            last chunk loses its last position
full        logits of all positions; they are cut into rows of 128 for the loss alone (finetune/full.py)

Fabric hands a 16-bit model's outputs out in fp32, all of them while the 16-bit ones are still alive. The loop's
variable keeps the fp32 logits through backward and until the next step's model has returned. Where a batch of several
sequences is cut by positions, what is cut is copied to be flattened.
Source: litgpt 0.5.13 model.py GPT.forward, utils.py chunked_cross_entropy, finetune/lora.py and full.py `fit`;
lightning 2.6 fabric wrappers.py _FabricModule.forward, plugins/precision/half.py convert_output.
"""

from __future__ import annotations

from planner.training.blocks.block import Block
from planner.training.blocks.linear import linear
from planner.training.blocks.norms import norm
from planner.training.step.loss import Head, cross_entropy, softcapped
from planner.training.tape import ops, row_ops
from planner.training.tape.tape import Tape, Value, detached

FP32 = 4
_CHUNK = 128  # positions in lora.py, rows in chunked_cross_entropy


def run_litgpt_head(block: Block, head: Head, hidden: Value) -> tuple[Value, list[Value]]:
    """The loss, and the fp32 logits that the training loop keeps alive through backward."""
    before = block.tape.new(block.tokens * head.output.out_features, FP32)  # as many tokens in the step before
    if head.norm is not None:
        normed = norm(block, head.norm, hidden)
        hidden.release()
        hidden = normed
    run = _whole if head.whole_logits else _by_positions
    return run(block, head, hidden, before)


def _by_positions(block: Block, head: Head, hidden: Value, before: Value) -> tuple[Value, list[Value]]:
    tape, batch = block.tape, block.batch
    counts = [min(_CHUNK, block.seq - start) for start in range(0, block.seq, _CHUNK)]
    scattered = batch > 1 and len(counts) > 1
    pieces = row_ops.split_apart(tape, hidden, [batch * count * head.output.in_features for count in counts])
    logits = []
    for piece in pieces:
        flat = ops.copy(tape, piece) if scattered else piece
        logits.append(_capped(tape, head, linear(block, "lm_head", flat)))
    del pieces, piece, flat
    hidden.release()  # the model has returned
    logits = [ops.cast(tape, piece, FP32) for piece in logits]
    before.release()
    logits[-1] = ops.part(tape, logits[-1], batch * (counts[-1] - 1) * head.output.out_features)
    rows = list(logits)
    if batch > 1:
        rows[-1] = ops.copy(tape, rows[-1])
    losses = [cross_entropy(tape, piece) for piece in rows]
    del rows
    return _sum(tape, losses), [detached(piece) for piece in logits]


def _whole(block: Block, head: Head, hidden: Value, before: Value) -> tuple[Value, list[Value]]:
    tape, batch, vocabulary = block.tape, block.batch, head.output.out_features
    logits = _capped(tape, head, linear(block, "lm_head", hidden))
    hidden.release()
    logits = ops.cast(tape, logits, FP32)
    before.release()
    total = batch * (block.seq - 1)
    rows = ops.part(tape, logits, total * vocabulary)
    if batch > 1:
        rows = ops.copy(tape, rows)
    starts = range(0, total, _CHUNK) or (0,)  # one token has no target: an empty piece
    sizes = [min(_CHUNK, total - start) * vocabulary for start in starts]
    losses = [cross_entropy(tape, piece) for piece in row_ops.split_apart(tape, rows, sizes)]
    del rows
    return _sum(tape, losses), [detached(logits)]


def _capped(tape: Tape, head: Head, logits: Value) -> Value:
    return softcapped(tape, logits) if head.softcap else logits


def _sum(tape: Tape, losses: list[Value]) -> Value:
    """`torch.cat(losses).sum()`."""
    total = ops.cat(tape, losses)
    return tape.record(tape.new(1, FP32), (total,), lambda grad: (tape.new(len(losses), FP32),))
