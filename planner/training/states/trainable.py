"""The inventory as training sees it: what each tensor is stored in, whether it is trained, and its adapter."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Final

from planner.errors import UsageError
from planner.memory.format_table import weight_format
from planner.memory.formats import Plain, WeightFormat
from planner.memory.parallel.sharding import Parallelism, local_shape, stage_layer_counts, stage_slices
from planner.memory.quantisation import scheme_from_config
from planner.model.model import Model
from planner.model.spec import ModelSpec
from planner.model.tensor import Role, Tensor
from planner.training.blocks.block import Adapter
from planner.training.recipe import DTYPES, Recipe, kernels
from planner.training.states.inventory import Inventory, LayerGroup, TrainTensor
from planner.training.states.lora_targets import Targets
from planner.training.states.own_layout import taken_apart
from planner.training.states.peft_targets import fails_when_adapted

_BNB: Final = frozenset({"nf4", "fp4", "int8"})
_FORMATS: Final = {
    "nf4": "bnb_nf4",
    "fp4": "bnb_fp4",
    "int8": "bnb_int8",
    "gptq": "gptq_4bit",
    "awq": "awq_4bit",
    "torchao-nf4": "bnb_nf4_dq",
}
_STORAGE: Final = {
    "nf4": "dequantised",
    "fp4": "dequantised",
    "torchao-nf4": "dequantised",
    "int8": "int8",
    "gptq": "fused",
    "awq": "fused",
}
# torchtune quantises feed-forwards whether they have adapters or not, but here only with (models/qwen2: qwen2_mlp).
_MLP_IN_16_BIT: Final = frozenset({"qwen2"})
_DEFAULT_TARGETS: Final = ("q_proj", "v_proj")  # of models that PEFT has no default for
_WHOLE_MATRICES: Final = ("full", "freeze", "galore", "badam", "lisa")
# Layers that are trained at a time: BAdam one block (arXiv 2404.02827), LISA two beside embeddings and head (arXiv
# 2403.17919). The graph may reach the bottom, so the lowest are taken.
_ACTIVE_LAYERS: Final = {"badam": 1, "lisa": 2}


def default_targets(model_type: str) -> tuple[str, ...]:
    """PEFT's own target modules for a model type."""
    rows = json.loads(files("planner.training").joinpath("states/lora_defaults.json").read_text("utf-8"))
    found = rows["targets"].get(model_type, _DEFAULT_TARGETS)
    return (found,) if isinstance(found, str) else tuple(found)


def distinct_stages(spec: ModelSpec, recipe: Recipe) -> tuple[int, ...]:
    """Pipeline stages that may hold the most: the first of each that hold the same layers, and the last."""
    stages = recipe.pipeline_parallel_size
    found: dict[tuple[bool, tuple[int, ...]], int] = {}
    for stage, run in enumerate(stage_slices(stage_layer_counts(len(spec.layers), stages))):
        same = (stage in (0, stages - 1), tuple(id(layer) for layer in spec.layers[run]))
        found.setdefault(same, stage)
    return tuple(sorted({*found.values(), stages - 1}))


def inventory(model: Model, recipe: Recipe, *, stage: int = 0) -> Inventory:
    """The model's tensors as the (resolved) recipe treats them, on one pipeline stage.

    Raises:
        UsageError: adapter targets, modules to save or frozen layers that match nothing.
    """
    return _Reader(model.spec, recipe).read(stage)


