"""TRL's online trainers: prompts, completions, and the engine that generates."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.launches.trainers.recipe import Run


def put_reinforcement(run: Run) -> None:
    """TRL's GRPO and its kin: prompt and completion lengths, and the engine that shares the card."""
    plan = run.plan
    prompt, answer = run.number("max_prompt_length"), run.number("max_completion_length")
    objective = plan.get("objective")
    if objective in ("grpo", "ppo", "rloo", "online_dpo") and "max-seq-length" not in plan.inputs:
        if prompt is not None and answer is not None:
            run.put("max-seq-length", prompt.value + answer.value, answer)
        elif answer is not None or prompt is not None:
            from planner.launches.engines.vllm import release

            cut = plan.version is not None and (0, 15, 0) <= release(plan.version) < (0, 29, 0)
            early = plan.version is not None and release(plan.version) < (0, 29, 0)
            if answer is None and prompt is not None:
                run.put("max-seq-length", prompt.value + (256 if early else 512), prompt)
            elif answer is not None and cut:
                run.put("max-seq-length", 512 + answer.value, answer)
            elif answer is not None:
                run.context.launch.need(
                    "sequence length",
                    "prompts are not cut in this release: the longest is not stated",
                    settle="max_prompt_length",
                )
    if run.flag("use_vllm"):
        mode = run.take("vllm_mode")
        from planner.launches.engines.vllm import release

        newest = plan.version is None or release(plan.version) >= (1, 0, 0)
        colocated = str(mode.value) == "colocate" if mode is not None else newest
        share = run.number("vllm_gpu_memory_utilization", whole=False)
        if colocated:
            at = share or mode or run.fields["use_vllm"]
            run.put("generation-share", share.value if share else 0.3, at)
        else:
            run.context.launch.note("vllm_mode server: generation runs on other GPUs, which are planned apart")
    beta = run.number("beta", whole=False)
    if beta is not None and beta.value > 0 and objective == "grpo":
        run.context.launch.note("beta above 0 needs a reference model beside the policy")
