"""What a model type implies elsewhere: `data/implied.csv` has a row for every type, and says where each stands.

The facts themselves lie where they are used (PEFT's targets, dropout, habits of training, llama.cpp's graphs, GGUF
architectures). A type that is added to the registry, or to one of those tables, without a row here fails by its name: a
missing entry is then a decision ("usual", "refused", "-") and not an oversight.
"""

from __future__ import annotations

import csv
import json
from importlib.resources import files
from pathlib import Path

from planner.engines.llama_cpp.graph.style import styles
from planner.model import dropout
from planner.model.families.registry import MODULE_OF

ROWS = {
    row["model_type"]: row
    for row in csv.DictReader((Path(__file__).parent / "data" / "implied.csv").read_text().splitlines())
}


# Types of transformers that the habits name and no family reads yet.
NOT_READ = {"afmoe", "laguna", "qwen2_vl_text"}


def habits() -> dict[str, set[str]]:
    """Model type -> the habits of training that name it."""
    found: dict[str, set[str]] = {}
    table = json.loads(files("planner.training.stacks").joinpath("habits.json").read_text("utf-8"))
    for habit, row in table.items():
        for model_type in row["models"]:
            found.setdefault(model_type, set()).add(habit)
    assert set(found) >= NOT_READ, "a type that is read now, or gone: take it out of NOT_READ"
    return found


def lora_defaults() -> set[str]:
    return set(
        json.loads(files("planner.training.states").joinpath("lora_defaults.json").read_text("utf-8"))["targets"]
    )


def test_every_type_has_a_row() -> None:
    missing, left_over = set(MODULE_OF) - set(ROWS), set(ROWS) - set(MODULE_OF)
    assert not missing, f"without a row in tests/model/data/implied.csv: {sorted(missing)}"
    assert not left_over, f"rows of no model type: {sorted(left_over)}"


def actual(model_type: str) -> dict[str, str]:
    """Where the tables have the type, in the words of the rows."""
    return {
        "peft_targets": "own" if model_type in lora_defaults() else "usual",
        "dropout": "own" if model_type in dropout._KEYS else "usual",
        "habits": " ".join(sorted(habits().get(model_type, ()))) or "-",
        "llama_cpp_graph": styles()[model_type].architecture if model_type in styles() else "refused",
    }


def test_the_rows_say_where_each_type_stands() -> None:
    wrong = {}
    for model_type, row in ROWS.items():
        said = {key: value for key, value in row.items() if key != "model_type"}
        if said != actual(model_type):
            wrong[model_type] = {
                key: (said[key], value) for key, value in actual(model_type).items() if said[key] != value
            }
    assert not wrong, f"(said, found): {wrong}"


def test_the_tables_name_types_that_are_known() -> None:
    for table, names in (
        ("habits.json", set(habits())),
        ("dropout.py", set(dropout._KEYS)),
        ("styles.csv", set(styles())),
    ):
        assert names <= set(MODULE_OF) | NOT_READ, f"{table}: {sorted(names - set(MODULE_OF))}"
