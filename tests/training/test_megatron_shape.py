"""T5 and BERT of Megatron-core from a shape, beside the peaks that its functional tests log (H100, 8 GPUs)."""

from __future__ import annotations

import pytest

from planner.training.stacks.megatron_shape import MegatronShape, megatron_peak
from planner.units import GIB

_T5 = MegatronShape(
    encoder_num_layers=12, decoder_num_layers=12, hidden_size=768, ffn_hidden_size=3072, num_attention_heads=12,
    kv_channels=64, encoder_seq_length=512, decoder_seq_length=128,
)  # fmt: skip
_BERT = MegatronShape(num_layers=24, hidden_size=1024, num_attention_heads=16)


@pytest.mark.parametrize(("shape", "ways", "sequence_parallel", "measured"), [
    (_T5, 1, False, 5.7815), (_T5, 2, False, 3.1453), (_T5, 2, True, 3.012), (_T5, 4, False, 1.7341),
    (_T5, 1, False, 5.7618), (_T5, 2, False, 3.1039), (_T5, 4, False, 1.7056), (_BERT, 4, False, 2.999),
])  # fmt: skip
def test_logged_peaks(shape: MegatronShape, ways: int, sequence_parallel: bool, measured: float) -> None:
    peak = megatron_peak(shape, batch=4, ways=ways, sequence_parallel=sequence_parallel, ranks=8 // ways)
    assert peak.allocated_bytes / GIB == pytest.approx(measured, rel=0.1)


def test_parameters_of_bert_large() -> None:
    """24 x (4 x 1024^2 + 3 x 1024 + 8 x 1024^2 + 4096 + 6 x 1024) + 29056 x 1024 + 29056 + 512 x 1024 + 4096."""
    peak = megatron_peak(_BERT, batch=1, ways=1, sequence_parallel=False, ranks=1)
    layer = 4 * 1024**2 + 3 * 1024 + 8 * 1024**2 + 4096 + 6 * 1024
    assert peak.parameters == 24 * layer + 29_056 * 1024 + 29_056 + 512 * 1024 + 4 * 1024
    assert peak.states == 18 * peak.parameters
