"""Weights, gradients, optimizer states and adapters against the objects torch, PEFT and bitsandbytes build."""

from __future__ import annotations

import math
import warnings
from collections import Counter

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from planner.errors import UsageError  # noqa: E402
from planner.training.recipe import Recipe, resolve  # noqa: E402
from planner.training.states.states import States, states  # noqa: E402
from planner.training.states.trainable import inventory  # noqa: E402
from tests.training.live_memory import LiveMemory  # noqa: E402
from tests.training.small_models import CONFIGS, EXPERTS, planned, reference  # noqa: E402


def planned_states(model_type: str, **options: object) -> States:
    recipe = resolve(Recipe(**{"dtype": "bfloat16", "autocast": "none", **options}))  # type: ignore[arg-type]
    return states(inventory(planned(model_type), recipe), recipe)


def shapes(found: States) -> Counter[tuple[int, ...]]:
    counted: Counter[tuple[int, ...]] = Counter()
    for tensor in found.trained:
        counted[tensor.shape] += tensor.count
    return counted


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Every state tensor of more than one element; bitsandbytes' quantisation maps are shared constants."""
    return sum(
        value.numel() * value.element_size()
        for state in optimizer.state.values()
        for key, value in state.items()
        if isinstance(value, torch.Tensor) and value.numel() > 1 and not key.startswith("qmap")
    )


@pytest.mark.parametrize("model_type", CONFIGS)
def test_full_fine_tune(model_type: str) -> None:
    model = reference(model_type, "eager")
    found = planned_states(model_type, method="full")
    parameters = list(model.parameters())
    assert shapes(found) == Counter(tuple(p.shape) for p in parameters)
    assert found.trained_weight_bytes == sum(p.numel() * p.element_size() for p in parameters)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    assert found.gradient_bytes == sum(p.grad.numel() * p.grad.element_size() for p in parameters)
    optimizer = torch.optim.AdamW(parameters)
    optimizer.step()
    assert found.optimizer_bytes == state_bytes(optimizer)


@pytest.mark.parametrize("model_type", CONFIGS)
def test_lora_on_all_linear_layers(model_type: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = peft.LoraConfig(r=4, target_modules="all-linear")
        model = peft.get_peft_model(reference(model_type, "eager"), config)
    found = planned_states(model_type, method="lora", lora_rank=4, lora_target_modules=("all-linear",))
    trained = [p for p in model.parameters() if p.requires_grad]
    assert shapes(found) == Counter(tuple(p.shape) for p in trained)
    assert found.trained_weight_bytes == sum(p.numel() * p.element_size() for p in trained)
    assert found.frozen_bytes == sum(p.numel() * p.element_size() for p in model.parameters() if not p.requires_grad)


_EXPERT_NAMES = ("gate_proj", "up_proj", "down_proj")


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"], _EXPERT_NAMES, ("w1", "w2", "w3"),
                                     ["gate_proj"], ["q_proj", "gate"], r".*(q_proj|gate_proj|up_proj)"])  # fmt: skip
