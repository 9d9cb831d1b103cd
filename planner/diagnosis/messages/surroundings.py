"""What the lines around a message say: the engine, the phase of the program, the settings, the versions, the time."""

from __future__ import annotations

import re

_BEFORE_CHARS = 5_000
_AFTER_CHARS = 3_000
_ITSELF_CHARS = 40

_TIME = re.compile(
    r"\b(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d|"
    r"[EWI]\d{4} \d\d:\d\d:\d\d)"
)
_RANK = re.compile(r"\brank[ =:]?(\d{1,5})\b|\[rank(\d{1,5})\]|\b[TD]P(\d{1,4})\]", re.IGNORECASE)
_ALLOC_CONF = re.compile(r"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF[\"']?\]? ?[=:] ?[\"']?([\w:.,>\[\]-]{1,200})")
_TORCH_VERSION = re.compile(r"\btorch(?:==| version:? | )(\d\.\d{1,2}(?:\.\d{1,2})?)\b", re.IGNORECASE)
_FRACTION = re.compile(
    r"total_gpu_memory \((\d{1,6}(?:\.\d{1,6})?) ?GiB\) x gpu_memory_utilization \((\d(?:\.\d{1,6})?)\)"
)
_LOADED = re.compile(r"Model loading took (\d{1,6}(?:\.\d{1,6})?) Gi?B", re.IGNORECASE)
_KV_MEMORY = re.compile(r"Available KV cache memory: (-?\d{1,6}(?:\.\d{1,6})?) GiB")
_BLOCKS = re.compile(r"# (?:GPU|cuda) blocks: (\d{1,10})")
_GPU_COUNT = re.compile(r"tensor_parallel_size['\"]?[=:] ?(\d{1,4})")

# Function and file names in tracebacks, most specific first: where in the program's life the request was made.
_PHASES = (
    ("graph_capture", re.compile(r"capture_model|capture_graph|cuda graph capture|Capturing CUDA graph|_capture_one")),
    ("kv_cache", re.compile(r"_initialize_kv_caches|allocate_kv_cache|initialize_cache|_allocate_kv")),
    ("profile", re.compile(r"profile_run|determine_(?:num_)?available|_dummy_run|memory_profiling")),
    ("loss", re.compile(r"cross_entropy|lm_head|compute_loss|log_softmax|loss_function")),
    ("attention", re.compile(r"scaled_dot_product|attn_weights|softmax\(|baddbmm|torch\.matmul\(query")),
    ("optimizer", re.compile(r"optimizer\.step|/optim/|_init_group|adamw?\.py|exp_avg")),
    ("backward", re.compile(r"loss\.backward|run_backward|_engine_run_backward|autograd/__init__")),
    ("load", re.compile(r"load_model|load_state_dict|from_pretrained|load_weights|_load_checkpoint|load_shard_file")),
)
_ENGINES = (
    ("vllm", re.compile(r"\bvllm\b|VllmWorker|EngineCore", re.IGNORECASE)),
    ("sglang", re.compile(r"\bsglang\b", re.IGNORECASE)),
    ("tgi", re.compile(r"text_generation_(?:server|launcher)")),
    ("deepspeed", re.compile(r"\bdeepspeed\b", re.IGNORECASE)),
    ("comfyui", re.compile(r"comfyui|stable-diffusion-webui", re.IGNORECASE)),
)


def context_of(raw: str, at: int) -> dict[str, str]:
    """Name to value of what is recognised in the text around `at`; nothing is guessed.

    The phase is taken from the lines before the message, where a traceback stands, and from the last that names one.
    """
    before = raw[max(0, at - _BEFORE_CHARS) : at + _ITSELF_CHARS]
    around = before + raw[at + _ITSELF_CHARS : at + _AFTER_CHARS]
    found: dict[str, str] = {}
    for name, pattern in _ENGINES:
        if pattern.search(around):
            found.setdefault("engine", name)
    phases = [(m.start(), name) for name, p in _PHASES for m in p.finditer(before)]
    if phases:
        # the innermost frame is the last one that is printed
        found["phase"] = max(phases)[1]
    times = [m.group(1) for m in _TIME.finditer(before)]
    if times:
        found["time"] = times[-1].split(" ", 1)[1] if times[-1][0].isalpha() and times[-1][1].isalpha() else times[-1]
    settings = _ALLOC_CONF.search(around)
    if settings:
        found["alloc_conf"] = settings.group(1)
    version = _TORCH_VERSION.search(around)
    if version:
        found["torch"] = version.group(1)
    line = raw[max(raw.rfind("\n", 0, at), at - 400, 0) : at + 40]
    rank = _RANK.search(line)
    if rank:
        found["rank"] = next(g for g in rank.groups() if g is not None)
    fraction = _FRACTION.search(around)
    if fraction:
        found["total_gpu_memory_gib"], found["gpu_memory_utilization"] = fraction.groups()
    for name, pattern in (
        ("gpu_blocks", _BLOCKS),
        ("tensor_parallel_size", _GPU_COUNT),
        ("model_loading_gib", _LOADED),
        ("kv_cache_memory_gib", _KV_MEMORY),
    ):
        match = pattern.search(around)
        if match:
            found[name] = match.group(1)
    if re.search(r"[A-Za-z]:\\(?:Users|Program|Python)|\bWindows\b|\bWDDM\b", around):
        found["platform"] = "windows"
    elif re.search(r"\bWSL2?\b|/mnt/[a-z]/", around):
        found["platform"] = "wsl"
    return found
