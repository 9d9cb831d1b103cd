"""The public API: a dozen names, typed, and cheap to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import planner


def test_every_public_name_exists_and_is_documented() -> None:
    for name in planner.__all__:
        value = getattr(planner, name)
        if name != "__version__":
            assert value.__doc__, name
    assert sorted(planner.__all__) == list(planner.__dir__())
    assert (Path(planner.__file__).parent / "py.typed").exists()


def test_importing_costs_nothing_heavy() -> None:
    code = (
        "import sys, planner; from planner import load_model, plan_serving; "
        "load_model('Qwen/Qwen3-8B'); "
        "heavy = ('torch', 'huggingface_hub', 'typer', 'pydantic', 'transformers'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_command_does_not_import_the_hub() -> None:
    code = (
        "import sys; sys.argv = 'vram-planner serve Qwen/Qwen3-8B --gpu H100 --max-model-len 8192'.split()\n"
        "from planner.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'huggingface_hub', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"
