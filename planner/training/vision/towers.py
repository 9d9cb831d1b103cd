"""What a vision tower keeps for backward, in bytes: per patch and layer (a h + b f + 4 heads + 8) in 16 bit.

h hidden size, f feed-forward width of the tower. `towers.csv` has a and b for a tower that is trained, and for one that
is frozen but inside the graph, as transformers 5 puts it when adapters want gradients at every input embedding (pull
request 41993); outside the graph nothing is kept. A checkpointed tower keeps each block's input, 2 h.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal

from planner.errors import UnsupportedArchitecture

Place = Literal["trained", "frozen", "outside"]
_WORST_CELL: Final = (
    16  # bytes of a score at softmax backward on CUDA: result, gradient, their product, scores' gradient
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """A tower's shape and its row of coefficients.

    Args:
        taped: bytes a patch and layer, trained and frozen, of a tower without a row: its layer run on the tape.
    """

    kind: str
    hidden_size: int
    intermediate_size: int
    heads: int
    layers: int
    taped: tuple[int, int] | None = None

    def block_bytes(self, place: Place) -> int:
        """One layer's saved tensors for one patch."""
        if self.taped is not None:
            return 0 if place == "outside" else self.taped[0 if place == "trained" else 1]
        row = _row(self.kind)
        if place == "outside" or (place == "frozen" and not int(row["hooks"])):
            return 0
        wide, deep = int(row[f"{place}_h"]), int(row[f"{place}_f"])
        return wide * self.hidden_size + deep * self.intermediate_size + 4 * self.heads + 8

    def saved_bytes(self, patches: int, place: Place, *, checkpointed: bool = False) -> int:
        """What forward leaves for backward."""
        block = self.block_bytes(place)
        if checkpointed and block:
            block = 2 * self.hidden_size
        return block * self.layers * patches

    def recomputed_bytes(self, patches: int) -> int:
        """One block run again in backward."""
        return self.block_bytes("trained") * patches

    def score_bytes(self, patches: int) -> tuple[int, int]:
        """Eager attention over patches that all see each other: what a layer saves, and its worst moment."""
        cells = self.heads * patches * patches
        return int(_row(self.kind)["eager_cell"]) * cells, _WORST_CELL * cells


def known_tower(model_type: str, *, gated: bool = False) -> str | None:
    """The row for a vision part's model_type; None where there is none.

    Args:
        gated: its feed-forward has a gate (Pixtral's tower inside LLaVA's class; CLIP's has none).
    """
    name = model_type.removesuffix("_vision_model").removesuffix("_vision").removesuffix("_moe")
    aliases = {
        "gemma3": "siglip",
        "paligemma": "siglip",
        "llava": "clip",
        "llava_next": "clip",
        "mistral3": "pixtral",
        "qwen3_5": "qwen3_vl",
        "internvl": "internvl",
    }
    name = "pixtral" if name == "llava" and gated else aliases.get(name, name)
    return name if name in _rows() else None


@cache
def _rows() -> Mapping[str, Mapping[str, str]]:
    text = files("planner.training").joinpath("vision/towers.csv").read_text("utf-8")
    return {row["tower"]: row for row in csv.DictReader(text.splitlines())}


def _row(kind: str) -> Mapping[str, str]:
    found = _rows().get(kind)
    if found is None:
        raise UnsupportedArchitecture(f"the training memory of {kind} towers is not modelled", field="model_type")
    return found
