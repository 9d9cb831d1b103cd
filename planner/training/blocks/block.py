"""What a block runs with: its tape, its tokens, its weights and the kernels of the framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from planner.errors import UnsupportedArchitecture
from planner.model.dropout import NO_DROPOUT, Dropout
from planner.training.stacks.habits import has_habit
from planner.training.tape.tape import Tape, Value, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """LoRA on one linear layer.

    Args:
        rank: r.
        width: bytes of an element of A and B.
        dropout: probability on the adapter's input.
        dora: has a magnitude, and the norm of the merged weight is computed in every forward.
        casts_input: the input is converted to the adapter's type first (PEFT does).
        stack: experts that A and B hold one beside the other.
        parts, of: so many of the `of` equal parts of the matrix's rows have an adapter each.
        merges: the forward runs with W + BA, made anew in every forward (PEFT's ParamWrapper).
    """

    rank: int
    width: int
    dropout: float = 0.0
    dora: bool = False
    casts_input: bool = True
    stack: int = 1
    parts: int = 1
    of: int = 1
    merges: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A parameter as the block's code sees it.

    Args:
        numel, width: elements, and bytes of one (of the type it computes in, when quantised).
        trainable: gets a gradient.
        storage: "plain", "dequantised" (a whole matrix in 16 bit at each use: bitsandbytes 4-bit, torchao NF4),
            "fused" (read packed by its kernel: GPTQ, AWQ) or "int8" (bitsandbytes: keeps its input).
    """

    out_features: int
    in_features: int
    width: int
    trainable: bool
    storage: str = "plain"
    bias: bool = False
    bias_trainable: bool = False
    adapter: Adapter | None = None

    @property
    def numel(self) -> int:
        """Elements."""
        return self.out_features * self.in_features


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Which implementation a framework runs, where there are several.

    Args:
        attention: "eager", "sdpa", "flash_attention_2".
        norm: "hf" (fp32 copies), "torchtune" (and the scale in fp32), "litgpt" (all in fp32), "fused" (x and rstd).
        mlp: "hf" or "liger" (keeps gate and up, recomputes their product).
        rope: "hf", "fused" (in place) or "torchtune" (by model; mostly in fp32).
        masked: SDPA is given a mask (padding): keys and values are repeated to all heads, and each layer converts the
            mask to the type of the queries and keeps it.
        expand_keys: keys and values are repeated to all heads before the kernel; `_in_sdpa`: before SDPA's.
        attention_classes: every model has classes of its own for SDPA and flash attention; `old_`: some models have.
        modules: whose blocks run, where the framework's own differ in what they keep: "litgpt" or "".
        fused_activation: activations that some models write in Python are one function.
        caches: keys and values go through a cache object, which copies them.
        fused_adapters: a quantised matrix and its adapter run as one function.
        loops_over_experts: experts run one after the other, not in one grouped product.
        own_modules: the framework writes its own blocks, so that the habits of transformers' code do not apply.
        unpacking: how a dequantised matrix is made: by one "kernel", by one in "half" that is then converted, or by
            "torchao"'s operations one after the other.
        clones_result: a quantised layer's result is copied before its adapter's is added (PEFT does).
        names_parts: a layer's forward keeps the attention's and the feed-forward's result until it returns.
        keeps_quantised_input: the input of a 4-bit layer is kept as an attribute (bitsandbytes before 0.43.2).
        dropout: what the model drops out.
        reentrant: checkpoints are reentrant, and hold the layer's output while its backward runs.
    """

    attention: str = "sdpa"
    norm: str = "hf"
    mlp: str = "hf"
    rope: str = "hf"
    expand_keys: bool = False
    expand_keys_in_sdpa: bool = False
    attention_classes: bool = False
    old_attention_classes: bool = False
    masked: bool = False
    dropout: Dropout = NO_DROPOUT
    reentrant: bool = False
    modules: str = ""
    caches: bool = False
    fused_adapters: bool = False
    loops_over_experts: bool = False
    fused_activation: bool = False
    own_modules: bool = False
    unpacking: str = "kernel"
    clones_result: bool = True
    names_parts: bool = False
    keeps_quantised_input: bool = False


@dataclass(slots=True, kw_only=True)
class Block:
    """One layer being run.

    Args:
        batch, seq: sequences and their length in tokens; `tokens` is their product.
        weights: by name relative to the layer.
        hidden_size: of the residual stream.
        model_type: decides how norms and parts are arranged where their names do not.
        sequence_ways: ranks that the residual stream's tokens are divided over (sequence parallelism).
        cached: what a cache object holds as long as the model's outputs live.
        source, source_seq: an encoder's output that the layer attends to, and its positions a sequence.
    """

    tape: Tape
    batch: int
    seq: int
    hidden_size: int
    weights: Mapping[str, Weight]
    kernels: Kernels
    model_type: str = ""
    sequence_ways: int = 1
    mask_width: int = 0
    position_width: int = 2
    cached: list[Value] = field(default_factory=list)
    source: Value | None = None
    source_seq: int = 0
    _parameters: dict[str, Value] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Tokens of the micro-batch, padding included."""
        return self.batch * self.seq

    def has_habit(self, habit: str) -> bool:
        """The model's code does it that way, and this framework runs the model's code."""
        return not self.kernels.own_modules and has_habit(self.model_type, habit)

    def parameter(self, name: str, numel: int, width: int, *, trainable: bool) -> Value:
        """The tape's value of a parameter, the same at every use."""
        known = self._parameters.get(name)
        if known is None:
            known = self._parameters[name] = parameter(numel, width, trainable=trainable)
        return known

    def spec_of(self, name: str) -> Weight:
        """The weight of that name.

        Raises:
            UnsupportedArchitecture: the block's code asks for a tensor that this model names otherwise, or has not.
        """
        found = self.weights.get(name)
        if found is None:
            raise UnsupportedArchitecture(
                f"the training memory of {self.model_type} blocks is not modelled: no tensor {name}", field="model_type"
            )
        return found

    def spec_of_parameter(self, name: str) -> Weight:
        """The weight of that name, which is a parameter of its own or the weight of a module."""
        return self.weights.get(name) or self.spec_of(f"{name}.weight")

    def weight(self, name: str) -> Value:
        """The tape's value of a weight of the layer."""
        weight = self.spec_of(name)
        return self.parameter(name, weight.numel, weight.width, trainable=weight.trainable)

    def sub(self, prefix: str) -> Block:
        """The block for a module below: names relative to it."""
        if not prefix:
            return self
        start = prefix + "."
        inner = {name[len(start) :]: weight for name, weight in self.weights.items() if name.startswith(start)}
        return replace(self, weights=inner, _parameters={})

    def constant(self, numel: int, width: int) -> Value:
        """A tensor shared by all layers (rotary table, mask), counted once outside."""
        return parameter(numel, width, trainable=False)
