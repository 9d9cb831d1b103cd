"""Exports by their names: the bytes of real ones, whose layout was matched to the stored number of elements."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

import pytest

from planner.memory.quantisation import scheme_from_config
from planner.model.load import load_model
from planner.model.model import Model
from planner.model.names.exports import export_rules
from planner.model.names.storage import stated_config
from planner.model.tensors import draft_tensors, tensors

DATA = Path(__file__).parent / "data"
# Exporters who keep a set of blocks that the name does not say.
MIXED = ("cyankiwi/",)


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((DATA / name).read_text().splitlines()))


def stored_bytes(model: Model, *, drafts: bool = False, second_head: bool = False) -> int:
    scheme = scheme_from_config(model.spec)
    found = [tensor for tensor in tensors(model.spec) if not tensor.buffer]
    found += [tensor for tensor in draft_tensors(model.spec) if drafts and not tensor.buffer]
    total = sum(scheme.format_of(tensor).bytes(tensor.shape, tensor.input_dim) for tensor in found)
    return total + (2 * model.spec.vocab_size * model.spec.hidden_size if second_head else 0)


def test_the_names_alone_give_the_bytes_of_the_exports() -> None:
    wrong = {}
    table = [row for row in rows("export_bytes.csv") if not row["export"].startswith(MIXED)]
    for row in table:
        planned = stored_bytes(
            load_model(row["export"]), drafts=bool(row["drafts_stored"]), second_head=bool(row["head_stored_twice"])
        )
        error = planned / int(row["stored_bytes"]) - 1
        if abs(error) > 0.005:
            wrong[row["export"]] = round(100 * error, 2)
    assert len(table) >= 250
    assert len(wrong) <= 0.03 * len(table), wrong


def test_gguf_by_ollamas_tag_or_by_the_mix() -> None:
    errors = []
    for row in rows("gguf_bytes.csv"):
        model = load_model(row["tag"] or f"{row['model']}:{row['mix']}")
        errors.append(abs(stored_bytes(model) / 1e9 / float(row["stated_gb"]) - 1))
    assert len(errors) == 30
    assert median(errors) < 0.015


def test_every_kind_of_export_name() -> None:
    # what each name says: its base in the bundled spelling, and the storage by the rule of its ending
    for row in rows("export_kinds.csv"):
        model = load_model(row["name"])
        config = model.spec.quantization_config or {}
        stored = config.get("mix") or scheme_from_config(model.spec).label
        assert (model.base, stored) == (row["base"], row["stored_as"]), row["name"]
        assert model.spec.assumed, row["name"]
        assert model.notes, row["name"]


def test_the_first_exports_of_deepseek_keep_attention_and_the_second_pack_its_output() -> None:
    # the tensor list of R1-0528-FP4: o_proj [7168, 16384] BF16; 61 layers x 7,168 x 16,384 at 2 B against 4.5 bits
    first, second = (load_model(f"nvidia/DeepSeek-R1-0528-FP4{end}") for end in ("", "-v2"))
    packed = 61 * 7168 * 16384
    difference = stored_bytes(first) - stored_bytes(second)
    assert abs(difference - packed * (2 - 9 / 16)) < 1 << 20
    assert first.spec.stated_kv_cache_dtype == "fp8"


def test_a_model_that_is_released_in_four_bits_is_planned_so() -> None:
    # experts of Kimi-K2-Thinking: 60 layers x 384 x 3 x 7,168 x 2,048 at 4 bits and a 16-bit scale for 32
    model = load_model("moonshotai/Kimi-K2-Thinking")
    experts = 60 * 384 * 3 * 7168 * 2048
    rest = model.parameters - experts
    assert abs(stored_bytes(model) - (experts * 4.5 / 8 + 2 * rest)) < 0.002 * stored_bytes(model)


@pytest.mark.parametrize(
    ("name", "base", "method"),
    [
        ("unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "unsloth/Llama-3.3-70B-Instruct", "bitsandbytes"),
        ("nobody/Llama-3.1-8B-Instruct-AWQ-INT4", "meta-llama/Llama-3.1-8B-Instruct", "awq"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507-GPTQ-Int8", "Qwen/Qwen3-30B-A3B-Thinking-2507", "gptq"),
        ("someone/qwen3-14b-w4a16-g64", "Qwen/Qwen3-14B", "compressed-tensors"),
        ("mlx-community/Qwen3-8B-4bit", "Qwen/Qwen3-8B", "mlx"),
        ("lmstudio-community/Qwen3.8-27B-MLX-6bit", "Qwen/Qwen3.8-27B", "mlx"),
        ("bartowski/Qwen_Qwen3-8B-GGUF", "Qwen/Qwen3-8B", "gguf"),
        ("models/Meta-Llama-3.1-8B-Instruct-Q5_K_M.gguf", "meta-llama/Llama-3.1-8B-Instruct", "gguf"),
        ("turboderp/Llama-3.1-8B-Instruct-4.0bpw-exl2", "meta-llama/Llama-3.1-8B-Instruct", "exl2"),
    ],
)
def test_an_export_is_its_base_in_another_storage(name: str, base: str, method: str) -> None:
    model = load_model(name)
    assert (model.base, model.spec.quantization_config["quant_method"]) == (base, method)  # type: ignore[index]
    assert model.spec.assumed
    assert base in model.notes[0]
    assert model.parameters == load_model(base).parameters


def test_the_format_is_the_exports_own() -> None:
    # 8 bits a weight, not 4: 36 layers x (4096 x (4096 + 2 x 1024 + 4096) + 3 x 4096 x 12288) elements at one byte
    linear = 36 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 12288)
    eight, four = (stored_bytes(load_model(f"nobody/Qwen3-8B-GPTQ-Int{bits}")) for bits in (8, 4))
    assert linear / 2 < eight - four < linear / 2 * 1.01  # zero points of 8 and of 4 bits
    double = load_model("unsloth/Qwen3-8B-bnb-4bit").spec.quantization_config
    assert double is not None
    assert double["bnb_4bit_use_double_quant"] is True
    assert load_model("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8").spec.quantization_config["weight_block_size"]  # type: ignore[index]
    assert load_model("RedHatAI/Qwen3-14B-FP8-dynamic").spec.stated_kv_cache_dtype is None
    assert load_model("nvidia/Qwen3-14B-NVFP4").spec.stated_kv_cache_dtype == "fp8"
    assert load_model("nvidia/Llama-3.3-70B-Instruct-FP8").spec.stated_kv_cache_dtype == "fp8"


def test_the_padded_72b_exports() -> None:
    # 80 layers x 3 matrices x 8,192 x (29,696 - 29,568) more elements than the base
    base = load_model("Qwen/Qwen2.5-72B-Instruct").parameters
    assert load_model("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8").parameters == base + 251_658_240
    assert load_model("Qwen/Qwen2-72B-Instruct-AWQ").parameters == load_model("Qwen/Qwen2-72B").parameters + 251_658_240
    assert load_model("nobody/Qwen2.5-72B-Instruct-AWQ").parameters == base


def test_whole_kinds_of_block_are_kept_by_maker_and_family() -> None:
    for name, kept in (
        ("nvidia/Gemma-4-31B-IT-NVFP4", "self_attn.q_proj"),
        ("nvidia/Kimi-K2-Instruct-NVFP4", "shared_experts.gate_proj"),
        ("Qwen/Qwen3.6-27B-GPTQ-Int4", "self_attn.q_proj"),
    ):
        model = load_model(name)
        scheme = scheme_from_config(model.spec)
        formats = {t.name.split(".", 3)[-1]: scheme.format_of(t).name for t in tensors(model.spec) if t.linear}
        assert {form for part, form in formats.items() if kept in part} == {"bfloat16"}
        assert len(set(formats.values())) == 2


def test_what_the_name_does_not_decide_has_a_band() -> None:
    for name in ("unsloth/Qwen3-8B-unsloth-bnb-4bit", "unsloth/Qwen3-8B-GGUF:UD-Q4_K_XL"):
        below, above = scheme_from_config(load_model(name).spec).spread
        assert above > 0
        assert below <= above
    assert scheme_from_config(load_model("unsloth/Qwen3-8B-bnb-4bit").spec).spread == (0, 0)


def test_every_rule_says_why_and_can_be_stated() -> None:
    for rule in export_rules():
        assert rule.evidence
        assert rule.source
        if rule.storage and "{" not in rule.storage:
            assert stated_config(rule.storage, group_size=rule.group_size, keeps=rule.keeps)["quant_method"]
