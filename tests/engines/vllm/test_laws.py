"""Laws that every plan obeys, over random models, cards and workloads."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import Deployment, Model, plan_serving
from planner.contract.lengths import parse_lengths
from planner.contract.workload import Workload
from planner.errors import UsageError
from planner.memory.parallel.sharding import Parallelism, local_shape, stage_layer_counts
from planner.memory.quantisation import plain_scheme
from planner.memory.weights import stage_weights
from planner.model.load import model_from_config
from planner.model.tensors import tensors
from planner.units import GIB, format_size, parse_size

HEAD_DIM = 64


def model(layers: int, heads: int, groups: int, inner: int, vocabulary: int, window: int | None = None) -> Model:
    return model_from_config(
        {
            "model_type": "mistral",
            "hidden_size": heads * HEAD_DIM,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads // groups,
            "vocab_size": vocabulary,
            "max_position_embeddings": 32768,
            "torch_dtype": "bfloat16",
            "sliding_window": window,
        },
        name="random", origin="test",
    )  # fmt: skip


models = st.builds(
    model,
    layers=st.integers(1, 40),
    heads=st.sampled_from([8, 16, 32]),
    groups=st.sampled_from([1, 2, 4, 8]),
    inner=st.sampled_from([512, 2048, 8192]),
    vocabulary=st.sampled_from([1000, 32000, 128256]),
    window=st.sampled_from([None, 512, 4096]),
)
deployments = st.builds(
    Deployment,
    gpu_memory_bytes=st.integers(8, 96).map(lambda size: size * GIB),
    max_model_len=st.sampled_from([256, 2048, 8192, 32768]),
    max_num_seqs=st.sampled_from([None, 8, 256]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
    tensor_parallel_size=st.sampled_from([1, 2, 4]),
    gpu_memory_utilization=st.sampled_from([0.5, 0.9, 0.95]),
    enforce_eager=st.booleans(),
)
workloads = st.builds(Workload, concurrency=st.integers(1, 64))


def unsharded(tensor_parallel: int, spec: Model) -> int:
    """Elements that every GPU holds, or copies, beyond one GPU's."""
    extra = 0
    for tensor in tensors(spec.spec):
        local = 1
        for extent in local_shape(tensor, Parallelism(tensor_parallel_size=tensor_parallel, vocabulary_multiple=1)):
            local *= extent
        extra += local * tensor_parallel - tensor.numel
    return extra


@settings(max_examples=60, deadline=None)
@given(models, deployments, workloads)
def test_the_parts_add_up_to_the_whole(subject: Model, deployment: Deployment, workload: Workload) -> None:
    plan = plan_serving(subject, deployment, workload)
    for stage in plan.stages:
        assert stage.requested_bytes == stage.available("best") + sum(part.best for part in stage.inside)
        for part in stage.inside + stage.outside:
            assert part.low <= part.best <= part.high and part.best >= 0
    assert plan.num_blocks * plan.pool.bytes_per_block <= plan.kv_cache_bytes


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.sampled_from([8, 16]), st.sampled_from([1, 2, 4]))
def test_more_layers_never_shrink_memory(layers: int, heads: int, groups: int) -> None:
    deployment = Deployment(gpu_memory_bytes=80 * GIB, max_model_len=4096)
    small = plan_serving(model(layers, heads, groups, 2048, 32000), deployment)
    large = plan_serving(model(layers + 1, heads, groups, 2048, 32000), deployment)
    for name in ("weights", "activation_peak", "cuda_graphs"):
        smaller, larger = small.budget.component(name), large.budget.component(name)
        assert smaller is not None and larger is not None
        assert smaller.best <= larger.best
    assert small.sequence.total_bytes < large.sequence.total_bytes
    assert small.kv_tokens >= large.kv_tokens


