"""One training step on the tape: embedding, layers, head and loss, and back, as a list of peaks by phase.

A checkpointed segment keeps its input alone; in backward its forward is run again with its graph, beside that input.
The phases are those that can hold the peak: the forward, the loss (its forward end and its backward), the backward of
the layers, and the optimizer's step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from planner.model.model import Model
from planner.training.recipe import Recipe, kernels
from planner.training.sharding.sharding import accelerate_upcasts, data_ranks, holds_backward
from planner.training.states.inventory import Inventory, TrainTensor
from planner.training.states.states import adapter_tensors
from planner.training.step.segments import Segments, gradients_wait
from planner.training.tape.profiles import Profile, Trace, without_graph

__all__ = ["Phase", "StepMemory", "gradients_wait", "step_memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What a phase of the step adds at its peak to the states, in bytes."""

    name: str
    activation_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """The step's activations.

    Args:
        phases: peaks above the states, gradients included.
        forward_end_bytes: what is alive when the loss is known: saved tensors, shared tables, kept logits.
        saved_bytes: what forward leaves for backward at its end, without the logits.
        layer_bytes: what one layer keeps (the largest), without checkpointing.
        logits_bytes: peak of the head above what the layers keep.
        gradient_bytes: gradients alive at the end of backward.
        layers, head: what each asks of the allocator.
        stream_bytes, shared_bytes: the residual stream; tables and masks.
    """

    phases: tuple[Phase, ...]
    saved_bytes: int
    layer_bytes: int
    logits_bytes: int
    gradient_bytes: int
    stream_width: int
    forward_end_bytes: int = 0
    host_bytes: int = 0
    layers: tuple[Trace, ...] = ()
    head: Trace | None = None
    stream_bytes: int = 0
    shared_bytes: int = 0
    embedding_gradient_bytes: int = 0
    reentrant: bool = False
    vocabulary: int = 0

    def peak(self) -> Phase:
        """The phase with the most."""
        return max(self.phases, key=lambda phase: phase.activation_bytes)


def step_memory(model: Model, found: Inventory, recipe: Recipe, *, exact_sizes: bool = False) -> StepMemory:
    """Activations and gradients of one micro-batch, by phase.

    Args:
        exact_sizes: tensors count their own bytes, not what the allocator rounds them to; CPU kernels.
    """
    return _Step(model, found, recipe, exact_sizes=exact_sizes).run()


