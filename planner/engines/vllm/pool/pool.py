"""The layout of the KV pool as values: layers, groups, blocks, and the two numbers that an engine prints.

page          bytes of one block of one layer
group         layers that share block ids
num_blocks    available // bytes_per_block
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Requests where nothing is kept for one.
NO_END: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The inputs that shape the pool, after defaults.

    Args:
        block_size: tokens of a block.
        max_model_len: longest admitted request, in tokens.
        tokens_in_flight: new tokens that may be scheduled at once; windows keep that many more.
        hybrid_manager: windowed and recurrent layers get groups of their own.
        state_mode: "none", "align" or "all": how prefix caching keeps recurrent states.
        speculative_tokens: proposed tokens, which lengthen recurrent states.
        context_parallel_size: GPUs that share each sequence's cache by position (decode context parallel).
        attention_alignment: smallest unit of tokens that the attention kernel accepts in a hybrid model.
    """

    block_size: int
    max_model_len: int
    tokens_in_flight: int
    hybrid_manager: bool = True
    state_mode: str = "none"
    speculative_tokens: int = 0
    context_parallel_size: int = 1
    attention_alignment: int = 16


@dataclass(frozen=True, slots=True)
class PoolLayer:
    """`count` layers of one cache spec, as the engine sees it.

    Args:
        kind: "full", "sliding", "chunked", "latent", "indexer", "compressed", "state" or "cross".
        page_bytes: bytes of one block of one layer.
        block_size: tokens of that block (for states: between two that are kept).
        window: tokens of the window or chunk, or the source tokens of cross attention.
    """

    kind: str
    count: int
    page_bytes: int
    block_size: int
    window: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share block ids.

    Args:
        layer: a layer of the group, which says how many blocks a request takes.
        layers: how many layers it has.
        page_bytes: its pages together, where groups of different size share one block (0: all are alike).
    """

    layer: PoolLayer
    layers: int
    page_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The layout of the KV pool, before its size is known.

    Args:
        groups: what each block id can belong to.
        bytes_per_block: bytes that one block id takes over all tensors.
        padding_layers: layers that exist only to fill a group.
        block_size: tokens of the smallest block.
        tokens_line: rule of the printed token count.
        reserves_null_block: the capacity check leaves one block out.
        needed_block_bytes: what the capacity check counts for a block, where that is not bytes_per_block.
        per_layer_check: the capacity check adds up layers, without the padding of groups (up to 0.13).
        weighted: a request's blocks are counted in pages of the first group, by the groups' bytes.
        whole_blocks: a block id holds its tokens in every layer, whatever the layer is (V0).
    """

    groups: tuple[Group, ...]
    bytes_per_block: int
    padding_layers: int
    block_size: int
    options: PoolOptions
    tokens_line: str
    reserves_null_block: bool = False
    needed_block_bytes: int | None = None
    per_layer_check: bool = False
    weighted: bool = False
    whole_blocks: bool = False

    def blocks_for(self, length: int) -> int:
        """Blocks that one request of `length` tokens is counted as, over all groups, in the printed concurrency."""
        if self.weighted:
            pages = sum(blocks_needed(group.layer, length, self.options) * group.page_bytes for group in self.groups)
            return ceil_div(pages, self.groups[0].page_bytes)
        return self._block_ids(length)

    def _block_ids(self, length: int) -> int:
        return sum(blocks_needed(group.layer, length, self.options) for group in self.groups)

    def num_blocks(self, available_bytes: int) -> int:
        """Blocks that fit in this many bytes."""
        if not self.groups:
            return 1
        return max(available_bytes, 0) // self.bytes_per_block

    def requests(self, num_blocks: int, length: int) -> int:
        """Whole requests of `length` tokens in so many blocks; no end of them where nothing is kept."""
        needed = self.blocks_for(length)
        return num_blocks // needed if needed else NO_END

    def needed_bytes(self, length: int) -> int:
        """Bytes one request of `length` tokens reserves, as the capacity check counts them."""
        if self.per_layer_check:
            return sum(
                blocks_needed(group.layer, length, self.options) * group.layer.page_bytes * group.layers
                for group in self.groups
            )
        return self._block_ids(length) * (self.needed_block_bytes or self.bytes_per_block)

    def max_concurrency(self, num_blocks: int, length: int | None = None) -> float:
        """Requests of `length` tokens (default max_model_len) that the pool holds, as the engine prints it."""
        needed = self.blocks_for(length or self.options.max_model_len)
        return num_blocks / needed if needed else 0.0

    def tokens(self, num_blocks: int) -> int:
        """The printed "GPU KV cache size", by the rule of this version."""
        if not self.groups:
            return 0
        if self.tokens_line == "concurrency":
            return int(self.max_concurrency(num_blocks) * self.options.max_model_len)
        tables = 1 if self.whole_blocks else len(self.groups)
        return num_blocks // tables * self.block_size * self.options.context_parallel_size

    def longest_length(self, available_bytes: int, *, requests: int = 1, ceiling: int = 1 << 24) -> int:
        """The longest request of which `requests` fit in this many bytes; 0 if none does."""
        low, high = 0, ceiling
        while low < high:
            middle = (low + high + 1) // 2
            if self.needed_bytes(middle) * requests <= available_bytes:
                low = middle
            else:
                high = middle - 1
        return low


def blocks_needed(layer: PoolLayer, length: int, options: PoolOptions) -> int:
    """Blocks one request of `length` tokens takes in one group (kv_cache_interface.py max_memory_usage_bytes)."""
    if layer.kind == "state":
        if options.state_mode == "all":
            return ceil_div(length, layer.block_size)
        return (2 if options.state_mode == "align" else 1) + options.speculative_tokens
    size = layer.block_size
    if layer.kind == "sliding":
        return ceil_div(min(layer.window - 1 + options.tokens_in_flight, length), size) + 1
    if layer.kind == "chunked":
        return ceil_div(min(layer.window + options.tokens_in_flight, length), size)
    if layer.kind == "cross":
        return ceil_div(layer.window, size)
    return ceil_div(ceil_div(length, options.context_parallel_size), size)


def ceil_div(amount: int, unit: int) -> int:
    """Whole units that cover the amount."""
    return -(-amount // unit)