@settings(max_examples=60, deadline=None)
@given(models, st.sampled_from([2, 4, 8]))
def test_sharding_and_summing_gives_the_whole_and_what_is_copied(subject: Model, ways: int) -> None:
    try:
        shares = stage_weights(
            subject.spec, plain_scheme("bfloat16"),
            Parallelism(tensor_parallel_size=ways, vocabulary_multiple=1), rope_element_bytes=0,
        )  # fmt: skip
    except UsageError:
        assume(False)
    assert shares.numel * ways == subject.parameters + unsharded(ways, subject)


@settings(max_examples=60, deadline=None)
@given(models, deployments, workloads, st.integers(1, 64))
def test_what_fits_still_fits_on_a_larger_card(
    subject: Model, deployment: Deployment, workload: Workload, more: int
) -> None:
    order = ("does_not_fit", "tight", "fits")
    small = plan_serving(subject, deployment, workload)
    # the batch defaults jump at 70 GiB, so both cards get the same batch
    same_batch = {
        "max_num_seqs": small.resolved.max_num_seqs, "max_num_batched_tokens": small.resolved.max_num_batched_tokens
    }  # fmt: skip
    large = replace(deployment, gpu_memory_bytes=(deployment.gpu_memory_bytes or 0) + more * GIB, **same_batch)
    assert order.index(plan_serving(subject, large, workload).verdict) >= order.index(small.verdict)


@settings(max_examples=40, deadline=None)
@given(models, deployments, workloads)
def test_the_longest_context_fits_and_one_token_more_does_not(
    subject: Model, deployment: Deployment, workload: Workload
) -> None:
    """Or one token more is beyond the model's positions: no longer request is accepted, whatever the cache holds."""
    plan = plan_serving(subject, deployment, workload)
    assume(plan.longest > 0)
    blocks, positions = plan.num_blocks, subject.longest_request
    assert plan.longest <= positions == 32_768
    assert plan.pool.blocks_for(plan.longest) * workload.concurrency <= blocks
    if plan.longest < positions:
        assert plan.pool.blocks_for(plan.longest + 1) * workload.concurrency > blocks


@given(st.integers(1, 200), st.integers(1, 16), st.booleans())
def test_pipeline_stages_hold_every_layer(layers: int, stages: int, to_last: bool) -> None:
    assume(stages <= layers)
    counts = stage_layer_counts(layers, stages, remainder_to_last=to_last)
    assert sum(counts) == layers and len(counts) == stages
    if not to_last:
        assert max(counts) - min(counts) <= 1


def test_pipeline_remainders_as_vllm_deals_them() -> None:
    # 32 layers on 3 stages: the two spare layers go to the stages before the last, counting back
    assert stage_layer_counts(32, 3) == (11, 11, 10)
    assert stage_layer_counts(32, 5) == (6, 6, 7, 7, 6)
    assert stage_layer_counts(32, 5, remainder_to_last=True) == (6, 6, 6, 6, 8)


@given(st.integers(0, 1 << 60))
def test_sizes_survive_printing_and_parsing(size: int) -> None:
    printed = format_size(size)
    parsed = parse_size(printed)
    decimals = Fraction(1, 100 if printed.endswith(("GiB", "TiB")) else 10)
    unit = parse_size("1" + printed.split()[1]) if printed.split()[1] != "B" else 0
    assert abs(parsed - size) <= decimals * unit / 2 + 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("79.19GiB", 85029615043), ("80GB", 80 * 10**9), ("512 MiB", 512 << 20), ("24g", 24 << 30), ("1_024", 1024),
     ("0", 0), (".5GiB", 1 << 29)],
)  # fmt: skip
def test_sizes_as_people_write_them(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1 potato", "1e9", "9" * 70, "99999999999TiB", "1.2.3", "٣GiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


@given(st.text(max_size=60))
def test_lengths_are_read_or_refused(text: str) -> None:
    try:
        lengths = parse_lengths(text, option="--input-len")
    except UsageError as error:
        assert "\n" not in str(error)
    else:
        assert all(value >= 1 for _, value in lengths.points)
