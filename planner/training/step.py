"""One training step on the tape: embedding, layers, head and loss, and back, as a list of peaks by phase.

A checkpointed segment keeps its input alone; in backward its forward is run again with its graph, beside that input.
The phases are those that can hold the peak: the forward, the loss (its forward end and its backward), the backward of
the layers, and the optimizer's step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.model.model import Model
from planner.model.spec import ModelSpec
from planner.model.tensor import Norm, Role
from planner.training import ops
from planner.training.allocator import segment_share
from planner.training.blocks.block import Block, Kernels, Weight
from planner.training.blocks.layer import local_layer, run_layer
from planner.training.habits import has_habit
from planner.training.loss import Head, run_head
from planner.training.profiles import Profile, checkpointed, profile, without_graph
from planner.training.recipe import AUTOCASTS, Recipe, kernels
from planner.training.sharding import data_ranks, holds_backward
from planner.training.tape import Tape, Value
from planner.training.trainable import Inventory, LayerGroup, TrainTensor


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
    """

    phases: tuple[Phase, ...]
    saved_bytes: int
    layer_bytes: int
    logits_bytes: int
    gradient_bytes: int
    stream_width: int
    forward_end_bytes: int = 0
    host_bytes: int = 0

    def peak(self) -> Phase:
        """The phase with the most."""
        return max(self.phases, key=lambda phase: phase.activation_bytes)


def step_memory(model: Model, found: Inventory, recipe: Recipe, *, exact_sizes: bool = False) -> StepMemory:
    """Activations and gradients of one micro-batch, by phase.

    Args:
        exact_sizes: tensors count their own bytes, not what the allocator rounds them to; CPU kernels.
    """
    return _Step(model, found, recipe, exact_sizes=exact_sizes).run()


