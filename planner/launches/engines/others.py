"""SGLang, TensorRT-LLM, llama.cpp and its relatives, Ollama and LM Studio: their command lines.

Sources: sglang/srt/server_args.py (0.5), tensorrt_llm/commands/serve.py, llama.cpp common/arg.cpp, ollama's envconfig,
the `lms` command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, as_map, read_yaml
from planner.launches.engines.options import parse
from planner.launches.engines.server import config_given, from_environment, read_given, start_plan
from planner.launches.engines.settling import say_shared_memory, settle_gpus, settle_model
from planner.launches.record import LaunchPlan, Value
from planner.launches.shell.expansion import Argument, Variable

# The options file of trtllm-serve: what becomes an input, under this name.
TRTLLM_KEYS: Final = {
    "kv_cache_config.free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "kv_cache_config.max_tokens": "kv_cache_config.max_tokens",
    "kv_cache_config.dtype": "kv_cache_dtype",
    "kv_cache_config.host_cache_size": "kv_cache_config.host_cache_size",
    "kv_cache_config.tokens_per_block": "kv_cache_config.tokens_per_block",
    "cuda_graph_config.max_batch_size": "cuda_graph_config.max_batch_size",
    "cuda_graph_config.batch_sizes": "cuda_graph_config.batch_sizes",
    "max_batch_size": "max_batch_size",
    "max_num_tokens": "max_num_tokens",
    "max_seq_len": "max_seq_len",
    "enable_attention_dp": "enable_attention_dp",
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "moe_expert_parallel_size": "ep_size",
    "speculative_config.decoding_type": "speculative_config.decoding_type",
    "speculative_config.num_nextn_predict_layers": "speculative_config.num_nextn_predict_layers",
    "speculative_config.max_draft_len": "speculative_config.max_draft_len",
}
# False is the default of these, so that saying it changes nothing.
_OFF_BY_DEFAULT: Final = ("enable_attention_dp",)
_OLLAMA_COMMANDS: Final = ("run", "create", "serve", "start")


def read_sglang(
    context: Context,
    words: Sequence[Argument],
    environment: Mapping[str, Variable],
    around: Surroundings,
    *,
    contained: bool = False,
) -> LaunchPlan | None:
    """The SGLang server of these words; its --config has the flags as keys, and the command line wins."""
    plan = start_plan(context, "sglang", around, environment)
    given, positional = parse("sglang", words)
    model = None
    config = next((one for one in given if one.option is not None and one.option.role == "config"), None)
    if config is not None and config.values:
        found = context.file_text(config.values[0].text)
        if found is None:
            context.launch.skip(f"--config {config.values[0].text}", matters=True)
            context.launch.need(f"the file {config.values[0].text}", "is not here; options may stand in it")
        else:
            below, _ = config_given(context, "sglang", *found)
            others = read_given(context, plan, below, file=found[2], how="--config")
            model = others["model"].values[0] if "model" in others and others["model"].values else None
    others = read_given(context, plan, given)
    if "model" in others and others["model"].values:
        model = others["model"].values[0]
    if not settle_model(context, plan, model or (positional[0] if positional else None), around):
        return None
    if "nodes" in others and others["nodes"].values and around.nodes is None:
        around = around.copy()
        around.group_gpus = True
    settle_gpus(context, plan, around, environment)
    say_shared_memory(context, plan, contained=contained)
    if "mem-fraction-static" in plan.inputs:
        context.launch.note(
            "mem-fraction-static is not gpu-memory-utilization: weights and KV pool alone, of the memory that is free"
            " before the load"
        )
    return plan


def read_trtllm(
    context: Context,
    words: Sequence[Argument],
    environment: Mapping[str, Variable],
    around: Surroundings,
    *,
    contained: bool = False,
) -> LaunchPlan | None:
    """The trtllm-serve of these words; its options file wins over the command line."""
    plan = start_plan(context, "tensorrt-llm", around, environment)
    given, positional = parse("tensorrt-llm", words)
    others = read_given(context, plan, given)
    if positional and positional[0].text in ("serve", "mm_embedding_serve"):
        positional = positional[1:]
    config = others.get("config")
    if config is not None and config.values:
        found = context.file_text(config.values[0].text)
        if found is None:
            context.launch.skip(f"{config.spelled} {config.values[0].text}", matters=True)
            context.launch.need(f"the file {config.values[0].text}", "is not here, and it wins over the command line")
        else:
            documents = read_yaml(found[0], form="tensorrt-llm-options", first_line=found[1])
            read_trtllm_options(context, plan, as_map(documents[0] if documents else None), found[2])
    if not settle_model(context, plan, positional[0] if positional else None, around):
        return None
    settle_gpus(context, plan, around, environment)
    say_shared_memory(context, plan, contained=contained)
    return plan


def read_trtllm_options(context: Context, plan: LaunchPlan, config: Map, file: str) -> None:
    """Put the options file over what the command line said, and say where they disagree."""
    conflicts = []

    def visit(node: Mapping[str, Any], prefix: str) -> None:
        for key, value in node.items():
            path = f"{prefix}{key}"
            line = node.line_of(key) if isinstance(node, Map) else 1
            if isinstance(value, Map):
                visit(value, f"{path}.")
                continue
            name = TRTLLM_KEYS.get(path)
            if name is None:
                continue
            if value is None or (value is False and name in _OFF_BY_DEFAULT and name not in plan.inputs):
                continue
            before = plan.inputs.get(name)
            if before is not None and before.value != value:
                conflicts.append(f"{name} ({before.value} and {value})")
            plan.inputs[name] = Value(list(value) if isinstance(value, list) else value, line, file, "options file")

    visit(config, "")
    if conflicts:
        context.launch.note(f"two values conflict: {', '.join(conflicts)}: the YAML file wins over the command line")


def read_ollama(
    context: Context,
    words: Sequence[Argument],
    environment: Mapping[str, Variable],
    around: Surroundings,
    *,
    contained: bool = False,
) -> LaunchPlan | None:
    """`ollama run NAME`, `ollama serve` with its environment, `ollama create -f FILE`."""
    if not words or words[0].text not in _OLLAMA_COMMANDS:
        return None
    verb, rest = words[0].text, list(words[1:])
    plan = start_plan(context, "ollama", around, environment)
    from_environment(context, plan, environment)
    if verb == "create":
        return _created(context, plan, rest)
    if verb in ("serve", "start"):
        wanted = next((name for name in context.downloads.values()), None)
        if wanted is None:
            context.launch.need("model", "the server loads what it is asked for", settle="model")
        plan.model = context.settings.values.get("model") or wanted
        settle_gpus(context, plan, around, environment)
        return plan
    names = [word for word in rest if not word.text.startswith("-")]
    if not settle_model(context, plan, names[0] if names else None, around):
        return None
    settle_gpus(context, plan, around, environment)
    return plan


def _created(context: Context, plan: LaunchPlan, rest: list[Argument]) -> LaunchPlan | None:
    from planner.launches.manifests.modelfile import read_instructions

    at = next((i for i, word in enumerate(rest) if word.text in ("-f", "--file")), None)
    name = rest[at + 1].text if at is not None and at + 1 < len(rest) else "Modelfile"
    found = context.file_text(name)
    if found is None:
        context.launch.skip(f"the Modelfile {name}", matters=True)
        context.launch.need("model", f"the Modelfile {name} is not here", settle="model")
        return None
    return read_instructions(context, plan, found[0], found[1], found[2])


def read_lms(
    context: Context, words: Sequence[Argument], environment: Mapping[str, Variable], around: Surroundings
) -> LaunchPlan | None:
    """`lms load KEY`: a name of LM Studio's catalogue, which does not say the quantisation."""
    if not words or words[0].text != "load":
        return None
    plan = start_plan(context, "llama.cpp", around, environment)
    plan.variant = "lm-studio"
    given, positional = parse("lm-studio", words[1:])
    plan.tool = "lm-studio"
    read_given(context, plan, given)
    plan.tool = "llama.cpp"
    if not settle_model(context, plan, positional[0] if positional else None, around):
        return None
    context.launch.note(
        f"the catalogue name {plan.model} is not a Hub id (lower case) and does not say which quantisation LM Studio"
        " picks: it must be asked for"
    )
    return plan
