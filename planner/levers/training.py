"""A fine-tune that can be planned again with other inputs, and what could be changed about it, in order of cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

from planner.contract.lever import Changes, Kind, Lever, Value, kept_in, kinds
from planner.contract.workload import Accept
from planner.errors import PlannerError
from planner.hardware.gpus import Gpu
from planner.levers.advice import EXPANDABLE, Advice
from planner.levers.effect import effects
from planner.levers.goal import Solved
from planner.levers.relief import Relief, excesses, server_cards
from planner.levers.search import fitting_sets
from planner.model.model import Model
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe
from planner.units import format_size

TABLE: Final = "planner.levers:training_levers.csv"

# Assumed: the shortest sequence worth proposing; cards in steps that clusters come in.
_SHORTEST: Final = 256
_LOWEST_RANK: Final = 4
_CARDS: Final = (2, 4, 8, 16, 32, 64)
_EIGHT_BIT: Final = "adamw_bnb_8bit"
_FULL_PRECISION_OPTIMIZERS: Final = (
    "adamw_torch",
    "adamw_torch_foreach",
    "adamw_torch_fused",
    "adamw_torch_for_loop",
    "adamw_hf",
    "adamw_apex_fused",
    "adamw_anyprecision",
    "adamw_bnb_32bit",
)
_PARTLY_SHARED: Final = ("none", "ddp", "zero1", "zero2")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingQuestion:
    """What was asked: a model, a recipe and a card."""

    model: Model
    recipe: Recipe
    gpu: Gpu | None
    gpu_memory_bytes: int | None = None
    accept: Accept = "tight"

    def ask(self, changes: Changes) -> TrainingPlan:
        """The plan with some of the recipe's inputs, or the card, changed.

        Raises:
            PlannerError: as `plan_training`.
        """
        names = {field.name for field in fields(Recipe)}
        recipe = replace(self.recipe, **{name: value for name, value in changes.items() if name in names})  # type: ignore[arg-type]
        gpu, memory = self.gpu, self.gpu_memory_bytes
        if "gpu" in changes:
            other = changes["gpu"]
            assert isinstance(other, Gpu)
            gpu, memory = other, None
        return plan_training(self.model, recipe, gpu, gpu_memory_bytes=memory, replays=False)

    def try_ask(self, changes: Changes) -> TrainingPlan | None:
        """The same, or None where the recipe is impossible."""
        try:
            return self.ask(changes)
        except PlannerError:
            return None

    def fits(self, changes: Changes) -> bool:
        """Whether the plan with these changes counts as fitting."""
        plan = self.try_ask(changes)
        return plan is not None and self.accepts(plan)

    def accepts(self, plan: TrainingPlan) -> bool:
        """Whether a plan counts as fitting."""
        return plan.verdict == "fits" or (self.accept == "tight" and plan.verdict == "tight")

    def verdict(self, plan: TrainingPlan) -> str:
        """The plan's verdict."""
        return plan.verdict

    def saving(self, before: TrainingPlan, after: TrainingPlan) -> int:
        """Bytes of card that `after` needs less than `before`, at best estimates."""
        return before.needed_best - after.needed_best

    def command(self, plan: TrainingPlan) -> str:
        """Nothing: trainers are started in many ways."""
        return ""

    def cards(self, plan: TrainingPlan) -> tuple[int, int]:
        """(GPUs, pipeline stages)."""
        return plan.recipe.num_gpus, plan.recipe.pipeline_parallel_size


def training_levers(plan: TrainingPlan, keep: frozenset[str] = frozenset()) -> tuple[Lever, ...]:
    """The levers that apply to a fine-tune, cheapest first; values mildest first.

    Args:
        keep: inputs that must stay as they are.
    """
    return tuple(lever for lever in _all(plan) if lever.kind.input not in keep and len(lever.values))


def _kind(name: str) -> Kind:
    return kinds(TABLE)[name]


