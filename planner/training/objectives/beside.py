"""What runs beside the step: an evaluation, contrastive columns, an engine that sleeps, checkpoints that keep products.

Bytes on one GPU. Sources: transformers 5.24 trainer.py evaluation_loop, trainer_pt_utils.py EvalLoopContainer;
sentence-transformers losses/MultipleNegativesRankingLoss.py, CachedMultipleNegativesRankingLoss.py; trl 1.10
trainer/grpo_trainer.py; torchtitan 0.2.2 distributed/activation_checkpoint.py.
"""

from __future__ import annotations

from typing import Final

_PREDICTION: Final = 8  # bytes of an int64


def kept_logits_bytes(samples: int, seq: int, vocabulary: int, width: int = 4) -> int:
    """Logits that an evaluation with compute_metrics keeps until eval_accumulation_steps (None: all of them)."""
    return samples * seq * vocabulary * width


def kept_predictions_bytes(samples: int, seq: int) -> int:
    """The same where preprocess_logits_for_metrics takes the argmax."""
    return samples * seq * _PREDICTION


def rows_with_activations(columns: int, rows: int, mini_batch: int | None = None) -> int:
    """Sequences whose graph is alive: every column's, or one mini-batch's under gradient caching."""
    return columns * rows if mini_batch is None else mini_batch


def engine_bytes(card_bytes: int, share: float, *, asleep: bool) -> int:
    """A colocated engine's share of the whole card; nothing while it sleeps."""
    return 0 if asleep else int(card_bytes * share)


def selective_bytes(
    tokens: int, layers: int, *, hidden_size: int, query_size: int, key_size: int, intermediate_size: int, heads: int
) -> int:
    """A llama block whose checkpoint keeps every second product and the attention: 4h + 4q + 2k + 2f + 4 heads."""
    block = 4 * hidden_size + 4 * query_size + 2 * key_size + 2 * intermediate_size + 4 * heads
    return block * layers * tokens


def encoder_decoder_bytes(
    *, hidden_size: int, intermediate_size: int, heads: int, layers: int, source: int, target: int
) -> tuple[int, int, int]:
    """Whisper's encoder and decoder stacks and the cross keys and values, 16 bit, without dropout, SDPA.

    Source: saved tensors of transformers 5.24 modeling_whisper.py on the CPU, LayerNorm statistics in fp32.
    """
    encoder = 18 * hidden_size + 4 * intermediate_size + 4 * heads + 8
    decoder = 28 * hidden_size + 4 * intermediate_size + 8 * heads + 12
    return encoder * source * layers, decoder * target * layers, 4 * hidden_size * source * layers
