"""Helm values of vLLM's production stack (helm/values.yaml) and of llm-d's model service (llm-d-modelservice)."""

from __future__ import annotations

from typing import Final

from planner.launches.around import card_of, image_engine, kubernetes_size
from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, as_list, as_map, at_path, text_of
from planner.launches.engines.options import parse
from planner.launches.engines.server import read_given, start_plan
from planner.launches.engines.vllm import finish, put_keyword
from planner.launches.manifests.kserve import parallel_given
from planner.launches.manifests.pod_cards import pod_card
from planner.launches.manifests.pods import container_words, devices, memory, pod_environment
from planner.launches.record import LaunchPlan, Value
from planner.launches.shell.commands import start_image
from planner.launches.shell.containers import say_tag
from planner.launches.shell.expansion import Argument

# vllmConfig's keys, under vLLM's names.
_VLLM_CONFIG: Final = {
    "maxModelLen": "max_model_len",
    "dtype": "dtype",
    "tensorParallelSize": "tensor_parallel_size",
    "pipelineParallelSize": "pipeline_parallel_size",
    "maxNumSeqs": "max_num_seqs",
    "maxLoras": "max_loras",
    "gpuMemoryUtilization": "gpu_memory_utilization",
    "enablePrefixCaching": "enable_prefix_caching",
    "enableChunkedPrefill": "enable_chunked_prefill",
    "maxNumBatchedTokens": "max_num_batched_tokens",
    "kvCacheDtype": "kv_cache_dtype",
}
_GB: Final = 1 << 30


def read_production_stack(context: Context, values: Map) -> None:
    """Each entry of servingEngineSpec.modelSpec; extraArgs come last and win."""
    engine = as_map(values.get("servingEngineSpec"))
    for key, value in engine.items():
        if isinstance(value, str):
            context.secrets.keep(str(key), value)
    for item in as_list(engine.get("modelSpec")):
        _model_spec(context, as_map(item), engine)


def _model_spec(context: Context, spec: Map, engine: Map) -> None:
    for key, value in spec.items():
        if isinstance(value, str):
            context.secrets.keep(str(key), value)
    around = _pod(context, spec)
    environment = pod_environment(context, spec)
    plan = start_plan(context, "vllm", around, environment)
    config = as_map(spec.get("vllmConfig"))
    for key, value in config.items():
        if str(key) in _VLLM_CONFIG:
            put_keyword(context, plan, _VLLM_CONFIG[str(key)], value, config.line_of(key))
    if str(config.get("v0")) in ("1", "True"):
        context.launch.note("vllmConfig.v0 asks for the V0 engine, which releases before 0.11 have")
    if spec.get("enableLoRA") is True:
        put_keyword(context, plan, "enable_lora", True, spec.line_of("enableLoRA"))
    _offload_buffer(context, spec, plan)
    extra = as_list(config.get("extraArgs"))
    lines = getattr(extra, "lines", [])
    words = [Argument(text_of(one) or "", lines[i] if i < len(lines) else config.line) for i, one in enumerate(extra)]
    given, _ = parse("vllm", words)
    for one in given:
        if one.option is not None and one.option.name in plan.inputs:
            context.launch.note(f"{one.spelled} stands in extraArgs too, which come last and win")
    others = read_given(context, plan, given)
    ray = as_map(spec.get("raySpec"))
    if ray:
        around.group_gpus = True
    model = text_of(spec.get("modelURL"))
    found = finish(
        context,
        plan,
        Argument(model, spec.line_of("modelURL")) if model else None,
        environment,
        around,
        others,
        contained=True,
    )
    if found is not None:
        context.add(found)


def _pod(context: Context, spec: Map) -> Surroundings:
    """The pod around the server: replicas, cards, memory, release of the image."""
    replicas = spec.get("replicaCount")
    around = Surroundings(name=text_of(spec.get("name")), replicas=replicas if isinstance(replicas, int) else 1)
    gpus = spec.get("requestGPU")
    if isinstance(gpus, int):
        around.gpus = gpus
    elif isinstance(gpus, str) and gpus.isdecimal():
        around.gpus = int(gpus)
    kind = text_of(spec.get("requestGPUType")) or ""
    if "mig-" in kind:
        context.launch.need(
            f"memory of the MIG slice {kind.partition('mig-')[2]}",
            "the card behind it is not stated: give --gpu-memory",
        )
    for key, name in (
        ("limitMemory", "memory_limit_bytes"),
        ("requestMemory", "memory_request_bytes"),
        ("shmSize", "shm_bytes"),
    ):
        size = kubernetes_size(spec.get(key)) if key in spec else None
        if size is not None:
            around.host[name] = size
    if around.host.get("memory_limit_bytes") == around.host.get("memory_request_bytes"):
        around.host.pop("memory_request_bytes", None)
    if "requestGPUMem" in spec:
        context.launch.note(
            f"requestGPUMem {text_of(spec['requestGPUMem'])} MiB limits the GPU's memory (HAMi): give --gpu-memory"
        )
    tag = text_of(spec.raw.get("tag") or spec.get("tag")) or "latest"
    image = f"{text_of(spec.get('repository')) or 'vllm/vllm-openai'}:{tag}"
    _, version, _ = image_engine(image)
    if version is not None:
        around.version, around.version_source = version, "image tag"
    else:
        say_tag(context, image)
    pod = Map(spec.line)
    pod["nodeSelector"] = _node_selector(spec)
    card = pod_card(context, pod)
    if card is not None:
        around.card, around.card_key = card.text, card.key
    return around