class _Step(Segments):
    """Walks the segments forwards and backwards."""

    def run(self) -> StepMemory:
        """Peaks by phase."""
        recipe = self.recipe
        if recipe.method == "inference":
            return self._forward_only()
        trained_embedding = any(t.trainable or t.saved_copy for t in self.found.embeddings) or (
            recipe.method == "prompt" and self.found.first
        )
        below = trained_embedding or self.input_is_leaf or not self.found.first
        encoder = self.encoder_profiles(below)
        profiles = [*encoder, *self.layer_profiles(below)]
        head = self.head_profile(self.trains_below_head) if self.found.last else None
        mask = self.embedding_mask_bytes(below)
        return self._walk(profiles, head, trained_embedding, mask)

    def _gradient_shares(self, segments: int) -> list[int]:
        """What each layer's gradients leave on this rank when they are divided as they are made, top layer first."""
        if self.recipe.sharding not in ("zero2", "zero3", "fsdp", "fsdp2", "hsdp") or gradients_wait(self.recipe):
            return [0] * segments
        ranks, upcast = data_ranks(self.recipe), accelerate_upcasts(self.recipe)
        by_index: dict[int, int] = {}
        for group in self.found.layers:
            size = sum(_gradient_bytes(t, upcast=upcast) for t in group.tensors) // ranks
            by_index.update(dict.fromkeys(group.indices, size))
        every = -(-len(by_index) // segments)
        ordered = [by_index[index] for index in sorted(by_index, reverse=True)]
        return [sum(ordered[at : at + every]) for at in range(0, len(ordered), every)] + [0] * segments

    def _walk(self, profiles: list[Profile], head: Profile | None, trained_embedding: bool, mask: int) -> StepMemory:
        shares = self._gradient_shares(len(profiles))
        tape = self.tape()
        stream = tape.rounding(self.stream_numel * self.width)
        # Checkpointed inputs that go to host memory leave the card once the layer has run; two are under way.
        offloaded = stream if self.recipe.activation_offload and self.recipe.gradient_checkpointing else 0
        pictures, again, merge = self.tower_bytes()
        pictures += self.source_bytes + self.convolved_bytes + self.bias_bytes()
        live = pictures + stream + self.shared_bytes() + 2 * offloaded + self.embedding_bytes(stream) + mask
        start = live
        forward_peak = live + merge
        for one in profiles:
            forward_peak = max(forward_peak, live + one.forward_peak)
            live += one.forward_left - offloaded
        saved = live - stream
        waiting = (self._in_flight() - 1) * max(0, live - start)
        live += waiting
        forward_peak += waiting
        ends = profiles if head is None else [*profiles, head]
        graph = sum(one.attribute_bytes for one in ends) if self.keeps_earlier_step else 0
        phases = [Phase(name="forward", activation_bytes=forward_peak + self.earlier_logits_bytes() + graph)]
        if head is not None:
            phases.append(Phase(name="loss forward", activation_bytes=live + head.forward_peak + graph))
            live += head.forward_left
        forward_end = live
        live -= sum(one.cast_bytes_released for one in ends)
        if head is not None:
            phases.append(Phase(name="loss backward", activation_bytes=live + head.backward_peak))
            live += head.backward_left + self._pending_bytes(trained_embedding)
        backward_peak = live
        live += self.source_bytes if self.source_needs_grad else 0  # its gradient, which all decoder layers add to
        held = stream if holds_backward(self.recipe) else 0
        units = self.reduces_units
        for position, one in enumerate(reversed(profiles)):
            live += offloaded
            backward_peak = max(backward_peak, live + one.backward_peak)
            live += one.backward_left
            if units:
                backward_peak = max(backward_peak, live + one.unit_bytes)
                live -= one.unit_bytes
            live += shares[position] + held * (2 if position else 1)  # the gradient of its input is still in use
        backward_peak = max(backward_peak, live + again)
        gradients = sum(one.gradient_bytes for one in ends)
        made_for_embedding = 0
        if trained_embedding:
            matrix = self.found.embedding
            assert matrix is not None
            size = tape.rounding(matrix.numel * matrix.width)
            # A tied matrix gets two gradients. The output matrix's comes first and is a transposed view, which autograd
            # does not add to in place: the sum is a third tensor (torch 2.13 memory profiler, input_buffer.cpp). Those
            # of chunks have been summed by then, and a sum is added to.
            summed = _sums_chunks(self.recipe)
            made = size * (2 if self.spec.tie_word_embeddings and not summed else 1)
            joined = size + (head.gradient_bytes if head is not None else 0) if units else 0
            backward_peak = max(backward_peak, live + made + joined)
            made_for_embedding = size
            if not self.spec.tie_word_embeddings:
                gradients += size
        phases.append(Phase(name="backward of the layers", activation_bytes=backward_peak))
        return StepMemory(
            phases=tuple(phases),
            saved_bytes=saved,
            layer_bytes=max((one.forward_left for one in profiles), default=0),
            logits_bytes=max(head.forward_peak, head.backward_peak) if head is not None else 0,
            gradient_bytes=gradients,
            stream_width=self.width,
            forward_end_bytes=forward_end,
            host_bytes=offloaded * len(profiles),
            layers=tuple(one.trace for one in profiles),
            head=None if head is None else head.trace,
            stream_bytes=self.stream_numel * self.width,
            shared_bytes=self.shared_bytes() + pictures,
            embedding_gradient_bytes=made_for_embedding,
            reentrant=self.kernels.reentrant,
            vocabulary=self.spec.vocab_size if self.recipe.has_logits else self.recipe.scores,
        )

    def _pending_bytes(self, trained_embedding: bool) -> int:
        """The output matrix's gradient where it is the embedding's too: it waits for the other until backward ends.

        Source: torch 2.13 autograd engine: AccumulateGrad runs once, when all gradients of a leaf have arrived. Where
        gradients are kept, the same bytes are counted with them.
        """
        if self.keep_gradients or not (trained_embedding and self.spec.tie_word_embeddings):
            return 0
        if self.recipe.sharding in ("zero2", "zero3", "fsdp", "fsdp2", "hsdp"):
            return 0  # reduced with its unit
        matrix = self.found.embedding
        assert matrix is not None
        return self.tape().rounding(matrix.numel * matrix.width)

    def _in_flight(self) -> int:
        """Micro-batches whose saved tensors one pipeline stage holds (1F1B): one for every stage from here on."""
        below = self.recipe.pipeline_parallel_size - self.found.stage
        return min(self.recipe.gradient_accumulation_steps, below)

    def _forward_only(self) -> StepMemory:
        """One forward without a graph: the cache of every layer, one layer's tensors, the logits in 16 bit."""
        recipe, spec, tape = self.recipe, self.spec, self.tape()
        numel = self.tokens * spec.hidden_size
        stream = tape.rounding(numel * self.width)
        live = stream + self.shared_bytes()
        peak = live
        for group in self.found.layers:
            kept = 0
            if recipe.use_cache:
                kept = sum(self.tokens * cached_elements(mixer) * self.width for mixer in group.layer.mixers)
            above = without_graph(self.tape, self.forward_of(group), numel=numel, width=self.width).peak
            live += kept * len(group.indices)
            peak = max(peak, live + above)
        saved = live - stream
        logits = tape.rounding((recipe.logits_to_keep or self.seq) * self.batch * spec.vocab_size * self.width)
        phases = (Phase(name="forward", activation_bytes=peak), Phase(name="logits", activation_bytes=live + logits))
        return StepMemory(
            phases=phases,
            saved_bytes=saved,
            layer_bytes=0,
            logits_bytes=logits,
            gradient_bytes=0,
            stream_width=self.width,
        )


def _sums_chunks(recipe: Recipe) -> bool:
    """The output matrix is used once for each chunk of tokens, so that its gradient is a sum."""
    return recipe.loss == "chunked" and kernels(recipe).get("chunking") == "torchtune"


def cached_elements(mixer: object) -> int:
    """Elements of keys and values that a mixer caches for one token."""
    return int(getattr(mixer, "key_size", 0)) + int(getattr(mixer, "value_size", 0))


def _gradient_bytes(tensor: TrainTensor, *, upcast: bool) -> int:
    """Gradients of a tensor or of its adapter, whole."""
    own = tensor.numel * (4 if upcast else tensor.width) if tensor.trainable else 0
    return own + sum(prod(shape) * width for _, shape, width in adapter_tensors(tensor))
