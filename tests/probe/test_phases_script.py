"""benchmarks/phases_on_gpu.py: its 24 configurations are planned; what it measures needs a GPU."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

_PATH = Path(__file__).parents[2] / "benchmarks" / "phases_on_gpu.py"


def test_every_configuration_has_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("phases_on_gpu", _PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["phases_on_gpu"] = module
    spec.loader.exec_module(module)
    kinds = Counter(one.kind for one in module.configurations())
    assert kinds == {"eager": 4, "tower": 6, "grpo": 6, "mlm": 4, "deepspeed": 4}
    assert module.main(["--plans"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 24 and all(line.endswith("B planned") for line in lines)