def _all(plan: TrainingPlan) -> Iterator[Lever]:
    recipe = plan.recipe
    if recipe.method == "inference":
        return
    yield from _free_of_cost(plan)
    yield from _rank(recipe)
    yield _batch(recipe)
    yield from _methods(recipe)
    yield from _sharding(recipe)
    if not recipe.offload_optimizer:
        yield _single(
            "offload-optimizer", "on the card", "in host memory", {"offload_optimizer": True}, "--offload-optimizer"
        )
    yield Lever(
        kind=_kind("max-seq-length"),
        before=str(recipe.max_seq_length),
        values=range(recipe.max_seq_length - 1, _SHORTEST - 1, -1),
        changes=lambda value: {"max_seq_length": value},
        flag=lambda value: f"--max-seq-length {value}",
    )


def _free_of_cost(plan: TrainingPlan) -> Iterator[Lever]:
    """What costs nothing, a little time, or little quality: kernels, checkpointing, 8-bit states."""
    recipe = plan.recipe
    capability = plan.gpu.capability
    if recipe.attn_implementation == "eager" and (capability is None or capability >= (8, 0)):
        yield _single(
            "attn-implementation",
            "eager",
            "flash_attention_2",
            {"attn_implementation": "flash_attention_2"},
            "--attn-implementation flash_attention_2",
        )
    if not recipe.gradient_checkpointing:
        yield _single(
            "gradient-checkpointing", "off", "on", {"gradient_checkpointing": True}, "--gradient-checkpointing"
        )
    if recipe.loss in ("hf", "in-place"):
        yield Lever(
            kind=_kind("loss"),
            before=recipe.loss,
            values=("chunked", "liger"),
            changes=lambda value: {"loss": value},
            flag=lambda value: f"--loss {value}",
        )
    if recipe.optim in _FULL_PRECISION_OPTIMIZERS:
        yield _single("optim", recipe.optim, _EIGHT_BIT, {"optim": _EIGHT_BIT}, f"--optim {_EIGHT_BIT}")


def _rank(recipe: Recipe) -> Iterator[Lever]:
    """Adapters of half the rank, and half again, down to the lowest that is used."""
    rank = recipe.lora_rank or 0
    lower = tuple(rank >> times for times in range(1, rank.bit_length()) if rank >> times >= _LOWEST_RANK)
    if recipe.adapters and lower:
        yield Lever(
            kind=_kind("lora-rank"),
            before=str(rank),
            values=lower,
            changes=lambda value: {"lora_rank": value},
            flag=lambda value: f"--lora-rank {value}",
        )


def _single(name: str, before: str, after: str, changes: Changes, flag: str) -> Lever:
    return Lever(
        kind=_kind(name), before=before, values=(after,), changes=lambda value: changes, flag=lambda value: flag
    )


