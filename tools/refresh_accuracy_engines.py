"""Writes docs/accuracy_sglang.md from the bundled starts; a test checks that it is fresh.

python tools/refresh_accuracy_engines.py
"""

from __future__ import annotations

from pathlib import Path

from planner.report.measured.accuracy_engines import engines_page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy_sglang.md"

if __name__ == "__main__":
    PAGE.write_text(engines_page(), encoding="utf-8")
