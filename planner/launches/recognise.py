"""Which form a text has: its content first, then its name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from planner.launches.documents import Map

_KEY: Final = re.compile(r"^([\"']?[A-Za-z_.<][\w./<-]*[\"']?)\s*:(?:\s|$)", re.MULTILINE)
_TEMPLATE_LINE: Final = re.compile(r"^\s*\{\{-?[^}\n]*\}\}\s*$", re.MULTILINE)
_TEMPLATE: Final = re.compile(
    r"\{\{-?\s*(?:\.Values|\.Release|\.Chart|include|template|toYaml|tpl|if|with|range|end|define)\b"
)
_UNQUOTED: Final = re.compile(r"^[^\"'#\n]*[:=-]\s*\{\{", re.MULTILINE)
_PYTHON_START: Final = re.compile(
    r"^(?:import \w|from [\w.]+ import |@(?!echo)|def \w+\(|class \w+[(:]|async def |if __name__|\"\"\"|''')",
    re.MULTILINE,
)
_YAML_START: Final = re.compile(r"^(?:---|%YAML|- |[\"']?[A-Za-z_.<][\w./<-]*[\"']?\s*:(?:\s|$)|\{\{)")
_FENCE: Final = re.compile(r"^[ \t]{0,3}(?:```|~~~)", re.MULTILINE)
_LAUNCHERS: Final = re.compile(
    r"\b(?:vllm|sglang|trtllm-serve|llama-server|llama-cli|koboldcpp|ollama|lms|docker|podman|nerdctl|torchrun|accelerate"
    r"|deepspeed|trl|llamafactory-cli|axolotl|tune|swift|python[0-9.]*|text-generation-launcher|lmdeploy|srun|kubectl)\b"
)
_AXOLOTL: Final = ("micro_batch_size", "sequence_len", "datasets", "adapter", "sample_packing")
_TRTLLM: Final = ("kv_cache_config", "cuda_graph_config", "moe_config", "enable_attention_dp")
_DEEPSPEED: Final = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size")
_FSDP: Final = ("transformer_layer_cls_to_wrap", "reshard_after_forward", "activation_checkpointing", "min_num_params")
_TRAINER: Final = (
    "per_device_train_batch_size",
    "learning_rate",
    "num_train_epochs",
    "output_dir",
    "dataset_name",
    "use_peft",
)


def significant(text: str) -> str:
    """The first line that says something."""
    for line in text.split("\n", 400)[:400]:
        bare = line.strip()
        if bare and not bare.startswith("#"):
            return line
    return ""


def is_template(text: str) -> bool:
    """A Helm chart's template that was not rendered."""
    if "{{" not in text or re.search(r"^FROM\s", text, re.MULTILINE):
        return False
    yaml = re.search(r"^(?:apiVersion|kind|services|metadata|spec)\s*:", text, re.MULTILINE) is not None
    if not yaml:
        return False
    return bool(_TEMPLATE_LINE.search(text) or _TEMPLATE.search(text) or _UNQUOTED.search(text))


def template_needs(text: str) -> list[str]:
    """The values that a template asks for."""
    return list(dict.fromkeys(re.findall(r"\.Values(?:\.[A-Za-z_]\w*)+", text)))[:50]


def looks_like_yaml(text: str, name: str) -> bool:
    """Whether a text is to be read as YAML."""
    line = significant(text)
    if name.endswith((".yaml", ".yml")):
        return True
    if name.endswith((".sh", ".py", ".md", ".ps1", ".bash", ".sbatch", ".bat", ".cmd")) or line.startswith("#!"):
        return False
    if text.lstrip().startswith("{"):
        return name.endswith(".json")
    return (
        _YAML_START.match(line) is not None
        and not _PYTHON_START.match(line)
        and not re.match(r"(?:try|else|finally)\s*:", line)
    )


def looks_like_markdown(text: str, name: str) -> bool:
    """Fenced blocks in prose."""
    return bool(_FENCE.search(text)) and (
        name.lower().endswith((".md", ".markdown", ".mdx", ".rst", ".txt")) or not _PYTHON_START.search(text)
    )