def _batch(recipe: Recipe) -> Lever:
    """Batch down, accumulation up: the smaller batches that divide the effective one."""
    batch, steps = recipe.per_device_train_batch_size, recipe.gradient_accumulation_steps
    smaller = tuple(size for size in range(batch - 1, 0, -1) if batch * steps % size == 0)

    def changes(value: Value) -> Changes:
        size = int(value)
        return {"per_device_train_batch_size": size, "gradient_accumulation_steps": batch * steps // size}

    return Lever(
        kind=_kind("per-device-train-batch-size"),
        before=f"{batch} x {steps}",
        values=smaller,
        changes=changes,
        after=lambda value: f"{value} x {batch * steps // int(value)}",
        flag=lambda value: (
            f"--per-device-train-batch-size {value} --gradient-accumulation-steps {batch * steps // int(value)}"
        ),
    )


def _methods(recipe: Recipe) -> Iterator[Lever]:
    quantised = recipe.base_quantization != "none"
    if recipe.method in ("full", "freeze", "galore"):
        yield _single("method-lora", recipe.method, "lora", {"method": "lora"}, "--method lora")
    if recipe.method in ("full", "freeze", "galore", "lora", "rslora") and not quantised:
        changes = {"method": "qlora", "base_quantization": None, "prepare_kbit": None}
        yield _single("method-qlora", recipe.method, "qlora", changes, "--method qlora")


def _sharding(recipe: Recipe, above: int | None = None) -> Iterator[Lever]:
    """ZeRO-3 over more cards (than `above`; None: than the recipe has), or more cards under the sharding it has."""
    fewest = recipe.num_gpus if above is None else above
    ways = recipe.tensor_parallel_size * recipe.pipeline_parallel_size * recipe.context_parallel_size
    kept = recipe.sharding not in _PARTLY_SHARED
    sharding = recipe.sharding if kept else "zero3"
    yield Lever(
        kind=_kind("num-gpus"),
        before=f"{recipe.num_gpus}, {recipe.sharding}",
        values=tuple(count for count in _CARDS if count % ways == 0 and count > fewest),
        changes=lambda value: {"num_gpus": value, "sharding": sharding},
        after=lambda value: f"{value}, {sharding}",
        flag=lambda value: f"--num-gpus {value} --sharding {sharding}",
    )


def advise_training(
    question: TrainingQuestion, plan: TrainingPlan, *, keep: frozenset[str] = frozenset(), solved: Solved | None = None
) -> Advice:
    """Levers, sets and relief for a fine-tune.

    Args:
        plan: the plan of the question as asked.
        keep: inputs that must stay as they are.
        solved: the solution of a goal, to be shown with them.
    """
    levers = training_levers(plan, keep)
    return Advice(
        levers=effects(question, plan, levers),
        plans=() if question.accepts(plan) else fitting_sets(question, plan, levers),
        relief=_relief(question, plan) if plan.verdict == "does_not_fit" else None,
        solved=solved,
        notes=_notes(plan),
    )


def _notes(plan: TrainingPlan) -> tuple[str, ...]:
    waste = sum(part.best for part in plan.components if part.name == "fragmentation")
    if plan.verdict == "fits" or not waste:
        return ()
    return (
        f"free besides: {EXPANDABLE} gives back much of the {format_size(waste)} of fragmentation; how much is not"
        " planned, so nothing is claimed",
    )


def _relief(question: TrainingQuestion, plan: TrainingPlan) -> Relief:
    """Terms beyond the card, the smallest listed card and the fewest of the same card that hold the run as it is."""
    oldest = plan.gpu.capability or (7, 0)
    cards = server_cards(plan.gpu.vendor or "NVIDIA")
    newer = [card for card in cards if card.capability is None or card.capability >= oldest]
    card = next((one for one in newer if question.fits({"gpu": one})), None)
    spread = next((change for change in spreads(plan.recipe) if question.fits(change)), None)
    return Relief(
        excess=excesses(plan.components, 0, plan.gpu_memory_bytes),
        sum_excess_bytes=plan.shortfall_bytes,
        card={} if card is None else {"gpu": card},
        layout=spread or {},
        cards=int(str((spread or {}).get("num_gpus", 0))),
        card_flag="" if card is None else f"--gpu {card.id}",
        layout_flag=_spread_flag(spread or {}),
    )


def _spread_flag(changes: Changes) -> str:
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in changes.items() if value is not None)


def spreads(recipe: Recipe, above: int | None = None) -> list[Changes]:
    """Changes to more cards than `above` (None: than the recipe has), fewest first."""
    return [lever.changes(value) for lever in _sharding(recipe, above) for value in lever.values]


def kept_recipe_inputs(text: str) -> frozenset[str]:
    """The recipe's inputs that `train --keep` forbids touching.

    Raises:
        UsageError: a name that no lever changes; names the nearest.
    """
    return kept_in(TABLE, (part for part in text.split(",") if part.strip()))
