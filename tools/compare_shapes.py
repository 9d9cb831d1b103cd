"""Compare the weight tensors of every bundled config with those that transformers builds on the meta device.

    PYTHONPATH=. python tools/compare_shapes.py

A config that differs from another only in what changes no tensor is compared once. Takes some minutes; the gate
compares one config of every model type (tests/reference/test_every_config.py) and the totals of all.
"""

from __future__ import annotations

import json

from tests.reference.meta_model import class_names
from tests.reference.test_every_config import CONFIGS, NOT_IN_TRANSFORMERS, assert_same_tensors, name_of

NO_SHAPE = {"_source", "_hf_quant_config", "quantization_config", "torch_dtype", "dtype", "rope_theta"}


def main() -> None:
    seen: set[str] = set()
    wrong = []
    for path in CONFIGS:
        values = json.loads(path.read_text())
        shape = json.dumps({key: value for key, value in values.items() if key not in NO_SHAPE}, sort_keys=True)
        if values["model_type"] in NOT_IN_TRANSFORMERS or shape in seen:
            continue
        seen.add(shape)
        try:
            assert_same_tensors(values, class_names()[name_of(path)])
        except AssertionError:
            wrong.append(name_of(path))
    print(f"{len(seen)} shapes compared, {len(wrong)} differ: {wrong}")


if __name__ == "__main__":
    main()
