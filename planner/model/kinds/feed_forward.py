"""Feed-forward layers: the plain and the gated MLP, and mixtures of experts.

gated MLP   3 matrices: gate and up [I, H], down [H, I]
plain MLP   2 matrices: up [I, H], down [H, I]
MoE         a router [E, H], E experts of one of the above stored as stacked tensors, shared experts
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.model.tensor import Part, Role, Split, Tensor, linear, whole


@dataclass(frozen=True, slots=True)
class MlpNames:
    """Module names inside the MLP, as the checkpoint spells them."""

    block: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    fused: str = "gate_up_proj"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """One dense feed-forward.

    Args:
        intermediate_size: inner width I.
        gated: has a gate matrix beside the up matrix.
        fused: gate and up are one matrix in the checkpoint.
        activation: the config's name of the activation function.
        output_bias: the down matrix has a bias (None: as `bias`).
        input_first: stored as [in, out] (GPT-2).
        replicated: every GPU holds it whole (a tower that the engine runs with plain linear layers).
        owns_weights: False where it uses an earlier layer's weights (Zamba's shared blocks).
    """

    intermediate_size: int
    gated: bool = True
    fused: bool = False
    activation: str = "silu"
    bias: bool = False
    output_bias: bool | None = None
    input_first: bool = False
    owns_weights: bool = True
    replicated: bool = False
    role: Role = Role.MLP
    names: MlpNames = MlpNames()

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the MLP for a residual stream of `hidden_size`."""
        if not self.owns_weights:
            return ()
        names, inner, role = self.names, self.intermediate_size, self.role
        found: list[Tensor] = []
        if self.gated and self.fused:
            parts = (Part(inner, inner), Part(inner, inner))
            found += linear(
                names.fused,
                2 * inner,
                hidden_size,
                role,
                bias=self.bias,
                column=parts,
                input_first=self.input_first,
            )
        else:
            for name in (names.gate, names.up) if self.gated else (names.up,):
                found += linear(
                    name,
                    inner,
                    hidden_size,
                    role,
                    bias=self.bias,
                    column=whole(inner),
                    input_first=self.input_first,
                )
        output_bias = self.bias if self.output_bias is None else self.output_bias
        found += linear(
            names.down,
            hidden_size,
            inner,
            role,
            bias=output_bias,
            row=whole(inner),
            input_first=self.input_first,
        )
        if self.replicated:
            found = [tensor.whole() for tensor in found]
        return tuple(tensor.named(names.block) for tensor in found)


@dataclass(frozen=True, slots=True)
class MoeNames:
    """Module names inside the MoE block, as transformers spells them."""

    block: str = "mlp"
    router: str = "gate"
    experts: str = "experts"
    correction: str = "gate.e_score_correction_bias"
    shared_gate: str = "shared_expert_gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """A mixture of experts.

    Args:
        num_experts: routed experts with weights.
        num_experts_per_tok: how many of them one token uses.
        moe_intermediate_size: inner width of one routed expert.
        zero_experts: routed experts without weights (LongCat's identity experts), rows of the router only.
        expert_bias: experts have biases (gpt-oss).
        input_first: expert matrices are stored as [E, in, out] (gpt-oss, Llama 4).
        router_bias: the router is a linear layer with a bias.
        router_dtype: storage type of the router's matrix when it is not the model's ("float32").
        correction_bias: a score correction of one value per expert, kept in fp32 (DeepSeek-V3).
        shared: experts that every token uses, as one MLP.
        shared_gate: the shared expert's output is gated by a [1, H] matrix (Qwen2-MoE).
        expert_input_size: width that experts read and write when it is not the hidden size (Nemotron's latent).
        flat: gate, up and down are matrices [E x I, H] of their own (DBRX).
    """

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    gated: bool = True
    activation: str = "silu"
    zero_experts: int = 0
    expert_bias: bool = False
    input_first: bool = False
    router_bias: bool = False
    router_dtype: str | None = None
    correction_bias: bool = False
    shared: Mlp | None = None
    shared_gate: bool = False
    expert_input_size: int | None = None
    flat: bool = False
    names: MoeNames = MoeNames()

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        names = self.names
        rows = self.num_experts + self.zero_experts
        width = self.expert_input_size or hidden_size
        found: list[Tensor] = []
        for tensor in linear(names.router, rows, hidden_size, Role.ROUTER, bias=self.router_bias):
            found.append(replace(tensor, dtype=self.router_dtype))
        if self.correction_bias:
            found.append(Tensor(names.correction, (rows,), Role.ROUTER, dtype="float32", buffer=True))
        found += self._flat_experts(width) if self.flat else self._stacked_experts(width)
        if self.shared is not None:
            found += self.shared.tensors(hidden_size)
        if self.shared_gate:
            found += linear(names.shared_gate, 1, hidden_size, Role.ROUTER)
        return tuple(tensor.named(names.block) for tensor in found)

    def _stacked_experts(self, width: int) -> list[Tensor]:
        """Gate and up of all experts in one tensor, down in another."""
        names, inner = self.names, self.moe_intermediate_size
        found: list[Tensor] = []
        up_parts = (Part(inner, inner),) * (2 if self.gated else 1)
        up_size = inner * len(up_parts)
        up_name = f"{names.experts}.{'gate_up_proj' if self.gated else 'up_proj'}"
        down_name = f"{names.experts}.down_proj"
        found.append(self._expert_matrix(up_name, up_size, width, Split(2 if self.input_first else 1, up_parts)))
        if self.expert_bias:
            found.append(self._expert_bias(f"{up_name}_bias", up_size, Split(1, up_parts)))
        found.append(self._expert_matrix(down_name, width, inner, Split(1 if self.input_first else 2, whole(inner))))
        if self.expert_bias:
            found.append(self._expert_bias(f"{down_name}_bias", width, None))
        return found

    def _flat_experts(self, width: int) -> list[Tensor]:
        """Three matrices whose rows are all experts' one after the other; w2 is stored as [in, out]."""
        rows, inner = self.num_experts * self.moe_intermediate_size, self.moe_intermediate_size
        return [
            Tensor(
                f"{self.names.experts}.mlp.{name}",
                (rows, width),
                Role.EXPERT,
                Split(0, whole(rows, inner)),
                linear=True,
                input_dim=0 if name == "w2" else 1,
                num_experts=self.num_experts,
                active_experts=self.num_experts_per_tok,
            )
            for name in ("w1", "v1", "w2")
        ]

    def _expert_matrix(self, name: str, out_size: int, in_size: int, split: Split) -> Tensor:
        inner = (in_size, out_size) if self.input_first else (out_size, in_size)
        return Tensor(
            name,
            (self.num_experts, *inner),
            Role.EXPERT,
            split,
            linear=True,
            input_dim=1 if self.input_first else 2,
            num_experts=self.num_experts,
            active_experts=self.num_experts_per_tok,
        )

    def _expert_bias(self, name: str, size: int, split: Split | None) -> Tensor:
        return Tensor(
            name,
            (self.num_experts, size),
            Role.EXPERT,
            split,
            num_experts=self.num_experts,
            active_experts=self.num_experts_per_tok,
        )


FeedForward = Mlp | Moe