@pytest.mark.parametrize("model_type", EXPERTS)
def test_lora_on_experts(model_type: str, targets: str | list[str]) -> None:
    """Tensor by tensor what PEFT makes of it; what PEFT refuses is refused."""
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    if (model_type, names) == ("phimoe", ("q_proj", "gate")):
        pytest.skip("its checkpoint calls gate what transformers calls router")
    options = {"method": "lora", "lora_rank": 4, "lora_target_modules": names}
    model = reference(model_type, "eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = peft.LoraConfig(r=4, target_modules=targets if isinstance(targets, str) else list(targets))
        try:
            model = peft.get_peft_model(model, config)
        except ValueError:
            with pytest.raises(UsageError):
                planned_states(model_type, **options)
            return
    found = planned_states(model_type, **options)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert shapes(found) == Counter(tuple(p.shape) for p in trained)
    assert found.trained_weight_bytes == sum(p.numel() * p.element_size() for p in trained)
    assert found.frozen_bytes == sum(p.numel() * p.element_size() for p in model.parameters() if not p.requires_grad)


@pytest.mark.parametrize("model_type", ["llama", "qwen2_moe", "qwen3_moe"])
def test_an_expression_may_name_one_layer(model_type: str) -> None:
    """PEFT goes by the whole name, except where experts are renamed: there it goes on with the names' last parts."""
    targets = r".*\.layers\.1\.self_attn\.(q_proj|v_proj)"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(reference(model_type, "eager"), peft.LoraConfig(r=4, target_modules=targets))
    found = planned_states(model_type, method="lora", lora_rank=4, lora_target_modules=(targets,))
    assert shapes(found) == Counter(tuple(p.shape) for p in model.parameters() if p.requires_grad)


def test_a_router_that_breaks_under_an_adapter_is_noted() -> None:
    model = reference("phimoe", "sdpa")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear"))
        with pytest.raises(AttributeError):
            model(input_ids=torch.zeros(1, 4, dtype=torch.long))
    recipe = resolve(Recipe(lora_target_modules=("all-linear",)))
    assert any("the forward fails" in note for note in inventory(planned("phimoe"), recipe).notes)


@pytest.mark.parametrize(("options", "peft_options", "field"), [
    ({"lora_dropout": 0.1}, {"lora_dropout": 0.1}, "lora_dropout"),
    ({"method": "dora"}, {"use_dora": True}, "method"),
])  # fmt: skip
def test_what_peft_refuses_on_experts(options: dict[str, object], peft_options: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match="does not work"):
        config = peft.LoraConfig(r=4, target_modules="all-linear", **peft_options)
        peft.get_peft_model(reference("qwen3_moe", "eager"), config)
    with pytest.raises(UsageError) as caught:
        planned_states("qwen3_moe", **{"method": "lora", "lora_target_modules": ("all-linear",), **options})
    assert caught.value.field == field


def test_experts_of_other_stacks_are_noted() -> None:
    recipe = resolve(Recipe(framework="torchtune", lora_target_modules=("all-linear",)))
    assert any("adapters on experts" in note for note in inventory(planned("mixtral"), recipe).notes)


def test_dora_has_a_magnitude_for_every_output() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], use_dora=True)
        model = peft.get_peft_model(reference("llama", "eager"), config)
    found = planned_states("llama", method="dora", lora_rank=4, lora_target_modules=("q_proj", "v_proj"))
    assert shapes(found) == Counter(tuple(p.shape) for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("sgd", lambda ps: torch.optim.SGD(ps, lr=0.1)),
        ("sgd_momentum", lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9)),
        ("adamw_torch_fused", lambda ps: torch.optim.AdamW(ps, fused=True)),
        ("adagrad", lambda ps: torch.optim.Adagrad(ps)),
    ],
)
def test_optimizer_states(name: str, build: object) -> None:
    parameters = list(reference("llama", "eager").parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = build(parameters)  # type: ignore[operator]
    optimizer.step()
    assert planned_states("llama", method="full", optim=name).optimizer_bytes == state_bytes(optimizer)


def test_adafactor_keeps_rows_and_columns() -> None:
    from transformers.optimization import Adafactor

    parameters = list(reference("llama", "eager").parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = Adafactor(parameters, lr=1e-3, relative_step=False, scale_parameter=False)
    optimizer.step()
    assert planned_states("llama", method="full", optim="adafactor").optimizer_bytes == state_bytes(optimizer)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gemma2", "falcon"])
def test_adafactor_step_temporary(model_type: str, dtype: str) -> None:
    """The second step of the real optimizer, whose states are there already; scalars (RMS) are not planned."""
    from transformers.optimization import Adafactor

    parameters = list(reference(model_type, "eager", getattr(torch, dtype)).parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = Adafactor(parameters, lr=1e-3, relative_step=False, scale_parameter=False)
    optimizer.step()
    held = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    memory = LiveMemory([*parameters, *(parameter.grad for parameter in parameters), *held])
    with memory:
        start = memory.mark()
        optimizer.step()
    found = planned_states(model_type, method="full", optim="adafactor", dtype=dtype)
    scalars = 8 * (len(parameters) + 4)
    assert memory.peak - start - scalars <= found.step_temporary_bytes() <= memory.peak - start


def test_eight_bit_adam_by_hand() -> None:
    """Llama-3.1-8B's q_proj: 4096 x 4096 bytes and 65536 absmax of 4 bytes, twice; a norm of 4096 is 8-bit too."""
    from planner.training.states.optimizers import optimizer

    eight = optimizer("adamw_bnb_8bit")
    assert eight.state_tensors((4096, 4096), 2) == (16_777_216, 262_144, 16_777_216, 262_144)
    assert eight.state_tensors((4096,), 2) == (4096, 64, 4096, 64)
    assert eight.state_tensors((4095,), 2) == (16_380, 16_380)  # below 4096 elements: fp32


def test_eight_bit_adam_against_bitsandbytes() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    parameters = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.bfloat16)) for shape in ((64, 128), (128,))]
    chosen = bitsandbytes.optim.AdamW8bit(parameters)
    for group_index, group in enumerate(chosen.param_groups):
        for index, parameter in enumerate(group["params"]):
            parameter.grad = torch.zeros_like(parameter)
            chosen.init_state(group, parameter, group_index, index)
    from planner.training.states.optimizers import optimizer

    ours = sum(sum(optimizer("adamw_bnb_8bit").state_tensors(tuple(p.shape), 2)) for p in parameters)
    assert ours == state_bytes(chosen)


def test_sixteen_bytes_a_parameter() -> None:
    """2 + 2 + 4 + 4 + 4 = 16: 8e9 parameters take 128 GB before an activation."""
    found = planned_states("llama", method="full", master_weights="fp32")
    total = found.trained_weight_bytes + found.gradient_bytes + found.master_bytes + found.optimizer_bytes
    assert total == 16 * found.trained_numel


def test_double_quantised_base() -> None:
    """NF4 of [352, 128]: 22528 B of values, 704 absmax in 8 bit, 3 second-level scales, code books."""
    found = planned_states("llama", method="qlora", bnb_4bit_use_double_quant=True, prepare_kbit=False)
    plain = planned_states("llama", method="qlora", prepare_kbit=False)
    assert found.frozen_bytes < plain.frozen_bytes + 3 * 7 * 1092
    gate = math.ceil(352 * 128 / 2) + 704 + 3 * 4
    assert gate == 23_244
