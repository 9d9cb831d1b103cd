"""Write docs/accuracy.md from its five generated pages, and the README's accuracy table from the bundled cases.

The pages: `vram-planner validate --accuracy-page > docs/accuracy_serving.md`, `python -m tests.diagnosis.accuracy`, and
docs/accuracy_training.md and docs/accuracy_probe.md as tests/validation writes them.

python tools/refresh_accuracy.py
"""

from __future__ import annotations

from pathlib import Path

from planner.contract.start_log import COMMAND_LINE
from planner.engines.vllm.log.beside import GIVEN_KV
from planner.report.measured.accuracy import campaign_rows
from planner.validation.cases import bundled_vllm_cases
from planner.validation.scoring import score, statistics

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
    rows, _ = score(cases)
    parts = [
        "# Accuracy",
        "Five pages in one: serving, llama.cpp, fine-tunes, the probe, out-of-memory messages. Each is generated.",
    ]
    for name in (
        "accuracy_serving.md",
        "accuracy_llama_cpp.md",
        "accuracy_training.md",
        "accuracy_probe.md",
        "accuracy_oom.md",
    ):
        parts.append(_one_level_down((ROOT / "docs" / name).read_text()).strip())
    (ROOT / "docs" / "accuracy.md").write_text("\n\n".join(parts) + "\n")

    campaign = campaign_rows(rows)
    lines = ["| figure | mean | worst | n |", "|---|---:|---:|---:|"]
    for component, mode, label in SHOWN:
        errors = statistics([row for row in campaign if row.component == component and row.mode == mode])
        if errors is not None:
            lines.append(
                f"| {label} | {100 * errors.mean_absolute:.2f}% | {100 * abs(errors.worst):.1f}% | {errors.n} |"
            )
    readme = ROOT / "README.md"
    before, _, after = readme.read_text().partition("<!-- accuracy -->\n")
    _, _, rest = after.partition("\nAll cases,")
    readme.write_text(before + "<!-- accuracy -->\n\n" + "\n".join(lines) + "\n\nAll cases," + rest)


def _one_level_down(page: str) -> str:
    """The page with every heading one level deeper."""
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in page.splitlines())


if __name__ == "__main__":
    main()
