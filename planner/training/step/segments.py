"""The segments of a model on the tape: its layers, its head, and what all of them share, under one recipe."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Final

from planner.errors import UnsupportedArchitecture, UsageError
from planner.model.dropout import NO_DROPOUT
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp
from planner.model.model import Model
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import Norm, Role
from planner.training.allocator.allocator import segment_share
from planner.training.blocks import torchtune
from planner.training.blocks.block import Block, Kernels, Weight
from planner.training.blocks.layer import local_layer, run_layer
from planner.training.objectives.beside import selective_bytes
from planner.training.objectives.logprobs import log_probs
from planner.training.recipe import AUTOCASTS, Recipe, kernels, version_of
from planner.training.sharding.sharding import FSDP
from planner.training.stacks.habits import has_habit
from planner.training.states.inventory import Inventory, LayerGroup, TrainTensor
from planner.training.step.litgpt_loss import run_litgpt_head
from planner.training.step.loss import Head, run_head
from planner.training.step.source import convolution_bytes, source_tokens, source_value
from planner.training.tape import row_ops
from planner.training.tape.cuda import masked_scatter_bytes
from planner.training.tape.profiles import Plain, Profile, checkpointed, profile, without_graph
from planner.training.tape.tape import Tape, Value
from planner.training.vision.images import picture, read_size
from planner.training.vision.towers import Place, Tower, known_tower

_TAPED_PATCHES: Final = 1024
_PIXELS: Final = 3 * 2 * 14 * 14  # values of a patch that a processor hands over in fp32 (two frames of 14 x 14)


class Segments:
    """Makes tapes and profiles for one model, recipe and pipeline stage."""

    def __init__(self, model: Model, found: Inventory, recipe: Recipe, *, exact_sizes: bool) -> None:
        self.model, self.found, self.recipe, self.exact = model, found, recipe, exact_sizes
        self.own = kernels(recipe)
        tied = recipe.has_logits and model.spec.tie_word_embeddings and not self.own.get("untied")
        self.spec = replace(model.spec, tie_word_embeddings=tied)
        self.autocast = AUTOCASTS[recipe.autocast or "none"]
        self.width = self._stream_width()
        self.seq = -(-recipe.max_seq_length // recipe.context_parallel_size)
        self.batch = recipe.sequences
        self.tokens = self.seq * self.batch
        # frameworks with blocks of their own do not read these keys
        runs_models_code = recipe.method != "inference" and not self.own.get("own_modules")
        self.dropout = self.spec.dropout if runs_models_code else NO_DROPOUT
        self.kernels = self._kernels()
        self.trains_below_head = False
        self.source_seq = self.source_bytes = self.convolved_bytes = 0
        self.source_needs_grad = False

    def tape(self) -> Tape:
        """A fresh tape that rounds as the allocator does."""
        rounding: Callable[[int], int] = (lambda size: size) if self.exact else segment_share
        return Tape(rounding=rounding, autocast=self.autocast, cuda=not self.exact, half=self.recipe.dtype == "float16")

    def _stream_width(self) -> int:
        """Bytes of an element of the embedding's output."""
        tensors = (*self.found.embeddings, *self.found.head, *self.found.layers[0].tensors)
        return next((t.width for t in tensors if t.tensor.role in (Role.EMBEDDING, Role.NORM)), 2)

    def _kernels(self) -> Kernels:
        recipe, own = self.recipe, self.own
        attention = recipe.attn_implementation or "sdpa"
        return Kernels(
            attention=attention,
            masked=bool(recipe.padding) and not self.biased and not self.hears,
            dropout=self.dropout,
            norm=str(own.get("norm", "hf")),
            mlp=str(own.get("mlp", "hf")),
            rope=str(own.get("rope", "hf")),
            expand_keys=bool(own.get("expand_keys", False)),
            expand_keys_in_sdpa=bool(own.get("expand_keys_in_sdpa", False)),
            attention_classes=bool(own.get("attention_classes", False)),
            old_attention_classes=bool(own.get("old_attention_classes", False)),
            reentrant=bool(own.get("reentrant", False)),
            fused_adapters=bool(own.get("fused_adapters", False)),
            loops_over_experts=bool(own.get("loops_over_experts", False)),
            own_modules=bool(own.get("own_modules", False)),
            caches=bool(recipe.use_cache) and recipe.method != "inference" and not recipe.gradient_checkpointing,
            modules=str(own.get("modules", "")),
            fused_activation=own.get("modules") == "litgpt",
            clones_result=bool(own.get("clones_result", True)),
            names_parts=bool(own.get("names_parts", False)),
            keeps_quantised_input=_keeps_quantised_input(recipe),
            unpacking="torchao"
            if recipe.base_quantization == "torchao-nf4" and not own.get("compiled_blocks")
            else str(own.get("unpacking", "kernel")),
        )

    @property
    def biased(self) -> bool:
        """Attention adds a learned bias of positions, which holds the mask too and is one tensor for all layers."""
        return has_habit(self.spec.model_type, "unscaled_attention")

    @property
    def hears(self) -> bool:
        """Sources are sound, which always fills its window: nothing is masked."""
        return any(s.name == "encoder" and s.input_elements_per_item for s in self.model.spec.stacks)

    def bias_bytes(self) -> int:
        """T5's position bias over heads and pairs of positions, and its gradient: of the encoder and the decoder.

        Source: transformers 5.24 modeling_t5.py T5Attention: computed in the first layer, handed to the others.
        """
        if not self.biased:
            return 0
        heads = next((getattr(m, "num_attention_heads", 0) for m in self.spec.layers[0].mixers), 0)
        pairs = self.seq * self.seq + self.source_seq * self.source_seq
        copies = 2 if self.recipe.method == "full" else 1
        return copies * (self.batch if self.recipe.padding else 1) * heads * pairs * self.width

    def block(self, tape: Tape, tensors: tuple[TrainTensor, ...]) -> Block:
        """What a layer with these tensors runs with."""
        weights = {t.tensor.name: self._weight(t) for t in tensors}
        return Block(
            tape=tape,
            batch=self.batch,
            seq=self.seq,
            hidden_size=self.spec.hidden_size,
            weights=weights,
            kernels=self.kernels,
            mask_width=self.width if self.kernels.attention == "eager" else 0,
            position_width=self.width,
            model_type=self.spec.model_type,
            sequence_ways=self.recipe.tensor_parallel_size if self.recipe.sequence_parallel else 1,
            source=self._source_of(tape),
            source_seq=self.source_seq,
        )

    def _source_of(self, tape: Tape) -> Value | None:
        if not self.source_seq:
            return None
        return source_value(tape, self.source_numel, self.width, needs_grad=self.source_needs_grad)

    @property
    def source_numel(self) -> int:
        """Elements of an encoder's output."""
        return self.source_seq * self.batch * self.spec.hidden_size

    def encoder_profiles(self, below: bool) -> list[Profile]:
        """The layers of an encoder below the decoder, on the source's tokens; [] where there is none."""
        stack = next((one for one in self.model.spec.stacks if one.name == "encoder"), None)
        if stack is None or not self.found.encoder:
            return []
        seq = source_tokens(stack, self.recipe)
        below = below or any(t.trainable for t in self.found.towers)
        run = copy(self)
        run.seq, run.tokens = seq, seq * self.batch
        run.found = replace(self.found, layers=self.found.encoder)
        run.spec = replace(self.spec, layers=stack.layers, hidden_size=stack.hidden_size)
        profiles = run.layer_profiles(below)
        self.source_seq, self.source_needs_grad = seq, run.trains_below_head
        self.source_bytes = self.tape().rounding(self.source_numel * self.width)
        self.convolved_bytes = convolution_bytes(stack, self.batch, self.width, trained=self.recipe.method == "full")
        return profiles

    def _weight(self, found: TrainTensor) -> Weight:
        """A weight as the kernels see it: FSDP gathers in the type of its mixed precision, so that nothing is cast.

        Source: accelerate 1.x utils/dataclasses.py set_mixed_precision: MixedPrecision(param_dtype=...).
        """
        weight, narrow = _weight(found), self.autocast
        if not narrow or self.recipe.sharding not in FSDP or weight.storage != "plain":
            return weight
        adapter = weight.adapter
        if adapter is not None:
            adapter = replace(adapter, width=min(adapter.width, narrow))
        return replace(weight, width=min(weight.width, narrow), adapter=adapter)

    @property
    def stream_numel(self) -> int:
        """Elements of the residual stream that one rank holds."""
        ways = self.recipe.tensor_parallel_size if self.recipe.sequence_parallel else 1
        return self.tokens // ways * self.spec.hidden_size

    def layer_profiles(self, below: bool) -> list[Profile]:
        """Every segment's profile, bottom first: a layer, or the layers under one checkpoint."""
        checkpoints, every = bool(self.recipe.gradient_checkpointing), self.recipe.checkpoint_every
        by_index: dict[int, LayerGroup] = {}
        for group in self.found.layers:
            by_index.update(dict.fromkeys(group.indices, group))
        indices = sorted(by_index)
        memo: dict[tuple[int, bool], Profile] = {}
        plain: dict[int, Plain] = {}
        inside: list[Profile] = []
        forwards: list[Plain] = []
        for index in indices:
            group = by_index[index]
            first_of_segment = checkpoints and len(inside) % every == 0
            key = (id(group), below or (first_of_segment and self.input_is_leaf))
            if key not in memo:
                memo[key] = self.layer_profile(group, below=key[1], keep_input=checkpoints)
            inside.append(memo[key])
            if checkpoints and id(group) not in plain:
                plain[id(group)] = without_graph(
                    self.tape, self.forward_of(group), numel=self.stream_numel, width=self.width
                )
            if checkpoints:
                forwards.append(plain[id(group)])
            below = below or any(t.trainable or t.adapter for t in group.tensors)
        self.trains_below_head = below
        if not checkpoints:
            return inside
        size = self.tape().rounding(self.stream_numel * self.width)
        kept = [
            checkpointed(
                inside[at : at + every],
                forwards[at : at + every],
                stream_bytes=size,
                reentrant=self.kernels.reentrant,
                units=self.reduces_units,
                keeps_inputs=self.kernels.keeps_quantised_input and not self.kernels.reentrant,
            )
            for at in range(0, len(inside), every)
        ]
        more = self._kept_products() if self.recipe.checkpoint_policy == "selective" else 0
        return [
            replace(
                one,
                forward_left=one.forward_left + more,
                backward_left=one.backward_left - more,
                forward_peak=one.forward_peak + more,
            )
            for one in kept
        ]

    def _kept_products(self) -> int:
        """What a checkpoint that keeps products has of a layer beside its input.

        Raises:
            UnsupportedArchitecture: the layer is not attention and a dense feed-forward.
        """
        layer = self.spec.layers[0]
        mixer, feed_forward = next(iter(layer.mixers), None), layer.feed_forward
        if not isinstance(mixer, Attention) or not isinstance(feed_forward, Mlp):
            raise UnsupportedArchitecture(
                f"what selective checkpoints keep of {self.spec.model_type} layers is not modelled",
                field="checkpoint_policy",
            )
        whole = selective_bytes(
            self.tokens,
            1,
            hidden_size=self.spec.hidden_size,
            query_size=mixer.output_input_size,
            key_size=mixer.key_size,
            intermediate_size=feed_forward.intermediate_size,
            heads=mixer.num_attention_heads,
        )
        return whole - 2 * self.tokens * self.spec.hidden_size

    def tower_bytes(self) -> tuple[int, int, int]:
        """What pictures keep through the step, one block run again, and what their merge into the text makes.

        Adapters and checkpoints put a frozen tower inside the graph from transformers 5 on (pull request 41993).
        """
        recipe, spec = self.recipe, self.spec
        if not recipe.images_per_sample or not self.found.first:
            return 0, 0, 0
        stack = next((one for one in self.model.spec.stacks if one.name == "vision"), None)
        if stack is None:
            raise UsageError(
                f"--images-per-sample: {spec.model_type} takes no pictures; leave it out", field="images_per_sample"
            )
        gated = bool(stack.layers and getattr(stack.layers[0].feed_forward, "gated", False))
        kind = known_tower(spec.model_type, gated=gated)
        patches = self._patches(stack, kind or spec.model_type) * recipe.images_per_sample * self.batch
        merge = masked_scatter_bytes(self.tokens * spec.hidden_size) + 2 * self.tokens * spec.hidden_size
        if not stack.layers:  # patches go straight into the text's width
            return patches * _PIXELS * 4, 0, merge
        layer = stack.layers[0]
        tower = Tower(
            kind=kind or spec.model_type,
            hidden_size=stack.hidden_size,
            layers=len(stack.layers),
            intermediate_size=int(getattr(layer.feed_forward, "intermediate_size", 0)),
            heads=int(getattr(layer.mixers[0], "num_attention_heads", 0)),
            taped=None if kind else (self._taped(stack, trained=True), self._taped(stack, trained=False)),
        )
        hooked = recipe.adapters and bool(recipe.gradient_checkpointing) and not self.own.get("loops_over_experts")
        place: Place = "trained" if not recipe.freeze_vision_tower else "frozen" if hooked else "outside"
        again = recipe.vit_gradient_checkpointing
        checkpointed_tower = bool(recipe.gradient_checkpointing if again is None else again)
        saved = tower.saved_bytes(patches, place, checkpointed=checkpointed_tower)
        pixels = patches * _PIXELS * 4
        return saved + pixels, tower.recomputed_bytes(patches) if saved and checkpointed_tower else 0, merge

    def _patches(self, stack: Stack, family: str) -> int:
        """Positions that the tower has of one image; what the config allows at most where its cutting is not known."""
        width, height = read_size(self.recipe.image_size or "1024x1024")
        try:
            return picture(family, width, height, self.recipe.max_pixels).patches
        except UnsupportedArchitecture:
            if stack.patches_per_item is None:
                raise
            return stack.patches_per_item

    def _taped(self, stack: Stack, *, trained: bool) -> int:
        """Bytes a patch that a layer of the tower keeps, its code taken to be written as the text's layers are."""
        run, layer = copy(self), stack.layers[0]
        run.seq = run.tokens = _TAPED_PATCHES
        run.batch, run.exact, run.source_seq = 1, True, 0
        run.spec = replace(self.spec, hidden_size=stack.hidden_size)
        tensors = tuple(
            replace(like, tensor=tensor, shape=tensor.shape, trainable=trained, adapter=None, saved_copy=False)
            for tensor in layer.tensors(stack.hidden_size)
            if not tensor.buffer
            for like in self.found.towers[:1]
        )
        group = LayerGroup(layer=layer, indices=(0,), tensors=tensors, trains=trained)
        return run.layer_profile(group, below=True, keep_input=False).forward_left // _TAPED_PATCHES

    def forward_of(self, group: LayerGroup) -> Callable[[Tape, Value], tuple[Value, list[Value]]]:
        """The forward of a layer of this group: the new stream, and what the program keeps."""
        layer = local_layer(group.layer, self.recipe.tensor_parallel_size)

        def forward(tape: Tape, x: Value) -> tuple[Value, list[Value]]:
            block = self.block(tape, group.tensors)
            return run_layer(block, layer, x), block.cached

        return forward

    def layer_profile(self, group: LayerGroup, *, below: bool, keep_input: bool) -> Profile:
        """The profile of a layer; `below`: something under it is trained."""
        return profile(
            self.tape,
            self.forward_of(group),
            numel=self.stream_numel,
            width=self.width,
            needs_grad=below,
            keep_input=keep_input,
            keep_gradients=self.keep_gradients,
        )

    @property
    def reduces_units(self) -> bool:
        """FSDP: a layer's gradients are joined, reduced and gone when it is through."""
        return self.recipe.sharding in FSDP and self.keep_gradients

    @property
    def input_is_leaf(self) -> bool:
        """Checkpointed layers over a frozen embedding get an input that wants a gradient, for reentrant checkpoints.

        PEFT's and the trainers' `enable_input_require_grads`; what checkpoints without reentrance goes without.
        """
        wanted = bool(self.recipe.gradient_checkpointing and self.recipe.adapters)
        return wanted and not self.own.get("input_has_no_gradient")

    @property
    def keep_gradients(self) -> bool:
        """Parameters keep the gradients that this micro-batch makes."""
        if self.recipe.sharding in FSDP:
            return not self.recipe.optimizer_in_backward  # until their unit is through
        shared = self.recipe.sharding in ("zero2", "zero3")
        return not (self.recipe.optimizer_in_backward or gradients_wait(self.recipe) or shared)

    def head_profile(self, below: bool) -> Profile:
        """The final norm, the output matrix and the loss."""
        tensors, output = self.found.head, self.found.output
        if output is None and self.recipe.has_logits:
            raise UsageError(
                f"--objective {self.recipe.objective} needs logits, and this checkpoint has no output matrix; use"
                " --objective embedding, reranker or classification",
                field="objective",
            )
        scores = Weight(out_features=1, in_features=self.spec.hidden_size, width=self.width, trainable=False)
        weight = scores if output is None else self._weight(output)
        whole = self.recipe.loss in ("hf", "in-place")  # losses that take the matrix itself go around its adapter
        if not self.own.get("adapts_output") and not whole:
            weight = replace(weight, adapter=None)
        recipe, own = self.recipe, self.own
        head = Head(
            norm=final_norm(self.spec),
            output=weight,
            loss=(recipe.loss or "hf") if recipe.has_logits else "hf",
            log_probs=log_probs(recipe) if recipe.rolls_out and recipe.loss == "hf" else None,
            distils=recipe.objective == "distillation",
            chunking=str(own.get("chunking", "trl")),
            upcast="none" if self.found.encoder else str(own.get("upcast", "loss")),
            shifted_copy=bool(own.get("shifted_copy", False)),
            keep_outputs=bool(recipe.keep_outputs),
            in_place_converts=bool(own.get("in_place_converts", True)),
            compiled=bool(own.get("compiled", False)),
            compiled_apart=bool(own.get("loss_compiled_apart", False)),
            batch=self.batch,
            kept_tokens=(recipe.logits_to_keep or 0) * self.batch,
            softcap=has_habit(self.spec.model_type, "softcapped_logits") and bool(own.get("caps_logits", True)),
            scaled=has_habit(self.spec.model_type, "scaled_logits"),
            whole_logits=not recipe.adapters,
        )

        def forward(tape: Tape, x: Value) -> tuple[Value, list[Value]]:
            block = self.block(tape, tuple(t for t in tensors if t is not output))
            block.weights = {**block.weights, "lm_head.weight": weight}
            block.kernels = replace(block.kernels, norm=str(own.get("norm_outside_blocks", block.kernels.norm)))
            ways = block.sequence_ways
            run = run_litgpt_head if head.chunking == "litgpt" and head.loss == "chunked" else run_head
            return run(block, head, row_ops.collect(tape, x, ways))

        return profile(
            self.tape,
            forward,
            numel=self.stream_numel,
            width=self.width,
            needs_grad=below,
            keep_gradients=self.keep_gradients,
        )

    def embedding_bytes(self, stream: int) -> int:
        """The embedding's output, where checkpointing made it a leaf and the layers start from something else."""
        recipe, spec = self.recipe, self.spec
        moved = any(t.tensor.role is Role.POSITION for t in self.found.embeddings)
        moved = moved or has_habit(spec.model_type, "scaled_embedding") or bool(self.dropout.embedding)
        return stream if moved and recipe.adapters and recipe.gradient_checkpointing else 0

    def embedding_mask_bytes(self, below: bool) -> int:
        """What the dropout of the embedding's output keeps, where that has a gradient."""
        if not (self.dropout.embedding and below and self.found.first):
            return 0
        tape = self.tape()
        return tape.rounding(self.stream_numel * (1 if tape.cuda else self.width))

    @property
    def keeps_earlier_step(self) -> bool:
        """litgpt's loop names logits and loss, and with them the graph, until the next step has made its own.

        Of a longer step at least: releases that take the longest sample first have nothing before their peak.
        Source: litgpt 0.5.13 finetune/lora.py fit; 0.1 (longest_seq_ix).
        """
        own = self.own
        litgpt = own.get("chunking") == "litgpt" and self.recipe.loss == "chunked" and self.found.last
        return bool(litgpt and not own.get("longest_first"))

    def earlier_logits_bytes(self) -> int:
        """The fp32 logits of the step before, which litgpt's loop still names while the model runs again."""
        if not self.keeps_earlier_step:
            return 0
        return self.tape().rounding(self.tokens * self.spec.vocab_size * 4)

    def shared_bytes(self) -> int:
        """Rotary tables, token ids, labels and the mask, which all layers share."""
        tape = self.tape()
        if self.own.get("rope") == "torchtune":
            recipe, cloned = self.recipe, bool(self.own.get("clones_layers"))
            # token ids and labels; the tables are the model's own
            return 2 * tape.rounding(self.tokens * 8) + torchtune.tables_bytes(
                self.spec, adapters=recipe.adapters, cloned=cloned
            )
        size = 3 * tape.rounding(self.tokens * 8)
        rotary = max((getattr(m, "rotary_dim", 0) for layer in self.spec.layers for m in layer.mixers), default=0)
        size += 2 * tape.rounding(self.seq * rotary * int(self.own.get("rotary_table_width", self.width)))
        if self.kernels.attention == "eager":
            windows = {getattr(m, "sliding_window", None) for layer in self.spec.layers for m in layer.mixers}
            size += len(windows) * tape.rounding(self.batch * self.seq * self.seq * self.width)
        return size


def _keeps_quantised_input(recipe: Recipe) -> bool:
    """bitsandbytes before 0.43.2 kept the input of every 4-bit layer (MatMul4Bit.forward, ctx.tensors).

    Source: bitsandbytes 0.43.1 autograd/_functions.py; pull request 1270 of July 2024 took it away.
    """
    return recipe.bitsandbytes_version is not None and version_of(
        recipe.bitsandbytes_version, "bitsandbytes_version"
    ) < (0, 43, 2)


def gradients_wait(recipe: Recipe) -> bool:
    """The gradients of an earlier micro-batch or step are alive while this one runs."""
    # 16-bit weights under autocast are what a Trainer makes, and Trainers set gradients to None.
    trainer = recipe.autocast != "none" and recipe.dtype != "float32"
    kept = recipe.keep_gradients
    if kept is None:
        kept = bool(kernels(recipe).get("gradients_kept", False)) and not trainer
    return recipe.method != "inference" and (recipe.gradient_accumulation_steps > 1 or kept)


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
        out_features=out_features,
        in_features=in_features,
        width=found.width,
        trainable=found.trainable or found.saved_copy,
        storage=found.storage,
        adapter=found.adapter,
    )