def _offload_buffer(context: Context, spec: Map, plan: LaunchPlan) -> None:
    buffer = as_map(spec.get("lmcacheConfig"))
    size_gb = text_of(buffer.get("cpuOffloadingBufferSize"))
    if buffer.get("enabled") is True and size_gb:
        try:
            plan.host["kv_offload_bytes"] = round(float(size_gb) * _GB)
            context.launch.note(
                f"the LMCache buffer ({size_gb} GB of host memory) is charged to the pod's memory limit"
            )
        except ValueError:
            context.launch.need("cpuOffloadingBufferSize", "is not a number")


def _node_selector(spec: Map) -> Map:
    found = Map(spec.line)
    for term in as_list(spec.get("nodeSelectorTerms")):
        for rule in as_list(as_map(term).get("matchExpressions")):
            values = as_list(as_map(rule).get("values"))
            if as_map(rule).get("operator") == "In" and len(values) == 1:
                found[str(as_map(rule).get("key"))] = values[0]
    for key, value in as_map(spec.get("nodeSelector")).items():
        found[key] = value
    return found


def read_llm_d(context: Context, values: Map) -> None:
    """llm-d's values: a plan for decode and one for prefill."""
    artifacts = as_map(values.get("modelArtifacts"))
    uri = text_of(artifacts.get("uri")) or ""
    name = text_of(artifacts.get("name"))
    scheme, _, rest = uri.partition("://")
    if scheme in ("hf", "huggingface"):
        model: str | None = rest.partition("@")[0]
    elif scheme in ("pvc", "pvc+hf") and rest.count("/") >= 2 and scheme == "pvc+hf":
        model = "/".join(rest.split("/")[-2:])
    else:
        model = uri or name
    for role in ("decode", "prefill"):
        part = values.get(role)
        if isinstance(part, Map) and part.get("create") is not False and part.get("replicas") != 0:
            _llm_d_role(context, values, part, role, model, artifacts.line_of("uri"), name)


def _llm_d_role(
    context: Context, values: Map, part: Map, role: str, model: str | None, line: int, name: str | None
) -> None:
    replicas = part.get("replicas")
    containers = [as_map(one) for one in as_list(part.get("containers"))]
    container = next((c for c in containers if c.get("modelCommand")), containers[0] if containers else Map(part.line))
    environment = pod_environment(context, container)
    around = Surroundings(name=role, replicas=replicas if isinstance(replicas, int) else 1)
    devices(context, container, around)
    pod = Map(part.line)
    for key in ("nodeSelector", "affinity", "volumes"):
        if key in part:
            pod[key] = part[key]
    memory(container, pod, around)
    card = pod_card(context, pod)
    accelerator = text_of(at_path(values, "accelerator.product")) or text_of(
        at_path(part, "acceleratorTypes.labelValues.0")
    )
    if card is None and accelerator:
        card = card_of("product", accelerator)
    if card is not None:
        around.card, around.card_key = card.text, card.key
        for text in (card.note, card.need):
            if text:
                context.launch.note(text)
    image = text_of(container.get("image")) or ""
    _, version, _ = image_engine(image)
    if version is not None:
        around.version, around.version_source = version, "image tag"
    elif image:
        say_tag(context, image)
    parallel = as_map(part.get("parallelism"))
    workers = parallel.get("workers")
    command = text_of(container.get("modelCommand")) or "vllmServe"
    words = container_words(context, container, environment)
    if command == "custom":
        before = len(context.launch.plans)
        around.models = {"/model-cache": model} if model else {}
        start_image(context, image, words, environment, around, contained=True, replaced=True)
        for plan in context.launch.plans[before:]:
            plan.name = role
        return
    plan = start_plan(context, "vllm", around, environment)
    given = parallel_given(parallel)
    more, positional = parse("vllm", words)
    stated = {g.option.name for g in more if g.option is not None}
    others = read_given(context, plan, [g for g in given if g.option is None or g.option.name not in stated])
    others |= read_given(context, plan, more)
    local = parallel.get("dataLocal")
    data = parallel.get("data")
    if isinstance(local, int) and isinstance(data, int) and local < data:
        around.group_gpus = True
    if isinstance(workers, int) and workers > 1:
        around.nodes, around.group_gpus = workers, True
        if around.gpus is not None:
            around.gpus *= workers
    tensor = plan.get("tensor-parallel-size", 1)
    if around.gpus is None and not around.gpus_unknown:
        around.gpus = tensor * (local if isinstance(local, int) else data if isinstance(data, int) else 1)
        context.launch.note(f"{role}: no GPU limit is stated: the chart asks for dataLocal x tensor = {around.gpus}")
    elif around.gpus is not None and around.gpus != tensor * (local if isinstance(local, int) else 1):
        context.launch.note(
            f"{role}: the stated GPU limit {around.gpus} wins over parallelism, with a warning of the chart"
        )
    word = Argument(model, line) if model else (positional[0] if positional else None)
    if others.get("model") is not None and command == "imageDefault" and model is None:
        word = others["model"].values[0]
    found = finish(context, plan, word, environment, around, others, contained=True)
    if found is None:
        return
    if name and found.model == name and "/" not in name:
        context.launch.note("modelArtifacts.name is what clients ask for")
    context.launch.note("a routing sidecar sits in the decode pod and has no GPU") if role == "decode" else None
    context.add(found)
    if (
        isinstance(parallel.get("tensor"), int)
        and "tensor-parallel-size" not in found.inputs
        and parallel["tensor"] > 1
    ):
        found.inputs["tensor-parallel-size"] = Value(parallel["tensor"], parallel.line_of("tensor"), context.file)