class _Step:
    def __init__(self, model: Model, found: Inventory, recipe: Recipe, *, exact_sizes: bool) -> None:
        self.model, self.found, self.recipe, self.exact = model, found, recipe, exact_sizes
        self.spec = model.spec
        self.own = kernels(recipe)
        self.autocast = AUTOCASTS[recipe.autocast or "none"]
        self.width = self._stream_width()
        self.seq = -(-recipe.max_seq_length // recipe.context_parallel_size)
        self.batch = recipe.sequences
        self.tokens = self.seq * self.batch
        self.kernels = self._kernels()
        self.trains_below_head = False

    def tape(self) -> Tape:
        rounding: Callable[[int], int] = (lambda size: size) if self.exact else segment_share
        return Tape(rounding=rounding, autocast=self.autocast, cuda=not self.exact)

    def _stream_width(self) -> int:
        """Bytes of an element of the embedding's output."""
        tensors = (*self.found.embeddings, *self.found.head, *self.found.layers[0].tensors)
        return next((t.width for t in tensors if t.tensor.role in (Role.EMBEDDING, Role.NORM)), 2)

    def _kernels(self) -> Kernels:
        recipe, own = self.recipe, self.own
        attention = recipe.attn_implementation or "sdpa"
        return Kernels(
            attention=attention,
            masked=bool(recipe.padding),
            norm=str(own.get("norm", "hf")),
            mlp=str(own.get("mlp", "hf")),
            rope=str(own.get("rope", "hf")),
            expand_keys=bool(own.get("expand_keys", False)),
            reentrant=bool(own.get("reentrant", False)),
            own_modules=bool(own.get("own_modules", False)),
            joined_projections=bool(own.get("joined_projections", False)),
        )

    def block(self, tape: Tape, tensors: tuple[TrainTensor, ...]) -> Block:
        weights = {t.tensor.name: _weight(t) for t in tensors}
        return Block(
            tape=tape, batch=self.batch, seq=self.seq, hidden_size=self.spec.hidden_size, weights=weights,
            kernels=self.kernels, mask_width=self.width if self.kernels.attention == "eager" else 0,
            position_width=self.width, model_type=self.spec.model_type,
            sequence_ways=self.recipe.tensor_parallel_size if self.recipe.sequence_parallel else 1,
        )  # fmt: skip

    @property
    def stream_numel(self) -> int:
        """Elements of the residual stream that one rank holds."""
        ways = self.recipe.tensor_parallel_size if self.recipe.sequence_parallel else 1
        return self.tokens // ways * self.spec.hidden_size

    def _profiles(self, below: bool) -> list[Profile]:
        """Every segment's profile, bottom first: a layer, or the layers under one checkpoint."""
        checkpoints, every = bool(self.recipe.gradient_checkpointing), self.recipe.checkpoint_every
        by_index: dict[int, LayerGroup] = {}
        for group in self.found.layers:
            by_index.update(dict.fromkeys(group.indices, group))
        indices = sorted(by_index)
        memo: dict[tuple[int, bool], Profile] = {}
        plain: dict[int, tuple[int, int]] = {}
        inside: list[Profile] = []
        forwards: list[tuple[int, int]] = []
        for index in indices:
            group = by_index[index]
            first_of_segment = checkpoints and len(inside) % every == 0
            key = (id(group), below or (first_of_segment and self.recipe.adapters))
            if key not in memo:
                memo[key] = self.layer_profile(group, below=key[1], keep_input=checkpoints)
            inside.append(memo[key])
            if checkpoints and id(group) not in plain:
                plain[id(group)] = without_graph(self.tape, self._forward(group), numel=self.stream_numel,
                                                 width=self.width)  # fmt: skip
            if checkpoints:
                forwards.append(plain[id(group)])
            below = below or any(t.trainable or t.adapter for t in group.tensors)
        self.trains_below_head = below
        if not checkpoints:
            return inside
        size = self.tape().rounding(self.stream_numel * self.width)
        return [
            checkpointed(inside[at : at + every], forwards[at : at + every], stream_bytes=size,
                         reentrant=self.kernels.reentrant)
            for at in range(0, len(inside), every)
        ]  # fmt: skip

    def _forward(self, group: LayerGroup) -> Callable[[Tape, Value], tuple[Value, list[Value]]]:
        layer = local_layer(group.layer, self.recipe.tensor_parallel_size)

        def forward(tape: Tape, x: Value) -> tuple[Value, list[Value]]:
            return run_layer(self.block(tape, group.tensors), layer, x), []

        return forward

    def layer_profile(self, group: LayerGroup, *, below: bool, keep_input: bool) -> Profile:
        """The profile of a layer; `below`: something under it is trained."""
        return profile(
            self.tape, self._forward(group), numel=self.stream_numel, width=self.width, needs_grad=below,
            keep_input=keep_input, keep_gradients=self.keep_gradients,
        )  # fmt: skip

    @property
    def keep_gradients(self) -> bool:
        """Parameters keep the gradients that this micro-batch makes."""
        shared = self.recipe.sharding in ("zero2", "zero3", "fsdp", "fsdp2", "hsdp")
        return not (self.recipe.optimizer_in_backward or gradients_wait(self.recipe) or shared)

    def run(self) -> StepMemory:
        recipe = self.recipe
        if recipe.method == "inference":
            return self._forward_only()
        trained_embedding = any(t.trainable or t.saved_copy for t in self.found.embeddings) or recipe.method == "prompt"
        below = trained_embedding or bool(recipe.gradient_checkpointing and recipe.adapters) or not self.found.first
        profiles = self._profiles(below)
        head = self.head_profile(self.trains_below_head) if self.found.last else None
        return self._walk(profiles, head, trained_embedding)

    def head_profile(self, below: bool) -> Profile:
        """The final norm, the output matrix and the loss."""
        tensors = self.found.head
        output = next((t for t in tensors if t.tensor.role is Role.LM_HEAD), None)
        if output is None:
            tied = (*self.found.embeddings, *self.found.head)
            output = next(t for t in tied if t.tensor.role is Role.EMBEDDING)
        weight = replace(_weight(output), adapter=None)
        recipe, own = self.recipe, self.own
        head = Head(
            norm=final_norm(self.spec), output=weight, loss=recipe.loss or "hf",
            chunking=str(own.get("chunking", "trl")), upcast=str(own.get("upcast", "loss")),
            shifted_copy=bool(own.get("shifted_copy", False)), keep_outputs=bool(recipe.keep_outputs),
            in_place_converts=bool(own.get("in_place_converts", True)), compiled=bool(own.get("compiled", False)),
            kept_tokens=(recipe.logits_to_keep or 0) * self.batch,
            softcap=has_habit(self.spec.model_type, "softcapped_logits"),
            scaled=has_habit(self.spec.model_type, "scaled_logits"),
        )  # fmt: skip

        def forward(tape: Tape, x: Value) -> tuple[Value, list[Value]]:
            block = self.block(tape, tuple(t for t in tensors if t is not output))
            block.weights = {**block.weights, "lm_head.weight": weight}
            ways = block.sequence_ways
            return run_head(block, head, ops.collect(tape, x, ways))

        return profile(
            self.tape, forward, numel=self.stream_numel, width=self.width, needs_grad=below,
            keep_gradients=self.keep_gradients,
        )  # fmt: skip

    def _gradient_shares(self, segments: int) -> list[int]:
        """What each layer's gradients leave on this rank when they are divided as they are made, top layer first."""
        if self.recipe.sharding not in ("zero2", "zero3", "fsdp", "fsdp2", "hsdp") or gradients_wait(self.recipe):
            return [0] * segments
        ranks = data_ranks(self.recipe)
        by_index: dict[int, int] = {}
        for group in self.found.layers:
            size = sum(t.numel * t.width for t in group.tensors if t.trainable) // ranks
            by_index.update(dict.fromkeys(group.indices, size))
        every = -(-len(by_index) // segments)
        ordered = [by_index[index] for index in sorted(by_index, reverse=True)]
        return [sum(ordered[at : at + every]) for at in range(0, len(ordered), every)] + [0] * segments

    def _walk(self, profiles: list[Profile], head: Profile | None, trained_embedding: bool) -> StepMemory:
        shares = self._gradient_shares(len(profiles))
        tape = self.tape()
        stream = tape.rounding(self.stream_numel * self.width)
        # Checkpointed inputs that go to host memory leave the card once the layer has run; two are under way.
        offloaded = stream if self.recipe.activation_offload and self.recipe.gradient_checkpointing else 0
        live = stream + self._shared_bytes() + 2 * offloaded + self._embedding_bytes(stream)
        start = live
        forward_peak = live
        for one in profiles:
            forward_peak = max(forward_peak, live + one.forward_peak)
            live += one.forward_left - offloaded
        saved = live - stream
        waiting = (self._in_flight() - 1) * max(0, live - start)
        live += waiting
        forward_peak += waiting
        phases = [Phase(name="forward", activation_bytes=forward_peak)]
        if head is not None:
            phases.append(Phase(name="loss forward", activation_bytes=live + head.forward_peak))
            live += head.forward_left
        forward_end = live
        ends = profiles if head is None else [*profiles, head]
        live -= sum(one.cast_bytes_released for one in ends)
        if head is not None:
            phases.append(Phase(name="loss backward", activation_bytes=live + head.backward_peak))
            live += head.backward_left
        backward_peak = live
        held = 2 * stream if holds_backward(self.recipe) else 0
        for position, one in enumerate(reversed(profiles)):
            live += offloaded
            backward_peak = max(backward_peak, live + one.backward_peak)
            live += one.backward_left + shares[position] + (held if position else 0)
        gradients = sum(one.gradient_bytes for one in ends)
        if trained_embedding:
            matrix = next(t for t in self.found.embeddings if t.tensor.role is Role.EMBEDDING)
            size = tape.rounding(matrix.numel * matrix.width)
            backward_peak = max(backward_peak, live + size)
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
        )

    def _in_flight(self) -> int:
        """Micro-batches whose saved tensors one pipeline stage holds (1F1B): all stages' worth on the first."""
        if not self.found.first or self.recipe.pipeline_parallel_size == 1:
            return 1
        return min(self.recipe.gradient_accumulation_steps, self.recipe.pipeline_parallel_size)

    def _embedding_bytes(self, stream: int) -> int:
        """The embedding's output, where checkpointing made it a leaf and the layers start from something else."""
        recipe, spec = self.recipe, self.spec
        moved = any(t.tensor.role is Role.POSITION for t in self.found.embeddings)
        moved = moved or has_habit(spec.model_type, "scaled_embedding")
        return stream if moved and recipe.adapters and recipe.gradient_checkpointing else 0

    def _forward_only(self) -> StepMemory:
        """One forward without a graph: the cache of every layer, one layer's tensors, the logits in 16 bit."""
        recipe, spec, tape = self.recipe, self.spec, self.tape()
        numel = self.tokens * spec.hidden_size
        stream = tape.rounding(numel * self.width)
        live = stream + self._shared_bytes()
        peak = live
        for group in self.found.layers:
            kept = 0
            if recipe.use_cache:
                kept = sum(self.tokens * cached_elements(mixer) * self.width for mixer in group.layer.mixers)
            above, _ = without_graph(self.tape, self._forward(group), numel=numel, width=self.width)
            live += kept * len(group.indices)
            peak = max(peak, live + above)
        saved = live - stream
        logits = tape.rounding((recipe.logits_to_keep or self.seq) * self.batch * spec.vocab_size * self.width)
        phases = (Phase(name="forward", activation_bytes=peak), Phase(name="logits", activation_bytes=live + logits))
        return StepMemory(
            phases=phases, saved_bytes=saved, layer_bytes=0, logits_bytes=logits, gradient_bytes=0,
            stream_width=self.width,
        )  # fmt: skip

    def _shared_bytes(self) -> int:
        """Rotary tables, token ids, labels and the mask, which all layers share."""
        tape = self.tape()
        size = 3 * tape.rounding(self.tokens * 8)
        rotary = max((getattr(m, "rotary_dim", 0) for layer in self.spec.layers for m in layer.mixers), default=0)
        size += 2 * tape.rounding(self.seq * rotary * self.width)
        if self.kernels.attention == "eager":
            size += tape.rounding(self.batch * self.seq * self.seq * self.width)
        return size


def gradients_wait(recipe: Recipe) -> bool:
    """The gradients of an earlier micro-batch or step are alive while this one runs."""
    # 16-bit weights under autocast are what a Trainer makes, and Trainers set gradients to None.
    trainer = recipe.autocast != "none" and recipe.dtype != "float32"
    kept = bool(kernels(recipe).get("gradients_kept", False)) and not trainer
    return recipe.method != "inference" and (recipe.gradient_accumulation_steps > 1 or kept)


def cached_elements(mixer: object) -> int:
    """Elements of keys and values that a mixer caches for one token."""
    return int(getattr(mixer, "key_size", 0)) + int(getattr(mixer, "value_size", 0))


def final_norm(spec: ModelSpec) -> Norm | None:
    """The norm before the output matrix, read off the head's tensors."""
    named = [t for t in spec.head if t.role is Role.NORM and t.name.endswith(".weight")]
    if not named:
        return None
    like = next((n for layer in spec.layers for n in layer.norms), None)
    kind = like.kind if like else "rms"
    name = named[-1].name.removesuffix(".weight")
    return Norm(name, named[-1].shape[0], kind, bias=any(t.name == f"{name}.bias" for t in spec.head))


def _weight(found: TrainTensor) -> Weight:
    shape = found.shape
    out_features, in_features = (shape[0], shape[1]) if len(shape) > 1 else (shape[0], 1)
    if len(shape) == 2 and found.tensor.input_dim == 0:
        out_features, in_features = in_features, out_features
    if len(shape) > 2:
        out_features, in_features = found.numel // shape[-1], shape[-1]
    return Weight(
        out_features=out_features, in_features=in_features, width=found.width,
        trainable=found.trainable or found.saved_copy, storage=found.storage, adapter=found.adapter,
    )  # fmt: skip
