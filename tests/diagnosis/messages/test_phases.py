"""Program, phase and operation from the frames of a traceback, on either side of the message."""

from __future__ import annotations

import pytest

from planner.diagnosis import diagnose_text

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 0.55 GiB is free."
)
P = "/venv/lib/python3.12/site-packages"
TRAIN = ("/home/me/train.py", "<module>", "trainer.train()")
CASES = {
    "backward of a checkpoint": (
        (
            TRAIN,
            (f"{P}/transformers/trainer.py", "training_step", "self.accelerator.backward(loss)"),
            (f"{P}/torch/utils/checkpoint.py", "unpack_hook", "frame.recompute_fn(*args)"),
            (f"{P}/transformers/models/llama/modeling_llama.py", "forward", "attn_weights = torch.matmul(query, key)"),
        ),
        ("trainer", "train", "backward", "attention"),
    ),
    "forward within compute_loss": (
        (
            TRAIN,
            (f"{P}/transformers/trainer.py", "compute_loss", "outputs = model(**inputs)"),
            (f"{P}/transformers/models/llama/modeling_llama.py", "forward", "self.up_proj(x)"),
        ),
        ("trainer", "train", "forward", None),
    ),
    "loss": (
        (TRAIN, (f"{P}/transformers/loss/loss_utils.py", "ForCausalLMLoss", "logits = logits.float()")),
        ("transformers", "train", "loss", None),
    ),
    "evaluation": (
        ((f"{P}/transformers/trainer.py", "evaluation_loop", "nested_concat(all_preds, logits)"),),
        ("trainer", "train", "evaluation", None),
    ),
    "optimizer": (
        (TRAIN, (f"{P}/torch/optim/adamw.py", "_init_group", "state['exp_avg'] = torch.zeros_like(p)")),
        (None, "train", "optimizer", None),
    ),
    "save": (
        ((f"{P}/axolotl/train.py", "save", "x"), (f"{P}/transformers/trainer.py", "save_model", "get_state_dict(m)")),
        ("axolotl", "train", "save", None),
    ),
    "a model moved": (
        (("/home/me/run.py", "<module>", "x"), (f"{P}/torch/nn/modules/module.py", "convert", "return t.to(")),
        (None, None, "load", None),
    ),
    "weights created": (
        (
            (f"{P}/vllm/v1/worker/gpu_worker.py", "load_model", "x"),
            (f"{P}/vllm/model_executor/layers/linear.py", "create_weights", "torch.empty(n)"),
        ),
        ("vllm", "serve", "load", None),
    ),
    "profile run": (
        (
            (f"{P}/vllm/v1/engine/core.py", "__init__", "self._initialize_kv_caches(config)"),
            (f"{P}/vllm/v1/worker/gpu_worker.py", "determine_available_memory", "self.model_runner.profile_run()"),
            (f"{P}/vllm/model_executor/models/qwen2.py", "forward", "x"),
        ),
        ("vllm", "serve", "profile", None),
    ),
    "graphs": (
        ((f"{P}/vllm/v1/worker/gpu_model_runner.py", "capture_model", "self._dummy_run(n)"),),
        ("vllm", "serve", "graph_capture", None),
    ),
    "layers that SGLang borrows": (
        (
            (f"{P}/sglang/srt/model_executor/model_runner.py", "forward_extend", "x"),
            (f"{P}/vllm/model_executor/layers/activation.py", "forward", "x"),
        ),
        ("sglang", "serve", "prefill", None),
    ),
    "decoder of pictures": (
        (("C:\\AI\\ComfyUI\\nodes.py", "decode", "images = vae.decode(samples)"),),
        ("comfyui", "generate", "forward", "vae"),
    ),
    "generation": (
        (
            ("/home/me/chat.py", "<module>", "model.generate(**inputs)"),
            (f"{P}/transformers/generation/utils.py", "_prefill", "x"),
            (f"{P}/transformers/models/llama/modeling_llama.py", "forward", "logits = self.lm_head(h)"),
        ),
        ("transformers", "infer", "prefill", None),
    ),
    "a server within a trainer": (
        (
            (f"{P}/trl/trainer/grpo_trainer.py", "_generate", "self.llm.generate(prompts)"),
            (f"{P}/vllm/v1/worker/gpu_model_runner.py", "execute_model", "x"),
        ),
        ("trl", "train", "forward", None),
    ),
    "a vision tower": (
        ((f"{P}/vllm/model_executor/models/qwen2_5_vl.py", "forward", "x = self.visual(pixel_values)"),),
        ("vllm", "serve", "forward", "vision"),
    ),
}
NAMES = ("engine", "trade", "phase", "operation")


def context(text: str) -> tuple[str | None, ...]:
    found = diagnose_text(text).findings[0].message.context
    return tuple(found.get(name) for name in NAMES)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("side", ["before", "after"])
def test_program_phase_and_operation(name: str, side: str) -> None:
    frames, expected = CASES[name]
    traceback = "Traceback (most recent call last):\n" + "".join(
        f'  File "{path}", line 10, in {function}\n    {code}\n' for path, function, code in frames
    )
    text = traceback + MESSAGE if side == "before" else f"{MESSAGE}\n{traceback}"
    assert context(text) == expected


def test_a_word_names_no_program() -> None:
    assert context(f"I moved from vllm to sglang, and deepspeed with ComfyUI fails as well:\n{MESSAGE}")[0] is None


def test_a_servers_log_lines_name_it() -> None:
    line = "(EngineCore_DP0 pid=77) INFO 10-25 13:08:43 [gpu_model_runner.py:2602] Starting to load model x\n"
    assert context(line + MESSAGE)[:3] == ("vllm", "serve", "load")


def test_the_last_of_chained_tracebacks_counts() -> None:
    first = f'Traceback (most recent call last):\n  File "{P}/x.py", line 1, in load_model\n    x\nKeyError: 1\n\n'
    second = f'Traceback (most recent call last):\n  File "{P}/torch/optim/adam.py", line 1, in step\n    x\n'
    assert context(first + "During handling of the above exception:\n\n" + second + MESSAGE)[2] == "optimizer"
