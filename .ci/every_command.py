"""Run every command of an installed vram-planner once, as a user does, and say which did not answer.

    python .ci/every_command.py VENV/bin/vram-planner

Exit status 1 when a command ends otherwise than it should, or prints less than its answer.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB"
    " of which 1.00 GiB is free.\n"
)
# words, exit status, what the answer has to hold
COMMANDS = (
    (["--version"], 0, "."),
    (["--help"], 0, "diagnose"),
    (["serve", "Qwen/Qwen3-8B", "--gpu", "H100"], 0, "vllm serve"),
    (["serve", "Qwen/Qwen3-8B", "--gpu", "T4", "--format", "json"], 1, '"levers"'),
    (["serve", "Qwen/Qwen3-8B", "--engine", "llama.cpp", "-q", "Q4_K_M", "--gpu", "4090"], 0, "llama-server"),
    (["serve", "Qwen/Qwen3-8B", "--gpu", "banana"], 2, "banana"),
    (["explain", "Qwen/Qwen3-8B", "--gpu", "H100"], 0, "weights"),
    (["train", "Qwen/Qwen3-8B", "--gpu", "H100"], 0, "optimizer"),
    (["plan", "docker run vllm/vllm-openai:v0.19.0 --model Qwen/Qwen3-8B", "--gpu", "H100"], 0, "0.19.0"),
    (["pick", "Qwen/Qwen3-8B"], 0, "vllm serve"),
    (["compare", "Qwen/Qwen3-8B", "--gpu", "H100"], 0, "fits"),
    (["diagnose", "MESSAGE"], 0, "--more"),
    (["size", "Qwen/Qwen3-8B", "--gpu", "H100", "--users", "10"], 0, "vllm serve"),
    (["models"], 0, "Qwen"),
    (["gpus"], 0, "H100"),
    (["formats"], 0, "awq"),
    (["engines"], 0, "vllm"),
    (["schema"], 0, "serve"),
    (["check", "MESSAGE"], 2, ""),
    (["probe", "--help"], 0, "Usage"),
    (["validate"], 0, "%"),
)


def main() -> int:
    program = str(Path(sys.argv[1]).absolute())
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        message = Path(folder, "message.txt")
        message.write_text(MESSAGE, encoding="utf-8")
        for words, status, holds in COMMANDS:
            line = [program, *(str(message) if word == "MESSAGE" else word for word in words)]
            done = subprocess.run(line, capture_output=True, text=True, cwd=folder, timeout=120)
            if done.returncode != status or holds not in done.stdout + done.stderr:
                faults += 1
                last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing printed"]
                print(f"vram-planner {' '.join(words)}: exit {done.returncode}, expected {status}: {last[0][:200]}")
    print(f"{len(COMMANDS) - faults} of {len(COMMANDS)} commands answer")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
