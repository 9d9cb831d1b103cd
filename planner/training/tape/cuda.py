"""What CUDA kernels allocate while they run, beyond inputs, outputs and what is saved; in bytes.

`cuda_temporaries.csv` has every operation of the tape with its kernel's source, and what only the CPU keeps. The
functions here are the entries that are not zero.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

FP32: Final = 4
INDEX: Final = 8  # bytes of an int64
# EmbeddingBackward of so many tokens or fewer is one kernel without sorting (Embedding.cu).
EMBEDDING_UNSORTED: Final = 3072
_BLOCK_Q: Final = 128  # tokens that flash attention's accumulator is rounded to
_SORTED_INDICES: Final = 4  # linear index, its sorted copy, the original order, and a range
_SORT_SCRATCH: Final = 2 * INDEX  # cub's radix sort, keys and values once more


@cache
def temporaries() -> Mapping[str, Mapping[str, str]]:
    """The table, by the tape's name of the operation."""
    text = files("planner.training.tape").joinpath("cuda_temporaries.csv").read_text("utf-8")
    return {row["op"]: row for row in csv.DictReader(text.splitlines())}


def softmax_backward_bytes(elements: int, grad_width: int) -> int:
    """`grad * output`, made before the kernel (ATen/native/cuda/SoftMax.cu softmax_backward_cuda_out)."""
    return elements * grad_width


def flash_backward_bytes(tokens: int, heads: int, head_dim: int, key_heads: int, *, width: int = 2) -> int:
    """dq in fp32, a row sum in fp32, and with grouped heads dk and dv at all heads before they are summed.

    Source: flash_attn csrc/flash_attn/flash_api.cpp mha_bwd: dq_accum, softmax_d, dk_expanded.
    """
    rounded = -(-tokens // _BLOCK_Q) * _BLOCK_Q
    size = rounded * heads * (head_dim + 1) * FP32
    return size + (2 * tokens * heads * head_dim * width if key_heads < heads else 0)


def embedding_backward_bytes(tokens: int, hidden_size: int) -> int:
    """Rows of gradients in fp32 for the sorted tokens, and their index arrays; nothing up to 3,072 tokens.

    Source: ATen/native/cuda/EmbeddingBackwardKernel.cu embedding_backward_cuda_kernel: grad_weight_per_segment.
    """
    return 0 if tokens <= EMBEDDING_UNSORTED else tokens * hidden_size * FP32


def masked_scatter_bytes(elements: int) -> int:
    """An int64 prefix sum and a contiguous mask (ATen/native/cuda/IndexKernel.cu launch_masked_scatter_kernel)."""
    return elements * (INDEX + 1)


def index_put_bytes(rows: int) -> int:
    """Sorted indices and the sort's scratch (ATen/native/cuda/Indexing.cu index_put_with_sort_kernel)."""
    return rows * (_SORTED_INDICES * INDEX + _SORT_SCRATCH)


def sdpa_math_bytes(cells: int) -> int:
    """What `_safe_softmax` makes beside scores and result: a comparison and a `where` in fp32, for each score cell.

    Source: ATen/native/transformers/attention.cpp _scaled_dot_product_attention_math; ATen/native/SoftMax.cpp.
    """
    return cells * (1 + FP32)
