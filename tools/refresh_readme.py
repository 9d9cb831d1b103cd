"""Put the output of the README's main job under it, as it prints today.

python tools/refresh_readme.py
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def main() -> None:
    text = README.read_text()
    command = re.search(r"<!-- ci: main job -->\n```sh\n(.*?)\n```", text, re.DOTALL)
    if command is None:
        raise SystemExit("README.md has no marked main job")
    line = command[1][command[1].rindex("vram-planner serve") :]
    words = [sys.executable, "-m", "planner.cli", *shlex.split(line)[1:]]
    output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    trimmed = "\n".join(row.rstrip() for row in output.splitlines())
    before, _, after = text.partition("<!-- output: main job -->\n```\n")
    README.write_text(f"{before}<!-- output: main job -->\n```\n{trimmed}\n```{after.partition('```')[2]}")


if __name__ == "__main__":
    main()