def looks_like_python(text: str, name: str) -> bool:
    """A Python script, by its name or its first statements."""
    if name.lower().endswith((".bat", ".cmd")):
        return False
    return name.endswith(".py") or (not name.endswith((".sh", ".ps1")) and _PYTHON_START.search(text) is not None)


def looks_like_shell(text: str) -> bool:
    """A word of the launcher list."""
    return _LAUNCHERS.search(text) is not None


def is_unit(text: str) -> bool:
    """A systemd unit."""
    return (
        re.search(r"^\[Service\]", text, re.MULTILINE) is not None
        and re.search(r"^\s*ExecStart\s*=", text, re.MULTILINE) is not None
    )


def is_modelfile(text: str) -> bool:
    """An Ollama Modelfile: FROM, with instructions that a Dockerfile lacks."""
    if not re.search(r"^\s*FROM\s+\S", text, re.MULTILINE | re.IGNORECASE):
        return False
    if re.search(r"^\s*(?:PARAMETER|TEMPLATE|SYSTEM|ADAPTER|MESSAGE)\s", text, re.MULTILINE | re.IGNORECASE):
        return True
    return len([line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]) == 1


def is_dockerfile(text: str) -> bool:
    """A Dockerfile: FROM with RUN, COPY, CMD or ENTRYPOINT."""
    return bool(
        re.search(r"^\s*FROM\s+\S", text, re.MULTILINE | re.IGNORECASE)
        and re.search(r"^\s*(?:RUN|COPY|CMD|ENTRYPOINT|ADD|EXPOSE|WORKDIR)\s", text, re.MULTILINE)
    )


def top_keys(text: str) -> list[str]:
    """The keys at the left margin of a text that may not be valid YAML."""
    return [key.strip("\"'") for key in _KEY.findall(text)[:500]]


def form_of_map(keys: Iterable[str], document: Map | None = None) -> str | None:
    """The form that a mapping's keys tell; None for none."""
    found = set(keys)
    if {"apiVersion", "kind"} <= found:
        return "kubernetes"
    if "applications" in found or "llm_configs" in found or {"model_loading_config", "engine_kwargs"} <= found:
        return "ray"
    if "services" in found and (document is None or _has_services(document)):
        return "compose"
    if "servingEngineSpec" in found:
        return "helm-production-stack"
    if "modelArtifacts" in found and found & {"decode", "prefill"}:
        return "helm-llm-d"
    if "models" in found and (document is None or _has_commands(document)):
        return "llama-swap"
    if {"contextsize", "gpulayers"} <= found:
        return "koboldcpp-settings"
    if "distributed_type" in found or "compute_environment" in found:
        return "accelerate"
    if "base_model" in found and found & set(_AXOLOTL):
        return "axolotl"
    if {"stage", "finetuning_type"} <= found or ("finetuning_type" in found and "model_name_or_path" in found):
        return "llamafactory"
    if document is not None and has_component(document):
        return "torchtune"
    if "model_name_or_path" in found:
        return "trl"
    if found & set(_DEEPSPEED):
        return "deepspeed"
    if found and all(key.startswith("fsdp_") or key in _FSDP for key in found):
        return "fsdp"
    if found & set(_TRTLLM):
        return "tensorrt-llm-options"
    if "model" in found or "model-path" in found or "model_path" in found or _vllm_keys(found):
        return "vllm-config"
    if len(found & set(_TRAINER)) >= 2:
        return "trl"
    return None


def _vllm_keys(keys: set[str]) -> bool:
    from planner.launches.engines.options import options

    known = {option.name.replace("-", "_") for option in options("vllm")}
    return sum(key.replace("-", "_") in known for key in keys) >= 2


def _has_services(document: Map) -> bool:
    services = document.get("services")
    return isinstance(services, Map) and any(
        isinstance(one, Map) and {"image", "build", "command", "extends"} & set(one) for one in services.values()
    )


def _has_commands(document: Map) -> bool:
    models = document.get("models")
    return isinstance(models, Map) and any(isinstance(one, Map) and "cmd" in one for one in models.values())


def has_component(node: object, depth: int = 0) -> bool:
    """Any `_component_`, as torchtune's files have."""
    if isinstance(node, Map) and depth < 6:
        return "_component_" in node or any(has_component(value, depth + 1) for value in node.values())
    return False
