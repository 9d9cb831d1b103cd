"""A loaded model: its spec, its name, and what plans ask of it again and again, computed once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from planner.model.caches import CacheLayer, CompressedCache, IndexerCache, KeyValueCache, LatentCache, StateCache
from planner.model.heads import Task, published_for_embedding, task_of
from planner.model.sources.stored import StoredTensor
from planner.model.spec import ModelSpec
from planner.model.tensors import active_parameters, parameters

if TYPE_CHECKING:
    from planner.model.sources.adapter import Adapter


@dataclass(eq=False, kw_only=True)
class Model:
    """A model that can be planned for.

    Args:
        id: the name it was asked for by, or its Hub id.
        spec: what it is.
        origin: where the config came from, in a few words.
        base: the bundled model that it rests on, when it was found by the rules of names; "" otherwise.
        confidence: how sure a bundled config's facts are ("verbatim", "reconstructed-exact", ...); "" otherwise.
        adapter: the LoRA adapter whose folder was given; the model is its base.
        stored_bytes: weight bytes of the files it was read from, when they were.
        stored: every tensor of those files, when their headers were read.
        stretched: tokens of the longest request after rope scaling, where that is more than the spec's positions.
        notes: what reading it brought up.
        memo: results that depend on the model and a few inputs, kept by the modules that compute them.
    """

    id: str
    spec: ModelSpec
    origin: str
    confidence: str = ""
    base: str = ""
    adapter: Adapter | None = None
    stored_bytes: int | None = None
    stored: tuple[StoredTensor, ...] = field(default=(), repr=False)
    stretched: int = 0
    notes: tuple[str, ...] = ()
    memo: dict[Hashable, object] = field(default_factory=dict, repr=False)

    @cached_property
    def parameters(self) -> int:
        """Weights of the whole model, a tied matrix counted once, draft layers not counted."""
        return parameters(self.spec)

    @property
    def longest_request(self) -> int:
        """Tokens of the longest request that engines accept for this model."""
        return max(self.stretched, self.spec.max_position_embeddings)

    @cached_property
    def task(self) -> Task:
        """What it is for, by its class, and by its name where the class does not say it."""
        found = task_of(self.spec)
        named = found == "generate" and (published_for_embedding(self.id) or published_for_embedding(self.base))
        return "embed" if named else found

    @cached_property
    def active_parameters(self) -> int:
        """Weights one token's forward uses: routed experts by the share that a token visits."""
        return active_parameters(self.spec)

    @cached_property
    def caches(self) -> tuple[CacheLayer, ...]:
        """The distinct cache layers, in order of first appearance."""
        distinct: dict[CacheLayer, None] = {}
        seen: set[int] = set()
        for layer in self.spec.layers:
            if id(layer) not in seen:
                seen.add(id(layer))
                distinct.update(dict.fromkeys(layer.caches()))
        return tuple(distinct)

    @cached_property
    def has_windows(self) -> bool:
        """Some layer keeps only a window."""
        return any(isinstance(cache, KeyValueCache) and cache.sliding_window for cache in self.caches)

    @cached_property
    def has_chunked_cache(self) -> bool:
        """Some layer keeps only a chunk."""
        return any(isinstance(cache, KeyValueCache) and cache.attention_chunk_size for cache in self.caches)

    @cached_property
    def has_latent_cache(self) -> bool:
        """Some layer is MLA."""
        return any(isinstance(cache, LatentCache | CompressedCache) for cache in self.caches)

    @cached_property
    def has_sparse_latent_cache(self) -> bool:
        """Some MLA layer has an indexer."""
        return any(isinstance(cache, IndexerCache | CompressedCache) for cache in self.caches)

    @cached_property
    def is_recurrent(self) -> bool:
        """Some layer keeps a recurrent state."""
        return any(isinstance(cache, StateCache) for cache in self.caches)
