"""Which program failed, read from the paths of its frames and the form of its log lines, never from a word in prose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from planner.diagnosis.messages.traceback import Frame

# What a program does: its remedies are those of its trade. "" where nothing says.
TRADES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "vllm",
            "sglang",
            "tgi",
            "tensorrt-llm",
            "exllama",
            "lmdeploy",
            "llama.cpp",
            "ollama",
            "lm-studio",
            "koboldcpp",
        ),
        "serve",
    ),
    **dict.fromkeys(
        (
            "trainer",
            "trl",
            "axolotl",
            "llama-factory",
            "unsloth",
            "deepspeed",
            "lightning",
            "torchtune",
            "megatron",
            "kohya",
            "verl",
            "openrlhf",
            "fsdp",
            "ultralytics",
        ),
        "train",
    ),
    **dict.fromkeys(("comfyui", "webui", "diffusers"), "generate"),
    **dict.fromkeys(("transformers", "ctranslate2", "whisper", "sentence-transformers", "mlx"), "infer"),
}

# Paths of frames, the product that the user configures before the library that it stands on.
_PATHS: Final = (
    ("axolotl", re.compile(r"/axolotl/(?!.*site-packages)")),
    ("llama-factory", re.compile(r"/(?:llamafactory|llmtuner)/")),
    ("verl", re.compile(r"/verl/(?:trainer|workers|utils|models)/")),
    ("openrlhf", re.compile(r"/openrlhf/")),
    ("kohya", re.compile(r"/(?:sd-scripts|kohya_ss|ai-toolkit|OneTrainer)/|/(?:sdxl_|flux_)?train_network\.py")),
    ("unsloth", re.compile(r"/unsloth(?:_zoo|_compiled_cache)?/|UnslothSFTTrainer|UnslothGRPOTrainer")),
    ("trl", re.compile(r"/trl/")),
    ("torchtune", re.compile(r"/(?:torchtune|torchtitan)/")),
    ("megatron", re.compile(r"/(?:megatron|nemo|Megatron-LM)/")),
    ("trainer", re.compile(r"/transformers/(?:trainer|trainer_seq2seq|trainer_pt_utils)\.py")),
    ("lightning", re.compile(r"/(?:pytorch_lightning|lightning(?:_fabric)?)/")),
    ("ultralytics", re.compile(r"/ultralytics/(?:engine/(?:trainer|model)|models/[\w/]*train)\.py")),
    ("deepspeed", re.compile(r"/deepspeed/runtime/")),
    ("comfyui", re.compile(r"/(?:comfy(?:_extras|_execution|_api|_api_nodes)?|ComfyUI[\w.-]*|custom_nodes)/")),
    (
        "webui",
        re.compile(
            r"/(?:stable-diffusion-webui[\w-]*|modules_forge|sd-webui[\w-]*|Fooocus|invokeai)/"
            r"|/modules/(?:processing|txt2img|img2img|sd_\w+)\.py",
            re.IGNORECASE,
        ),
    ),
    ("whisper", re.compile(r"/(?:faster_whisper|whisperx?)/")),
    ("ctranslate2", re.compile(r"/ctranslate2/")),
    ("sentence-transformers", re.compile(r"/sentence_transformers/")),
    ("diffusers", re.compile(r"/diffusers/")),
    ("mlx", re.compile(r"/(?:mlx|mlx_lm|mlx_vlm|mlx_whisper)/")),
    ("llama.cpp", re.compile(r"/llama_cpp/")),
    ("transformers", re.compile(r"/transformers/")),
)
_SERVERS: Final = (
    ("sglang", re.compile(r"/(?:sglang/srt|sglang)/")),
    ("vllm", re.compile(r"/vllm(?:_ascend|_omni|_gaudi)?/")),
    ("tgi", re.compile(r"/text_generation_server/")),
    ("tensorrt-llm", re.compile(r"/tensorrt_llm/")),
    ("exllama", re.compile(r"/(?:exllamav[23]|tabbyAPI)/")),
    ("lmdeploy", re.compile(r"/lmdeploy/")),
)
# The form of a program's own log lines and of the command that starts it, after texts of which one must occur.
_LINES: Final = (
    (
        "sglang",
        ("sglang.launch_server", "TP", "DP", "EP", "PP"),
        re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [TDEP]P\d{1,3})+\]|sglang\.launch_server", re.M),
    ),
    (
        "vllm",
        ("pid=", "INFO ", "WARNING ", "ERROR ", "vllm serve", "vllm.entrypoints"),
        re.compile(
            r"\((?:EngineCore|VllmWorker|Worker(?:_[A-Z]{2}\d{1,3})*|APIServer|ApiServer)[\w ]{0,24}(?:rank=\d{1,4} "
            r")?pid=\d"
            r"|\b(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w/]{1,60}\.py:\d"
            r"|^[^\n]{0,40}\bvllm serve\b|-m vllm\.entrypoints",
            re.M,
        ),
    ),
    (
        "tgi",
        ("text_generation", "text-generation"),
        re.compile(r"\btext_generation_(?:launcher|router|server|client)\b|text-generation-launcher"),
    ),
    (
        "tensorrt-llm",
        ("[TensorRT-LLM]", "trtllm-serve"),
        re.compile(r"^[^\n]{0,60}\[TensorRT-LLM\]|\btrtllm-serve\b", re.M),
    ),
    (
        "axolotl",
        ("axolotl",),
        re.compile(r"\[axolotl\.|^[^\n]{0,60}\baxolotl (?:train|preprocess)\b|axolotl\.cli\.train", re.M),
    ),
    ("llama-factory", ("llamafactory",), re.compile(r"llamafactory-cli train|llamafactory\.(?:hparams|train)")),
    (
        "comfyui",
        ("!!! Exception", "Prompt executed", "got prompt", "Requested to load", "ComfyUI Error", "unloading all"),
        re.compile(
            r"!!! Exception during processing !!!|# ComfyUI Error Report|Got an OOM, unloading all loaded models"
            r"|^Prompt executed in |got prompt$|Requested to load "
            r"\w+$",
            re.M,
        ),
    ),
    (
        "ollama",
        ("source=", "ollama ", "llama runner"),
        re.compile(r"\blevel=\w+ source=\w+\.go:\d|\bollama (?:run|serve)\b|llama runner process"),
    ),
    ("unsloth", ("Unsloth",), re.compile(r"==\(\(=+\)\)==\s+Unsloth")),
    ("deepspeed", ("] [",), re.compile(r"^\[\d{4}-\d\d-\d\d [\d:,]{8,12}\] \[\w+\] \[\w+\.py:\d+:\w+\]", re.M)),
    ("lmdeploy", ("lmdeploy", "[TM]["), re.compile(r"lmdeploy serve\b|\blmdeploy - |/lmdeploy/src/turbomind|\[TM\]\[")),
    ("koboldcpp", ("oboldC", "oboldc", "gpttype_"), re.compile(r"\b[Kk]obold[Cc]pp\b|\bgpttype_load_model\b")),
    (
        "lm-studio",
        ("LM Studio", "lmstudio", "llmster"),
        re.compile(r"\bLM Studio\b|[/\\]\.?lmstudio[/\\-]|\bllmster\b"),
    ),
)
# A step of training as its progress bar or its loss line shows it, and a script that says what it is by its name.
_TRAINING: Final = re.compile(
    r"\{'loss': [\d.]+|\bloss[=:] ?\d+\.\d+[^\n]{0,80}(?:it/s|s/it|lr|epoch)|\b[Ee]poch \d+/\d+"
)
_TRAIN_PATH: Final = re.compile(
    r"/(?:[\w-]*(?:train|finetun|fine_tun|sft|pretrain|dpo|grpo)[\w-]*)\.py$", re.IGNORECASE
)
_TRAIN_CODE: Final = re.compile(r"\bloss\.backward\(|\boptimizer\.step\(|\btrainer\.(?:train|fit)\(|training_step")
_TRAIN_PATHS: Final = re.compile(r"/torch/(?:optim|_tensor\.py)|/torch/autograd/graph\.py")
_INFER_CODE: Final = re.compile(r"\bmodel\.generate\(|\bpipe(?:line)?\(|inference_mode|torch\.no_grad")
_INFER_PATH: Final = re.compile(
    r"/(?:[\w-]*(?:infer|predict|generate|demo|gradio|app|chat|eval)[\w-]*)\.py$", re.IGNORECASE
)


def program_of(frames: Sequence[Frame], text: str) -> tuple[str, str]:
    """The program that the user runs, and the server within it that failed; "" when neither frames nor lines name one.

    A trainer may drive a server (reinforcement learning): the server's frames are then the inner ones.
    """
    server = _last(frames, _SERVERS)
    # SGLang borrows layers of vLLM
    if server[1] == "vllm" and any(_SERVERS[0][1].search(f.path) for f in frames):
        server = (server[0], "sglang")
    for name, pattern in _PATHS:
        places = [i for i, f in enumerate(frames) if pattern.search(f.path) or pattern.search(f.function)]
        if places:
            if not server[1]:
                return name, ""
            if TRADES[name] != "train":
                return server[1], ""
            return name, server[1] if server[0] > max(places) else ""
    if server[1]:
        return server[1], ""
    return first_named(_LINES, text), ""


def first_named(table: Sequence[tuple[str, tuple[str, ...], re.Pattern[str]]], text: str) -> str:
    """The first entry of which a text occurs and whose pattern matches; "" when none does.

    Looking for plain texts first takes a hundredth of the patterns' time, which a log of errors pays for each.
    """
    for name, needles, pattern in table:
        if any(needle in text for needle in needles) and pattern.search(text):
            return name
    return ""


def _last(frames: Sequence[Frame], paths: Sequence[tuple[str, re.Pattern[str]]]) -> tuple[int, str]:
    """Index of the innermost frame of one of the programs, and its name; (-1, "") without one."""
    for index in range(len(frames) - 1, -1, -1):
        for name, pattern in paths:
            if pattern.search(frames[index].path):
                return index, name
    return -1, ""


def trade_of(program: str, phase: str, frames: Sequence[Frame], text: str) -> str:
    """ "serve", "train", "generate", "infer", or "" when nothing says what the program does."""
    named = TRADES.get(program, "")
    if named in ("serve", "generate"):
        return named
    training = phase in ("backward", "optimizer") or any(
        _TRAIN_CODE.search(f.code) or _TRAIN_PATHS.search(f.path) or _TRAIN_PATH.search(f.path) for f in frames
    )
    if named == "train" or training or (("loss" in text or "poch " in text) and _TRAINING.search(text)):
        return "train"
    if phase in ("graph_capture", "kv_cache", "profile"):
        return "serve"
    if named == "infer" and program != "transformers":
        return named
    if any(_INFER_CODE.search(f.code) or _INFER_PATH.search(f.path) for f in frames) or phase in ("prefill", "decode"):
        return "infer"
    return ""
