"""The bundled configs as data: strict JSON, sorted, with a source; and they agree with the reference counts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "model_configs").glob("*.json"))
COUNTS = {
    row["model"]: row
    for row in map(json.loads, (ROOT / "tests/reference/param_counts.jsonl").read_text(encoding="utf-8").splitlines())
}
CONFIDENCES = {
    "verbatim",
    "verbatim+reconstructed-vision",
    "copied-config",
    "sibling",
    "quant-variant",
    "reconstructed-exact",
    "reconstructed-uncorroborated",
}
# Order may matter inside a quantisation config (rules are tried in turn), so it is kept as published.
AS_PUBLISHED = {"quantization_config", "compression_config", "_hf_quant_config"}
NOISE = {"transformers_version", "bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "initializer_range"}


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def sections(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield config
    for key, value in config.items():
        if isinstance(value, dict) and key not in AS_PUBLISHED:
            yield from sections(value)


def test_every_reference_count_has_its_config() -> None:
    assert {path.stem.replace("--", "/", 1) for path in CONFIGS} >= set(COUNTS)
    assert len(COUNTS) >= 489


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_is_sorted_sourced_and_free_of_noise(path: Path) -> None:
    config = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse_constant)
    assert isinstance(config["model_type"], str)
    assert config["architectures"]
    for section in sections(config):
        assert list(section) == sorted(section)
        assert not NOISE & set(section)
    source = config["_source"]
    assert source["confidence"] in CONFIDENCES
    assert source["source"]
    count = COUNTS.get(path.stem.replace("--", "/", 1))
    if count is not None and source["count_status"] == "exact":
        counted = count["published"] if count["total_params"] is None else count["total_params"]
        assert source["params_total"] == counted