class _Reader:
    def __init__(self, spec: ModelSpec, recipe: Recipe) -> None:
        spec = taken_apart(spec) if kernels(recipe).get("splits_projections") else spec
        self.spec, self.recipe = spec, recipe
        multiple = 128 * recipe.tensor_parallel_size if recipe.framework == "megatron" else 1
        self.parallelism = Parallelism(
            tensor_parallel_size=recipe.tensor_parallel_size,
            data_parallel_size=1,
            vocabulary_multiple=multiple,
        )
        ranks = recipe.num_gpus // (recipe.tensor_parallel_size * recipe.pipeline_parallel_size)
        # Megatron-core parallel_state.py expert_tensor_parallel_size 1: experts over data and tensor ranks together
        self.deals_over_tensor_ranks = recipe.framework == "megatron" and bool(ranks % recipe.expert_parallel_size)
        own = spec.quantization_config is not None and recipe.base_quantization in (None, "none")
        own = own and not recipe.dequantize
        self.scheme = scheme_from_config(spec, dtype=recipe.dtype) if own else None
        self.targets = Targets(recipe.lora_target_modules or default_targets(spec.model_type), self.spec, recipe)
        self.adapted = self.saved = 0
        self.notes: list[str] = []

    def read(self, stage: int) -> Inventory:
        spec, recipe = self.spec, self.recipe
        total = len(spec.layers)
        frozen = recipe.freeze_layers if recipe.method == "freeze" else 0
        active = _ACTIVE_LAYERS.get(recipe.method, total)
        if recipe.method == "freeze":
            frozen = total - 2 if frozen is None else frozen
            if not 0 <= frozen <= total:
                raise UsageError(f"--freeze-layers is {frozen}; the model has {total} layers", field="freeze_layers")
        groups: dict[tuple[int, bool, tuple[str, ...]], list[int]] = {}
        stages = recipe.pipeline_parallel_size
        first, last = stage == 0, stage == stages - 1
        run = stage_slices(stage_layer_counts(total, stages))[stage]
        for index, layer in enumerate(spec.layers):
            if not run.start <= index < run.stop:
                continue
            chosen = self.targets.chosen(layer, index) if recipe.adapters else ()
            trained = (frozen or 0) <= index < (frozen or 0) + active
            groups.setdefault((id(layer), trained, chosen), []).append(index)
        layers = []
        for (_, trains, _), indices in groups.items():
            layer = spec.layers[indices[0]]
            tensors = tuple(
                self._tensor(tensor, f"{spec.layer_prefix}.{indices[0]}.{tensor.name}", trains)
                for tensor in layer.tensors(spec.hidden_size)
                if not tensor.buffer
            )
            layers.append(LayerGroup(layer=layer, indices=tuple(indices), tensors=tensors, trains=trains))
        outside = recipe.method in ("full", "galore", "lisa")
        embeddings = self._embeddings(outside)
        head = tuple(self._tensor(tensor, tensor.name, outside or recipe.method == "freeze") for tensor in spec.head)
        if not recipe.has_logits:
            head = self._scores(head, outside)
        if recipe.has_logits and spec.tie_word_embeddings and kernels(recipe).get("untied"):
            head += tuple(
                self._tensor(
                    replace(tensor, name="lm_head.weight", role=Role.LM_HEAD, linear=True), "lm_head.weight", outside
                )
                for tensor in spec.embeddings
                if tensor.role is Role.EMBEDDING
            )
            self.notes.append(f"{recipe.framework} does not tie the output matrix to the embedding")
        encoder = self._encoder(outside) if first else ()
        towers = self._towers(outside and not recipe.freeze_vision_tower, outside)
        self._check_matches()
        if last and not first and spec.tie_word_embeddings:
            head += tuple(t for t in embeddings if t.tensor.role is Role.EMBEDDING)
        return Inventory(
            embeddings=embeddings if first else (),
            layers=tuple(layers),
            head=head if last else (),
            towers=towers if first else (),
            encoder=encoder,
            notes=tuple(self.notes),
            first=first,
            last=last,
            stage=stage,
            tied=recipe.has_logits and spec.tie_word_embeddings and not kernels(recipe).get("untied"),
        )

    def _towers(self, trained: bool, outside: bool) -> tuple[TrainTensor, ...]:
        """Towers beside the stack; read after it, so that adapters that only they have are noticed.

        Args:
            outside: an encoder's own tensors outside its layers are trained.
        """
        beside_towers = self.adapted
        found = [
            self._tensor(tensor, tensor.name, outside if stack.name == "encoder" else trained)
            for stack in self.spec.stacks
            for tensor in stack.tensors
        ]
        towers = [stack for stack in self.spec.stacks if stack.name != "encoder"]
        for stack in towers:
            for layer in stack.layers:
                found += [self._tensor(t, t.name, trained) for t in layer.tensors(stack.hidden_size) if not t.buffer]
        if self.recipe.adapters and self.adapted and not beside_towers:
            self.notes.append(
                f"the adapters' targets ({', '.join(self.targets.asked)}) are modules of the towers alone: the language"
                " model has no adapter and keeps nothing for a gradient, but with checkpointing each layer's input;"
                " --lora-target-modules names its own"
            )
        if towers and self.spec.decoder and not self.recipe.images_per_sample:
            self.notes.append(
                "no pictures are planned: the towers' own activations are not counted (--images-per-sample)"
            )
        return tuple(found)

    def _encoder(self, trained: bool) -> tuple[LayerGroup, ...]:
        """The layers of an encoder below the decoder, alike ones together."""
        stack = next((one for one in self.spec.stacks if one.name == "encoder"), None)
        if stack is None:
            return ()
        groups: dict[int, list[int]] = {}
        for index, layer in enumerate(stack.layers):
            groups.setdefault(id(layer), []).append(index)
        found = []
        for indices in groups.values():
            layer = stack.layers[indices[0]]
            tensors = tuple(
                self._tensor(tensor, f"{stack.layer_prefix}.{indices[0]}.{tensor.name}", trained)
                for tensor in layer.tensors(stack.hidden_size)
                if not tensor.buffer
            )
            found.append(LayerGroup(layer=layer, indices=tuple(indices), tensors=tensors, trains=trained))
        return tuple(found)

    def _scores(self, head: tuple[TrainTensor, ...], outside: bool) -> tuple[TrainTensor, ...]:
        """The head with a matrix of a row a label in place of the vocabulary's; none for embeddings.

        Source: transformers 5.24 modeling_layers.py GenericForSequenceClassification; PEFT trains it beside adapters.
        """
        kept = tuple(t for t in head if t.tensor.role is not Role.LM_HEAD)
        if self.recipe.objective == "embedding":
            return kept
        shape = (self.recipe.scores, self.spec.hidden_size)
        matrix = Tensor(name="score.weight", shape=shape, role=Role.LM_HEAD)
        scores = self._tensor(matrix, "score.weight", outside)
        return (*kept, replace(scores, trainable=True) if self.recipe.method != "inference" else scores)

    def _embeddings(self, trained: bool) -> tuple[TrainTensor, ...]:
        """The embeddings; a framework may put another in a quantised model's place and let the first live on.

        litgpt does so after it has frozen the model and made the optimizer, so that the new one has a gradient that
        nothing takes up or clears (litgpt 0.5.13 finetune/lora.py main: StableEmbedding, `old_embedding`).
        """
        found = tuple(self._tensor(tensor, tensor.name, trained) for tensor in self.spec.embeddings)
        quantised = self.recipe.base_quantization not in (None, "none")
        if not (quantised and self.recipe.adapters and kernels(self.recipe).get("replaces_embedding")):
            return found
        self._note(
            f"{self.recipe.framework} replaces a quantised model's embedding: the old one lives on, the new one"
            " has a gradient that no optimizer takes up"
        )
        replaced = tuple(replace(t, trainable=True, stepped=False) for t in found if t.tensor.role is Role.EMBEDDING)
        return replaced + found

    def _check_matches(self) -> None:
        recipe = self.recipe
        if recipe.adapters and not self.adapted:
            linears = (t for t in self.spec.layers[0].tensors(self.spec.hidden_size) if t.linear)
            names = sorted({t.name.split(".")[-2] for t in linears})
            raise UsageError(
                f"--lora-target-modules {','.join(self.targets.asked)} matches nothing in this model; it has"
                f" {', '.join(names)}",
                field="lora_target_modules",
            )
        tied = self.spec.tie_word_embeddings and not kernels(recipe).get("untied")
        if tied and any(name.rpartition(".")[2] == "lm_head" for name in recipe.modules_to_save):
            raise UsageError(
                "--modules-to-save lm_head: it is tied to the embedding, and a copy of its own is not modelled; use"
                " embed_tokens",
                field="modules_to_save",
            )
        if recipe.modules_to_save and not self.saved:
            raise UsageError(
                f"--modules-to-save {','.join(recipe.modules_to_save)} matches nothing in this model",
                field="modules_to_save",
            )

    def _tensor(self, tensor: Tensor, name: str, in_trained_part: bool) -> TrainTensor:
        recipe = self.recipe
        dealt = tensor.num_experts and self.deals_over_tensor_ranks
        shape = local_shape(tensor, replace(self.parallelism, tensor_parallel_size=1) if dealt else self.parallelism)
        if tensor.num_experts and recipe.expert_parallel_size > 1:
            shape = (-(-shape[0] // recipe.expert_parallel_size), *shape[1:])
        width = DTYPES[recipe.dtype or "bfloat16"]
        stored: WeightFormat = Plain(name=recipe.dtype or "bfloat16", element_bytes=width)
        storage = "plain"
        if self._quantised(tensor):
            kind = recipe.base_quantization or "none"
            double = kind in ("nf4", "fp4") and recipe.bnb_4bit_use_double_quant
            stored, storage = weight_format(_FORMATS[kind] + ("_dq" if double else "")), _STORAGE[kind]
        elif recipe.prepare_kbit:
            width, stored = 4, Plain(name="float32", element_bytes=4)
        elif self.scheme is not None:
            kept = self.scheme.format_of(replace(tensor, name=name))
            if not isinstance(kept, Plain):
                stored, storage = kept, "dequantised" if kept.name.startswith("bnb") else "fused"
        trainable = recipe.method in _WHOLE_MATRICES and in_trained_part
        adapter = self._adapter(tensor, name, shape)
        saved_copy = recipe.adapters and any(
            name.rsplit(".", 1)[0].endswith(module) for module in recipe.modules_to_save
        )
        if adapter is not None:
            self.adapted += 1
        if saved_copy:
            self.saved += 1
        return TrainTensor(
            tensor=tensor,
            shape=shape,
            format=stored,
            width=width,
            storage=storage,
            trainable=trainable,
            adapter=adapter,
            saved_copy=saved_copy,
        )

    def _quantised(self, tensor: Tensor) -> bool:
        recipe = self.recipe
        kind = recipe.base_quantization
        if kind in (None, "none") or not tensor.linear:
            return False
        if tensor.role is Role.ROUTER or (tensor.role is Role.LM_HEAD and not kernels(recipe).get("quantises_head")):
            return False
        if kind == "torchao-nf4" and tensor.role is Role.MLP and self.spec.model_type in _MLP_IN_16_BIT:
            return self.targets.takes_mlp
        if tensor.num_experts and kind in _BNB and not kernels(recipe).get("loops_over_experts"):
            self._note("experts are stacked parameters, which bitsandbytes does not convert: they stay in 16 bit")
            return False
        return True

    def _note_experts_without_adapters(self, tensor: Tensor) -> None:
        """Experts that a framework may adapt in a way that is not modelled."""
        if not tensor.num_experts or not self.targets.takes_mlp or not self.targets.own_modules:
            return
        self._note(f"adapters on experts under {self.recipe.framework} are not modelled: none is counted")

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _check_merged(self, tensor: Tensor) -> None:
        """PEFT's ParamWrapper refuses what it cannot take apart (peft 0.21.2 tuners/lora/layer.py)."""
        recipe = self.recipe
        what = f"PEFT adapts {tensor.name} as a parameter, the model's matrix and the adapter's being added up"
        if recipe.lora_dropout:
            raise UsageError(
                f"--lora-dropout {recipe.lora_dropout}: {what}, and refuses dropout there; use 0, or"
                " --lora-target-modules without experts and routers",
                field="lora_dropout",
            )
        if recipe.method in ("dora", "qdora"):
            raise UsageError(
                f"--method {recipe.method}: {what}, and refuses DoRA there; use --lora-target-modules without experts"
                " and routers",
                field="method",
            )
        if self._quantised(tensor) or (self.scheme is not None and tensor.num_experts):
            raise UsageError(
                f"--lora-target-modules {','.join(self.targets.asked)}: {what}, which a quantised matrix cannot be;"
                " name the attention's projections alone",
                field="lora_target_modules",
            )

    def _adapter(self, tensor: Tensor, name: str, shape: tuple[int, ...]) -> Adapter | None:
        recipe = self.recipe
        if not recipe.adapters or not tensor.linear:
            return None
        place = self.targets.place(tensor, name)
        if place is None:
            self._note_experts_without_adapters(tensor)
            return None
        if place.merges:
            self._check_merged(tensor)
        if self.targets.through_peft and fails_when_adapted(tensor, self.spec.model_type):
            self._note(f"PEFT 0.21 adapts {tensor.name}, and the forward fails on it: leave the router out by name")
        return Adapter(
            rank=(recipe.lora_rank or 8) * place.ranks,
            stack=shape[0] if len(shape) > 2 else 1,
            merges=place.merges,
            parts=place.parts,
            of=place.of,
            width=DTYPES[recipe.adapter_dtype or "float32"],
            dropout=recipe.lora_dropout or 0.0,
            dora=recipe.method in ("dora", "qdora"),
            casts_input=kernels(recipe).get("casts_input") is not False,
        )
