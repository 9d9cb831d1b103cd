"""What is said of a class that a release of vLLM may not serve."""

from __future__ import annotations

from planner.engines.vllm.tables.architectures import architecture_note


def test_a_file_that_does_not_name_its_class_gets_no_note() -> None:
    assert architecture_note("", "0.19.0") is None


def test_a_class_that_no_release_has_is_named() -> None:
    note = architecture_note("NoSuchForCausalLM", "0.19.0")
    assert note is not None
    assert "NoSuchForCausalLM" in note


def test_a_class_every_release_has_gets_no_note() -> None:
    assert architecture_note("LlamaForCausalLM", "0.19.0") is None
