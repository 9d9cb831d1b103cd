"""The house: a folder has at most 15 modules, a function at most 80 lines; what has more says why here."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "planner"
MOST_MODULES, MOST_LINES = 15, 80
# one module for each kind of model, and one for each program whose messages are read
WIDE_FOLDERS = {"model/families", "diagnosis/messages/wordings"}
LONG_FUNCTIONS = {
    # an interpreter: one branch for each operation of the format
    "diagnosis/states/plain_pickle.py:_run",
    # the order in which names go out of scope is what it measures
    "training/tape/profiles.py:profile",
}


def test_folders() -> None:
    counted = {folder: len(list(folder.glob("*.py"))) for folder in ROOT.rglob("*") if folder.is_dir()}
    wide = {str(folder.relative_to(ROOT)) for folder, count in counted.items() if count > MOST_MODULES}
    assert wide == WIDE_FOLDERS


def test_functions() -> None:
    long = set()
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= MOST_LINES:
                long.add(f"{file.relative_to(ROOT)}:{node.name}")
    assert long == LONG_FUNCTIONS
