"""When in a program's life a request was made, and what it computed, from the frames of its traceback.

What encloses decides before what is enclosed: a forward pass within the profile run is the profile run, and one that
backward repeats for a checkpoint is backward.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from planner.diagnosis.messages.traceback import Frame

_ENCLOSING: Final = (
    (
        "graph_capture",
        r"capture_model|capture_graph|_capture_one|CUDAGraph\w*Runner|cuda_graph_runner|cudagraph_capture"
        r"|torch\.cuda\.graph\(|_capture_cudagraphs|capture_begin|init_device_graphs|init_cuda_graphs",
    ),
    ("profile", r"profile_run|determine_(?:num_)?available|profile_cudagraph|memory_profiling|profile_max_num_token"),
    (
        "kv_cache",
        r"initialize_kv_cache|allocate_kv_cache|_allocate_kv|initialize_cache\b|init_memory_pool"
        r"|_create_buffers"
        r"|KVPool|KVCacheManager|init_kv_cache|_init_cache_engine|CacheEngine|allocate_gpu_cache",
    ),
    ("warm_up", r"kernel_warmup|compile_or_warm_up_model|_dummy_sampler_run|_dummy_run|\bwarmup\b|warm_up"),
    (
        "load",
        r"load_model|load_state_dict|from_pretrained|load_weights|load_checkpoint|load_shard_file|safe_load_file"
        r"|caching_allocator_warmup|_load_state_dict_into|process_weights_after_loading|load_torch_file"
        r"|create_weights|_load_pretrained_model|load_diffusion_model|load_models_gpu|model_load"
        r"|load_checkpoint_guess"
        r"|_configure_distributed_model|safetensors/torch\.py|dispatch_model|set_module_tensor_to_device"
        r"|prepare_model_for_kbit_training|_move_parameters|get_peft_model|initialize_model"
        r"|deepspeed\.initialize",
    ),
    (
        "save",
        r"save_pretrained|save_model|save_checkpoint|_save\b|consolidated_16bit|gather_16bit|full_state_dict"
        r"|_full_tensor|merge_and_unload|state_dict_to_save|get_state_dict\(|_save_checkpoint",
    ),
    (
        "evaluation",
        r"evaluation_loop|evaluate\b|prediction_step|prediction_loop|validation_step|nested_concat"
        r"|compute_metrics|eval_step|_run_validation|validate\(",
    ),
    (
        "optimizer",
        r"optimizer\.step|optimizer_step|/optim/|_init_group|exp_avg|_take_model_step"
        r"|initialize_optimizer_states"
        r"|_initialize_states|optimizer\.zero_grad|clip_grad_norm|bitsandbytes/optim",
    ),
    (
        "backward",
        r"loss\.backward|run_backward|_engine_run_backward|autograd/__init__|accelerator\.backward"
        r"|\bbackward\(|_tensor\.py",
    ),
)
# Within a forward pass; the innermost that matches names it.
_INNER: Final = (
    (
        "loss",
        r"cross_entropy|ForCausalLMLoss|loss_function|loss_fct|fixed_cross_entropy|nll_loss|_get_per_token_logps"
        r"|selective_log_softmax|logits\.float\(\)|CrossEntropyLoss|loss_utils|get_batch_logps"
        r"|entropy_from_logits",
    ),
    (
        "sampler",
        r"sampler\.py|compute_logprobs|gather_logprobs|apply_top_k_top_p|top_k_top_p|_sample_with"
        r"|logits_processor"
        r"|compute_logits|prompt_logprobs|sample_tokens|sampling_from_probs|apply_penalties",
    ),
    ("prefill", r"forward_extend|_prefill\b|\bprefill\b|forward_prefill|run_prefill|chunked_prefill|prefill_forward"),
    ("decode", r"forward_decode|decode_step|decode_forward|\bdecode_token|greedy_search|beam_search|_beam_search"),
)
_LOGITS: Final = re.compile(r"log_softmax|softmax\(logits|lm_head\(|logits = |logits\.\w+\(")
# Moving a module to a device: torch's module.py names its functions so.
_MOVES: Final = re.compile(
    r"\breturn t\.to\(|param_applied = fn\(param|\bmodel\.(?:to|cuda|half)\(|\b\w*(?:model|pipe|unet|net|vae)\w*\.to\("
)
_MOVE_FUNCTIONS: Final = ("_apply", "convert", "cuda")

_OPERATIONS: Final = (
    (
        "vae",
        r"/autoencoders?/|autoencoder_kl|vae\.decode|vae\.encode|VAEDecode|vae_decode|VAEEncode|first_stage_model"
        r"|/ldm/modules/diffusionmodules/model\.py|comfy/sd\.py[^\n]{0,40}decode|wan/vae",
    ),
    (
        "vision",
        r"vision_tower|visual\b|VisionTransformer|vision_model|vision_embed|embed_multimodal|/siglip"
        r"|/clip/modeling"
        r"|get_image_features|get_multimodal_embeddings|get_video_features|qwen2_vl_vision",
    ),
    (
        "attention",
        r"scaled_dot_product|attn_weights|(?<!log_)(?<!\w)softmax\((?:attn|scores|sim|att)|baddbmm"
        r"|matmul\(query|matmul\(q\b"
        r"|attention_scores|eager_attention_forward|repeat_kv|einsum\([^)\n]{0,60}(?:q, ?k|sim)"
        r"|attention_basic"
        r"|q @ k|query_states, key_states|_attn\(|attn_bias|attention_split",
    ),
    ("experts", r"fused_moe|fused_experts|/moe/|experts\b"),
    ("dequantize", r"dequantize|dequant\w*"),
)
_BEFORE: Final = (
    (
        "load",
        re.compile(
            r"Loading (?:checkpoint|safetensors|pt|pipeline|weights|model)[^\n]{0,80}\d{1,3}%[^\n]{0,120}$"
            r"|Loading model weights|Load weight begin|Starting to load model|load_tensors:"
            r"|llama_model_load"
        ),
    ),
    ("graph_capture", re.compile(r"Capturing (?:CUDA|cuda) graph|Capture cuda graph begin|Capturing batches")),
    ("kv_cache", re.compile(r"Available KV cache memory|llama_kv_cache\w*:")),
    ("evaluation", re.compile(r"\*{3,} Running (?:Evaluation|Prediction) \*{3,}")),
    ("save", re.compile(r"Saving model checkpoint to")),
)
_ENCLOSING_PATTERNS: Final = tuple((name, re.compile(words)) for name, words in _ENCLOSING)
_INNER_PATTERNS: Final = tuple((name, re.compile(words)) for name, words in _INNER)
_OPERATION_PATTERNS: Final = tuple((name, re.compile(words)) for name, words in _OPERATIONS)
_FORWARD: Final = re.compile(r"\bforward\b|_call_impl|execute_model|\bgenerate\b|__call__|compute_loss|training_step")
# What a cut text leaves of a traceback: lines of code without their frames.
_CODE_CHARS: Final = 700
_LOG_CHARS: Final = 2_500


def phase_of(frames: Sequence[Frame], before: str, *, serving: bool) -> tuple[str, str]:
    """(phase, operation) of a message; "" where nothing names one.

    Phases: load, profile, warm_up, kv_cache, graph_capture, prefill, decode, sampler, forward, loss, backward,
    optimizer, evaluation, save. Operations: attention, vae, vision, experts, dequantize.

    Args:
        before: the text before the message, for code lines and log lines when there is no traceback.
        serving: the program is a server, whose log_softmax is the sampler's and not a loss.
    """
    if not frames:
        return _without_frames(before, serving)
    texts = [f"{frame.path} {frame.function} {frame.code}" for frame in frames]
    whole = "\n".join(texts)
    operation = _operation(texts)
    for name, pattern in _ENCLOSING_PATTERNS:
        if pattern.search(whole) and not (serving and name in ("evaluation", "optimizer", "save", "backward")):
            return name, operation
    if _moves(frames):
        return "load", operation
    if any("/generation/utils.py" in frame.path for frame in frames):
        return ("prefill" if "_prefill" in whole else "decode"), operation
    for text in reversed(texts):
        inner = _inner(text, serving)
        if inner:
            return inner, operation
    return ("forward" if _FORWARD.search(whole) or operation else ""), operation


def _inner(text: str, serving: bool) -> str:
    for name, pattern in _INNER_PATTERNS:
        if pattern.search(text) and not (name == "sampler" and not serving) and not (name == "loss" and serving):
            return name
    if _LOGITS.search(text):
        return "sampler" if serving else "loss"
    return ""


def _moves(frames: Sequence[Frame]) -> bool:
    """Whether the innermost frames move a module to a device: `model.to(device)`, `_apply`, `convert`."""
    last = frames[-1]
    in_module = "torch/nn/modules/module.py" in last.path and last.function in _MOVE_FUNCTIONS
    return in_module or any(_MOVES.search(f.code.strip().split("\n")[0]) for f in frames[-1:])


def _operation(texts: Sequence[str]) -> str:
    for name, pattern in _OPERATION_PATTERNS:
        if any(pattern.search(text) for text in texts):
            return name
    return ""


def _without_frames(before: str, serving: bool) -> tuple[str, str]:
    """From the last lines of code, or the last lines of the log, before a message without a traceback."""
    code = before[-_CODE_CHARS:]
    operation = _operation([code])
    found = [(m.start(), name) for name, pattern in _ENCLOSING_PATTERNS for m in pattern.finditer(code)]
    found += [(m.start(), "load") for m in _MOVES.finditer(code)]
    if found:
        return max(found)[1], operation
    inner = _inner(code, serving)
    if inner:
        return inner, operation
    log = before[-_LOG_CHARS:]
    told = [(m.start(), name) for name, pattern in _BEFORE for m in pattern.finditer(log)]
    if told:
        return max(told)[1], operation
    return ("forward" if operation else ""), operation
