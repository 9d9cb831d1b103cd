"""Write docs/accuracy.md and the README's accuracy table from the bundled cases.

python tools/refresh_accuracy.py
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

from planner.report.validation import accuracy_page
from planner.validation.cases import bundled_vllm_cases
from planner.validation.scoring import COMMAND_LINE, GIVEN_KV, once_per_start, score, statistics

ROOT = Path(__file__).resolve().parents[1]
SHOWN = (
    ("weights", COMMAND_LINE, "weights per GPU"),
    ("activation_peak", COMMAND_LINE, "activation peak"),
    ("kv_cache", COMMAND_LINE, "KV cache memory"),
    ("concurrency", COMMAND_LINE, "maximum concurrency"),
    ("tokens", GIVEN_KV, "tokens, given the printed KV memory"),
)


def main() -> None:
    cases = bundled_vllm_cases()
    rows, unscored = score(cases)
    parts = ["# Accuracy\n\nThree pages in one: serving, fine-tunes, out-of-memory messages.\n"]
    parts.append("# Serving\n\n" + _demoted(accuracy_page(cases, rows, unscored, date=date.today().isoformat())))
    for name in ("accuracy_training.md", "accuracy_oom.md"):
        page = ROOT / "docs" / name
        if page.exists():
            parts.append(page.read_text())
    (ROOT / "docs" / "accuracy.md").write_text("\n".join(parts).rstrip() + "\n")

    campaign = [row for row in rows if row.case.id.startswith("llmd-") and row.group[4] == "1"]
    lines = ["| figure | mean | worst | n |", "|---|---:|---:|---:|"]
    for component, mode, label in SHOWN:
        errors = statistics(
            once_per_start([row for row in campaign if row.component == component and row.mode == mode])
        )
        if errors is not None:
            lines.append(
                f"| {label} | {100 * errors.mean_absolute:.2f}% | {100 * abs(errors.worst):.1f}% | {errors.n} |"
            )
    readme = ROOT / "README.md"
    before, _, after = readme.read_text().partition("<!-- accuracy -->\n")
    _, _, rest = after.partition("\nAll cases,")
    readme.write_text(before + "<!-- accuracy -->\n\n" + "\n".join(lines) + "\n\nAll cases," + rest)


def _demoted(page: str) -> str:
    """The page without a heading of its own."""
    return page.partition("\n")[2].lstrip() if page.startswith("# ") else page


if __name__ == "__main__":
    main()
