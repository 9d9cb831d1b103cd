"""Megatron-core's T5 and BERT from a shape given on the line, with tensor and sequence parallelism: bytes on one GPU.

States: 2 B weights, 4 B gradients, 12 B of the optimizer a parameter (18), or 6 + 12 / ranks with the distributed one.
A layer keeps s b h (10 + 24 / t) with dropout masks, all of it over t with sequence parallelism; attention that takes a
mask keeps 5 a s s b / t of scores (softmax 2, dropped 2, mask 1); cross attention as much again of its own.
Source: Korthikanti et al. (arXiv 2205.05198) equations 1 to 4; Megatron-LM core 0.12 models/T5, models/bert;
megatron/training/theoretical_memory_usage.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from annotated_types import Ge, Le

from planner.contract.inputs import option
from planner.errors import UsageError

_PANEL: Final = "Megatron-core shape (without MODEL)"
_MOST: Final = 1 << 24
_STATES: Final = (6, 12)  # bytes a parameter: weight and gradient; the optimizer's master and moments
_BLOCK: Final = (10, 24)  # bytes a token and hidden element: whole, and divided over tensor-parallel ranks
_CROSS: Final = (5, 11)  # cross attention: its norm, dropout and output; its query, product and output projection
_SCORE: Final = 5  # bytes of a score: softmax, dropped softmax, mask
_LOGIT: Final = 10  # bytes of a logit: 16 bit, fp32, and its softmax
_WORKSPACE: Final = 64 << 20  # cuBLAS' two workspaces on Hopper
_BERT_VOCABULARY: Final = 28_996  # BertWordPieceCase


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronShape:
    """A model's shape under Megatron-LM's argument names."""

    num_layers: Annotated[int, Ge(0), Le(4096), option("Layers of BERT.", panel=_PANEL, ours=True)] = 0
    encoder_num_layers: Annotated[int, Ge(0), Le(4096), option("Of T5's encoder.", panel=_PANEL, ours=True)] = 0
    decoder_num_layers: Annotated[int, Ge(0), Le(4096), option("Of T5's decoder.", panel=_PANEL, ours=True)] = 0
    hidden_size: Annotated[int, Ge(0), Le(_MOST), option("Residual width.", panel=_PANEL, ours=True)] = 0
    ffn_hidden_size: Annotated[
        int | None, Ge(1), Le(_MOST), option("Left out: 4 x hidden.", panel=_PANEL, ours=True)
    ] = None
    num_attention_heads: Annotated[int, Ge(1), Le(4096), option("Heads.", panel=_PANEL, ours=True)] = 1
    kv_channels: Annotated[int | None, Ge(1), Le(4096), option("Width of a head.", panel=_PANEL, ours=True)] = None
    encoder_seq_length: Annotated[int, Ge(1), Le(_MOST), option("Tokens of a source.", panel=_PANEL, ours=True)] = 512
    decoder_seq_length: Annotated[int, Ge(1), Le(_MOST), option("Tokens of a target.", panel=_PANEL, ours=True)] = 128
    max_position_embeddings: Annotated[int, Ge(1), Le(_MOST), option("Positions.", panel=_PANEL, ours=True)] = 512
    vocab_size: Annotated[int, Ge(1), Le(_MOST), option("Before padding.", panel=_PANEL, ours=True)] = _BERT_VOCABULARY
    use_distributed_optimizer: Annotated[bool, option("Its states are divided.", panel=_PANEL, ours=True)] = False

    @property
    def given(self) -> bool:
        """A shape was given."""
        return bool(self.hidden_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronPeak:
    """What one rank holds at its peak, in bytes."""

    parameters: int
    states: int
    activations: int
    scores: int
    logits: int
    workspace: int

    @property
    def allocated_bytes(self) -> int:
        """The sum."""
        return self.states + self.activations + self.scores + self.logits + self.workspace


def megatron_peak(
    shape: MegatronShape, *, batch: int, ways: int, sequence_parallel: bool, ranks: int, seq: int | None = None
) -> MegatronPeak:
    """The peak of one tensor-parallel rank.

    Args:
        batch: micro-batch. ways: tensor-parallel ranks. ranks: data-parallel ones. seq: of BERT (None: the source's).

    Raises:
        UsageError: no layers, or heads that do not divide.
    """
    if shape.num_attention_heads % ways:
        raise UsageError(
            f"--tensor-model-parallel-size {ways} does not divide {shape.num_attention_heads} heads",
            field="tensor_parallel_size",
        )
    encoders = shape.encoder_num_layers or shape.num_layers
    if not encoders:
        raise UsageError("a Megatron shape needs --num-layers (BERT) or --encoder-num-layers (T5)", field="num_layers")
    hidden, wide = shape.hidden_size, shape.ffn_hidden_size or 4 * shape.hidden_size
    heads = shape.num_attention_heads
    source = (seq or shape.encoder_seq_length) * batch
    target = shape.decoder_seq_length * batch if shape.decoder_num_layers else 0
    length, answer = source // batch, target // batch
    parameters, divided = _parameters(shape, encoders, hidden, wide, ways)
    on_rank = divided // ways + parameters - divided
    whole, shared = _STATES
    states = on_rank * whole + on_rank * shared // (ranks if shape.use_distributed_optimizer else 1)

    def kept(each: tuple[int, int]) -> int:
        apart, over = each
        return hidden * (apart + over) // ways if sequence_parallel else hidden * apart + hidden * over // ways

    activations = kept(_BLOCK) * source * encoders
    activations += (kept(_BLOCK) + kept(_CROSS)) * target * shape.decoder_num_layers
    cells = length * length * encoders + (answer * answer + answer * length) * shape.decoder_num_layers
    scores = _SCORE * heads // ways * batch * cells
    logits = _LOGIT * (target or source) * _padded(shape.vocab_size, ways) // ways
    return MegatronPeak(
        parameters=parameters,
        states=states,
        activations=activations,
        scores=scores,
        logits=logits,
        workspace=_WORKSPACE,
    )


def _parameters(shape: MegatronShape, encoders: int, hidden: int, wide: int, ways: int) -> tuple[int, int]:
    """All parameters, and those that tensor parallelism divides."""
    projected = shape.num_attention_heads * (shape.kv_channels or hidden // shape.num_attention_heads)
    attention = 4 * hidden * projected + 3 * projected
    block = attention + 2 * hidden * wide + wide
    layers = encoders + shape.decoder_num_layers
    vocabulary = _padded(shape.vocab_size, ways)
    divided = block * layers + attention * shape.decoder_num_layers + vocabulary * hidden + vocabulary
    norms = (2 * 2 + 2) * hidden * layers + 3 * hidden * shape.decoder_num_layers + 4 * hidden
    return divided + norms + shape.max_position_embeddings * hidden, divided


def _padded(vocabulary: int, ways: int) -> int:
    """Rows after padding to a multiple of 128 on every rank (make_vocab_size_divisible_by)."""
    multiple = 128 * ways
    return -(-vocabulary // multiple) * multiple
