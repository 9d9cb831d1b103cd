"""Ollama's rules by release, against what its scheduler printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.cli.words.questions import ask
from planner.contract.engine import find_engine
from planner.contract.workload import Workload
from planner.engines.llama_cpp.plan import LlamaPlan
from planner.engines.ollama.estimate import cache_bytes, graph_bytes
from planner.engines.ollama.releases import day_of, default_batch, default_context
from planner.errors import UsageError
from planner.model.load import load_model
from planner.units import GIB, MIB


def plan(words: str) -> LlamaPlan:
    asked = ask(["--engine", "ollama", *words.split()], Workload, about="", name="serve")
    assert asked is not None
    found = asked.engine.plan(asked.model, asked.deployment)
    assert isinstance(found, LlamaPlan)
    return found


def test_the_estimate_until_2025() -> None:
    """Llama-3.2-3B, four slots of 2,048 tokens, 0.3.12: kv 0.875 GiB, graph 424.0 MiB, as its log printed."""
    spec = load_model("meta-llama/Llama-3.2-3B-Instruct").spec
    assert cache_bytes(spec, 8192, "f16") == round(0.875 * GIB)
    assert graph_bytes(spec, 8192, 512) / MIB == pytest.approx(424.0, abs=0.05)


def test_a_quantised_cache_counts_as_whole_and_half_bytes() -> None:
    spec = load_model("meta-llama/Llama-3.2-3B-Instruct").spec
    full = cache_bytes(spec, 8192, "f16")
    assert [cache_bytes(spec, 8192, kind) * 4 // full for kind in ("q8_0", "q4_0")] == [2, 1]


@pytest.mark.parametrize(
    ("release", "gib", "expected"),
    [
        ("0.3.12", 24, 2048),
        ("0.7.0", 24, 4096),
        ("0.17.0", 12, 4096),
        ("0.17.0", 24, 32768),
        ("0.17.0", 80, 262144),
        ("2025-04-27", 24, 2048),
        ("2025-04-28", 24, 4096),
        ("0.99.0", 12, 4096),
    ],
)
def test_num_ctx_by_release_and_memory(release: str, gib: int, expected: int) -> None:
    assert default_context(day_of(release), gib * GIB) == expected


def test_num_batch_by_the_context_of_all_slots() -> None:
    day = day_of("0.24.0")
    assert [default_batch(day, size) for size in (4096, 8192, 32768, 65536)] == [512, 1024, 1024, 2048]
    assert default_batch(day_of("0.17.0"), 65536) == 512


def test_a_cache_type_needs_flash_attention_by_the_variable() -> None:
    """Llama-3.2-3B at 131,072 tokens: 14,336 MiB printed although a q8_0 cache was asked for."""
    words = "meta-llama/Llama-3.2-3B-Instruct -q Q4_K_M --gpu h100 --engine-version 2026-04 --num-ctx 131072"
    found = plan(f"{words} --kv-cache-type q8_0")
    assert found.buffers is not None
    assert found.buffers.caches == 14336 * MIB
    assert any("has no effect" in note for note in found.notes)
    with_flash = plan(f"{words} --kv-cache-type q8_0 --flash-attention")
    assert with_flash.buffers is not None
    assert with_flash.buffers.caches == 14336 * MIB * 34 // 64


def test_the_output_layer_is_dropped_first() -> None:
    """A model that is a little too large keeps its layers and leaves the output layer in RAM."""
    for size in range(4400, 6000, 100):
        found = plan(
            f"Qwen/Qwen2.5-7B-Instruct -q Q4_K_M --gpu-memory {size}MiB --engine-version 2026-02 --num-ctx 8192"
        )
        assert found.run is not None
        placement = found.run.placement
        if placement.offloaded == placement.layers:
            assert placement.device_of(placement.layers) == placement.host
            assert placement.device_of(placement.layers - 1) == 0
            return
    pytest.fail("no size leaves the output layer out")


def test_slots_have_caches_of_their_own() -> None:
    found = plan("qwen3:8b --gpu 4090 --num-ctx 8192 --num-parallel 2")
    assert found.run is not None
    assert (found.run.geometry.streams, found.run.geometry.cells) == (2, 8192)
    assert found.run.geometry.n_ctx == 16384


def test_a_tag_of_the_library_is_its_usual_file() -> None:
    """qwen3:8b is Q4_K_M: 4,455 MiB of it on the card."""
    found = plan("qwen3:8b --gpu 4090")
    assert found.buffers is not None
    assert found.buffers.model[0] / MIB == pytest.approx(4455.3, abs=1)


def test_a_modelfiles_parameters_count(tmp_path: Path) -> None:
    file = tmp_path / "Modelfile"
    file.write_text("FROM qwen3:8b\nPARAMETER num_ctx 12288\nparameter num_gpu 20\nPARAMETER temperature 0.6\n")
    found = plan(f"qwen3:8b --gpu 4090 --modelfile {file}")
    assert found.run is not None
    assert found.run.geometry.n_ctx == 12288
    assert found.run.placement.offloaded == 20
    with pytest.raises(UsageError, match="cannot be read"):
        plan(f"qwen3:8b --gpu 4090 --modelfile {tmp_path / 'none'}")


def test_the_printed_command_gives_the_plan_again() -> None:
    first = plan("qwen3:8b --gpu 4090 --num-ctx 8192 --kv-cache-type q8_0 --flash-attention")
    command = list(find_engine("ollama").command(first))
    asked = ask([*command, "--gpu", "4090"], Workload, about="", name="serve")
    assert asked is not None
    again = asked.engine.plan(asked.model, asked.deployment)
    assert isinstance(again, LlamaPlan)
    assert again.buffers == first.buffers
