"""Writes docs/accuracy_speed.md from the bundled speeds; a test checks that it is fresh.

python tools/refresh_accuracy_speed.py
"""

from __future__ import annotations

from pathlib import Path

from planner.report.measured.accuracy_speed import speed_page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy_speed.md"

if __name__ == "__main__":
    PAGE.write_text(speed_page(), encoding="utf-8")
