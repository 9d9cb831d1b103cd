"""verl's hydra overrides and OpenRLHF's flags (verl 0.9.1 trainer/config; OpenRLHF 0.11.2 cli)."""

from __future__ import annotations

from typing import Final

from planner.launches.context import Context
from planner.launches.record import Value
from planner.launches.shell.expansion import Argument
from planner.launches.trainers.arguments import hf_arguments, overrides
from planner.launches.trainers.fields import DTYPES, names, truth
from planner.launches.trainers.programs.trl import put_model
from planner.launches.trainers.recipe import Run

_ACTOR = "actor_rollout_ref"
_ESTIMATORS = {"gae": "ppo", "grpo": "grpo"}
_OPENRLHF = {"sft": "sft", "dpo": "dpo", "kto": "kto", "rm": "reward", "ppo": "ppo", "ppo_ray": "ppo"}


def read_verl(context: Context, words: list[Argument], *, sft: bool = False) -> list[Run]:
    """`python -m verl.trainer.main_ppo key=value`."""
    stated = overrides(context, words)
    run = Run(context, "verl")

    def at(*paths: str) -> Value | None:
        return next((stated[path] for path in paths if path in stated and stated[path].value is not None), None)

    put_model(context, run, at("model.partial_pretrain", "model.path") if sft else at(f"{_ACTOR}.model.path"))
    fields = run.fields
    rank = at(f"{_ACTOR}.model.lora_rank", "model.lora_rank")
    run.adapters = rank is not None and isinstance(rank.value, int) and rank.value > 0
    if run.adapters and rank is not None:
        fields["lora_r"] = rank
        targets = at(f"{_ACTOR}.model.target_modules", "model.target_modules")
        if targets is not None:
            fields["target_modules"] = targets
    estimator = at("algorithm.adv_estimator")
    objective = "sft" if sft else _ESTIMATORS.get(str(estimator.value) if estimator else "gae", "grpo")
    fields["objective"] = Value(objective, estimator.line if estimator else 1, context.file)
    for path, name in (
        (f"{_ACTOR}.model.use_remove_padding", "use_remove_padding"),
        (f"{_ACTOR}.model.enable_gradient_checkpointing", "gradient_checkpointing"),
        (f"{_ACTOR}.model.enable_activation_offload", "activation_offloading"),
        (f"{_ACTOR}.model.use_liger", "use_liger"),
        (f"{_ACTOR}.actor.fsdp_config.param_offload", "offload_parameters"),
        (f"{_ACTOR}.actor.fsdp_config.optimizer_offload", "offload_optimizer"),
        (f"{_ACTOR}.actor.fsdp_config.model_dtype", "dtype"),
        ("data.micro_batch_size_per_gpu", "per_device_train_batch_size"),
        (f"{_ACTOR}.actor.ppo_micro_batch_size_per_gpu", "per_device_train_batch_size"),
        ("data.max_length", "max_length"),
    ):
        value = at(path)
        if value is not None:
            fields[name] = value
    _verl_lengths(context, run, stated, sft=sft)
    dynamic = at(f"{_ACTOR}.actor.use_dynamic_bsz")
    if dynamic is not None and truth(dynamic):
        tokens = at(f"{_ACTOR}.actor.ppo_max_token_len_per_gpu")
        count = tokens.value if tokens is not None else 16384
        fields["per_device_train_batch_size"] = Value(1, dynamic.line, context.file)
        if isinstance(count, int):
            fields["max_length"] = Value(count, (tokens or dynamic).line, context.file)
        context.launch.note(
            "use_dynamic_bsz: a micro-batch is filled up to ppo_max_token_len_per_gpu tokens, planned as one"
            " packed sequence"
        )
    elif "per_device_train_batch_size" not in fields:
        context.launch.need(
            "micro-batch",
            "ppo_micro_batch_size_per_gpu is not stated",
            settle=f"{_ACTOR}.actor.ppo_micro_batch_size_per_gpu",
        )
    strategy = at(f"{_ACTOR}.actor.strategy", "model.strategy")
    kind = str(strategy.value) if strategy is not None else "fsdp"
    if kind in ("fsdp", "fsdp2"):
        fields["sharding"] = strategy or Value("fsdp", 1, context.file, "default of the trainer")
    else:
        context.launch.need("strategy", f"{kind} is not read", settle="sharding")
    if not sft:
        _verl_rollout(context, run, stated)
    gpus, nodes = at("trainer.n_gpus_per_node"), at("trainer.nnodes")
    if gpus is not None and isinstance(gpus.value, int):
        run.plan.nodes = nodes.value if nodes is not None and isinstance(nodes.value, int) else 1
        run.processes = gpus.value * run.plan.nodes
        fields["processes"] = Value(run.processes, gpus.line, context.file)
    elif not sft:
        context.launch.note("trainer.n_gpus_per_node is not stated: the trainer's default is 8")
        run.processes = 8 * (nodes.value if nodes is not None and isinstance(nodes.value, int) else 1)
        fields["processes"] = Value(run.processes, 1, context.file, "default of the trainer")
    if "dtype" in fields and not DTYPES.get(str(fields["dtype"].value)):
        fields.pop("dtype")
    return [run]


def _verl_lengths(context: Context, run: Run, stated: dict[str, Value], *, sft: bool) -> None:
    prompt, answer = stated.get("data.max_prompt_length"), stated.get("data.max_response_length")
    if sft or (prompt is None and answer is None):
        return
    total = 0
    for value in (prompt, answer):
        total += value.value if value is not None and isinstance(value.value, int) else 512
    place = answer or prompt or Value(None, 1, context.file)
    run.fields["max_length"] = Value(total, place.line, place.file)


