"""Writes the figures of a hundred plans by a checkout, which the tests compare with this tree's.

    python benchmarks/figures_before.py TREE [--plans 100] > tests/engines/vllm/data/figures_before.jsonl

TREE is planned with this interpreter and its own `planner` package, as benchmarks/same_figures.py does. Rows whose
release or term is changed on purpose are written anew from the tree that changes them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from same_figures import answers, questions


def main() -> None:
    """Print a row for each question: the question and its figures."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("tree", type=Path)
    reader.add_argument("--plans", type=int, default=100)
    asked = reader.parse_args()
    names = sorted(path.stem for path in (asked.tree / "model_configs").glob("*.json"))
    names = [name.replace("--", "/", 1) for name in names if not name.startswith("_")]
    # spread over all models, and a number of them that shares no factor with the axes
    asks = [one for one in questions(names[:: max(1, len(names) // 97)], asked.plans) if one["kind"] == "serve"]
    for question, answer in zip(asks, answers(asked.tree, asks), strict=True):
        answer.pop("~", None)  # what rules decide: verdicts, longest contexts, ends of bands
        print(json.dumps({"asked": question, "figures": answer}))


if __name__ == "__main__":
    main()