def _verl_rollout(context: Context, run: Run, stated: dict[str, Value]) -> None:
    share = stated.get(f"{_ACTOR}.rollout.gpu_memory_utilization")
    if share is not None and isinstance(share.value, int | float):
        run.put("generation-share", float(share.value), share)
    size = stated.get(f"{_ACTOR}.rollout.tensor_model_parallel_size")
    if size is not None:
        run.put("verl.rollout.tensor_model_parallel_size", size.value, size)
    reference = stated.get(f"{_ACTOR}.actor.use_kl_loss") or stated.get("algorithm.use_kl_in_reward")
    if reference is not None and truth(reference):
        offloaded = stated.get(f"{_ACTOR}.ref.fsdp_config.param_offload")
        tail = "; its parameters are offloaded" if offloaded is not None and truth(offloaded) else ""
        context.launch.note(f"use_kl_loss needs a reference model beside the actor{tail}")
    further = [name for name in stated if ".rollout.engine_kwargs." in name]
    if further:
        context.launch.note(
            f"{', '.join(one.rsplit('.', 1)[1] for one in further)[:120]}: handed to the rollout engine, not an"
            " input here"
        )


# fields of a run under their names of both generations of flags
_OPENRLHF_FIELDS: Final = (
    (
        ("train.micro_batch_size", "train.micro_train_batch_size", "micro_train_batch_size"),
        "per_device_train_batch_size",
    ),
    (("data.max_len", "max_len"), "max_length"),
    (("ds.param_dtype", "param_dtype"), "dtype"),
    (
        ("model.gradient_checkpointing_enable", "ds.gradient_checkpointing", "gradient_checkpointing"),
        "gradient_checkpointing",
    ),
    (("ds.load_in_4bit", "load_in_4bit"), "load_in_4bit"),
    (("ds.packing_samples", "packing_samples"), "packing"),
    (("ds.adam_offload", "adam_offload"), "offload_optimizer"),
    (("ds.attn_implementation", "attn_implementation"), "attn_implementation"),
    (("ds.use_liger_kernel", "use_liger_kernel"), "use_liger_kernel"),
)


def read_openrlhf(context: Context, kind: str, words: list[Argument]) -> list[Run]:
    """`-m openrlhf.cli.train_*` with the old underscored and the new dotted flags."""
    raw = hf_arguments(
        context,
        [
            Argument(
                w.text.replace(".", "__", w.text.count("."))
                if w.text.startswith("--") and "=" not in w.text
                else w.text,
                w.line,
                w.how,
                w.missing,
            )
            for w in words
        ],
    )
    stated = {name.replace("__", "."): value for name, value in raw.items()}
    run = Run(context, "openrlhf")

    def at(*paths: str) -> Value | None:
        return next((stated[path] for path in paths if path in stated and stated[path].value is not None), None)

    put_model(context, run, at("model.model_name_or_path", "actor.model_name_or_path", "pretrain"))
    fields = run.fields
    rank = at("ds.lora.rank", "lora_rank")
    run.adapters = rank is not None and str(rank.value).isdecimal() and int(rank.value) > 0
    if run.adapters and rank is not None:
        fields["lora_r"] = rank
        targets = at("ds.lora.target_modules", "target_modules")
        if targets is not None and names(targets.value):
            fields["target_modules"] = targets
    objective = _OPENRLHF.get(kind)
    estimator = at("algo.advantage.estimator", "advantage_estimator")
    if kind == "ppo_ray" and estimator is not None and "group" in str(estimator.value):
        objective = "grpo"
    if objective is not None:
        fields["objective"] = Value(
            objective, (estimator or at("model.model_name_or_path", "pretrain") or Value(0, 1)).line, context.file
        )
    for paths, name in _OPENRLHF_FIELDS:
        value = at(*paths)
        if value is not None:
            fields[name] = value
    if at("flash_attn") is not None:
        fields["attn_implementation"] = Value("flash_attention_2", stated["flash_attn"].line, context.file)
    if at("bf16") is not None and "dtype" not in fields:
        fields["dtype"] = Value("bfloat16", stated["bf16"].line, context.file)
    stage = at("ds.zero_stage", "zero_stage")
    if stage is not None and str(stage.value) in ("0", "1", "2", "3"):
        fields["sharding"] = Value("ddp" if str(stage.value) == "0" else f"zero{stage.value}", stage.line, stage.file)
    prompt, answer = at("data.prompt_max_len", "prompt_max_len"), at("rollout.generate_max_len", "generate_max_len")
    if prompt is not None and answer is not None and str(prompt.value).isdecimal() and str(answer.value).isdecimal():
        fields["max_length"] = Value(int(prompt.value) + int(answer.value), answer.line, answer.file)
    share = at("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization")
    together = at("train.colocate_all", "colocate_all_models", "vllm.colocate_with_actor", "colocate_actor_vllm")
    if share is not None and together is not None:
        run.fields["share"] = share
        part = run.number("share", whole=False)
        if part is not None:
            run.put("generation-share", part.value, share)
    elif share is not None:
        context.launch.note("the generation engines have GPUs of their own: they are planned apart")
    gpus, nodes = at("actor.num_gpus_per_node", "actor_num_gpus_per_node"), at("actor.num_nodes", "actor_num_nodes")
    if gpus is not None and str(gpus.value).isdecimal():
        run.plan.nodes = int(nodes.value) if nodes is not None and str(nodes.value).isdecimal() else 1
        run.processes = int(gpus.value) * run.plan.nodes
        fields["processes"] = Value(run.processes, gpus.line, gpus.file)
    return [run]
