"""What llama-server is asked to do: its options, declared once, under llama.cpp's own spellings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from annotated_types import Ge, Le

from planner.contract.inputs import option
from planner.contract.reading import read_tokens
from planner.engines.llama_cpp.cards import Machine, cards_of
from planner.engines.llama_cpp.layout.cache import CACHE_TYPES
from planner.engines.llama_cpp.tables.releases import NEWEST
from planner.engines.llama_cpp.tables.variants import variants
from planner.errors import UsageError
from planner.hardware.gpus import Gpu

CONTEXT: Final = "Context and cache"
LAYERS: Final = "Where layers are"
MEMORY: Final = "Memory"
FIT: Final = "Fitting"
BESIDE: Final = "Beside the model"
PROGRAM: Final = "Program"
_MOST: Final = 1 << 24
_TYPES: Final = tuple(CACHE_TYPES)


def _patterns(text: str, name: str) -> tuple[str, ...]:
    """`pattern=device` pairs, several separated by commas."""
    found = tuple(part for part in text.split(",") if part)
    for part in found:
        if "=" not in part:
            raise UsageError(f"{name} {part[:60]!r} has no buffer type; write pattern=CPU", field="override_tensor")
    return found


def _shares(text: str, name: str) -> tuple[float, ...]:
    """Shares of the cards: 3,1 or 3/1."""
    try:
        found = tuple(float(part) for part in text.replace("/", ",").split(",") if part.strip())
    except ValueError:
        found = ()
    if not found or not all(0 <= share < 1e9 for share in found) or not any(found):
        raise UsageError(f"{name} is {text[:40]!r}; expected shares such as 3,1", field="tensor_split")
    return found


def _targets(text: str, name: str) -> tuple[int, ...]:
    """MiB to keep free, one for all cards or one for each."""
    try:
        found = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        found = ()
    if not found or not all(0 <= size < 1 << 24 for size in found):
        raise UsageError(f"{name} is {text[:40]!r}; expected MiB such as 1024 or 1024,512", field="fit_target")
    return found


def _joined(values: Any) -> str:
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Machine):
    """The inputs of a server, under llama-server's names; None means the program's default.

    Args:
        variant: the program that runs llama.cpp.
        passed: words of options that are no input here.
    """

    engine_version: Annotated[
        str, option("Build (b7400), month (2026-05) or release.", panel=PROGRAM, ours=True, memory="card")
    ] = NEWEST
    variant: Annotated[
        str, option("Program that runs llama.cpp.", panel=PROGRAM, ours=True, choices=tuple(variants()))
    ] = "llama.cpp"
    backend: Annotated[
        str | None,
        option("Back end; by the card's maker.", panel=PROGRAM, ours=True, choices=("cuda", "rocm", "metal", "vulkan")),
    ] = None
    quantization: Annotated[
        str | None,
        option(
            "llama.cpp's mix of the weights: Q4_K_M, IQ4_XS, ...",
            "--quantization",
            "-q",
            panel=MEMORY,
            ours=True,
            common=True,
        ),
    ] = None
    ctx_size: Annotated[
        int | None,
        Ge(0),
        Le(1 << 27),
        option(
            "Context of all slots; 0: the model's.",
            "--ctx-size",
            "-c",
            panel=CONTEXT,
            unit="tokens",
            environment={"LLAMA_ARG_CTX_SIZE": read_tokens},
            read=read_tokens,
            common=True,
        ),
    ] = None
    n_gpu_layers: Annotated[
        str | None,
        option(
            "Layers on cards, the output layer counted; auto or all.",
            "--n-gpu-layers",
            "-ngl",
            "--gpu-layers",
            panel=LAYERS,
            common=True,
        ),
    ] = None
    batch_size: Annotated[
        int | None, Ge(1), Le(_MOST), option("Tokens of a batch.", "--batch-size", "-b", panel=CONTEXT)
    ] = None
    ubatch_size: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option("Tokens computed at once.", "--ubatch-size", "-ub", panel=CONTEXT, common=True),
    ] = None
    parallel: Annotated[
        int | None, Ge(-1), Le(256), option("Slots.", "--parallel", "-np", panel=CONTEXT, common=True)
    ] = None
    flash_attn: Annotated[
        str | None,
        option(
            "Fused attention.",
            "--flash-attn",
            "-fa",
            panel=CONTEXT,
            bare="on",
            choices=("on", "off", "auto"),
            common=True,
        ),
    ] = None
    cache_type_k: Annotated[
        str, option("Type of cached keys.", "--cache-type-k", "-ctk", panel=CONTEXT, choices=_TYPES, common=True)
    ] = "f16"
    cache_type_v: Annotated[
        str, option("Type of cached values.", "--cache-type-v", "-ctv", panel=CONTEXT, choices=_TYPES, common=True)
    ] = "f16"
    kv_unified: Annotated[
        bool | None,
        option("One cache for all slots.", "--kv-unified", "-kvu", switched_off=("--no-kv-unified",), panel=CONTEXT),
    ] = None
    swa_full: Annotated[bool, option("Windowed layers keep the whole context.", "--swa-full", panel=CONTEXT)] = False
    kv_offload: Annotated[
        bool,
        option(
            "The cache is where its layers are.",
            "--kv-offload",
            "-kvo",
            switched_off=("--no-kv-offload", "-nkvo"),
            panel=CONTEXT,
        ),
    ] = True
    tensor_split: Annotated[
        tuple[float, ...] | None,
        option("Shares of the cards: 3,1.", "--tensor-split", "-ts", panel=LAYERS, read=_shares, write=_joined),
    ] = None
    split_mode: Annotated[
        str,
        option(
            "How cards share a model.", "--split-mode", "-sm", panel=LAYERS, choices=("layer", "none", "row", "tensor")
        ),
    ] = "layer"
    main_gpu: Annotated[int, Ge(0), option("The card with --split-mode none.", "--main-gpu", "-mg", panel=LAYERS)] = 0
    n_cpu_moe: Annotated[
        int | None,
        Ge(0),
        Le(4096),
        option("Experts of that many layers stay in RAM.", "--n-cpu-moe", "-ncmoe", panel=LAYERS, common=True),
    ] = None
    cpu_moe: Annotated[bool, option("All experts stay in RAM.", "--cpu-moe", "-cmoe", panel=LAYERS)] = False
    override_tensor: Annotated[
        tuple[str, ...],
        option(
            "pattern=device for tensors by name.",
            "--override-tensor",
            "-ot",
            panel=LAYERS,
            read=_patterns,
            write=",".join,
            several=True,
        ),
    ] = ()
    op_offload: Annotated[bool, option("Large batches copy host weights to a card.", "--op-offload", panel=LAYERS)] = (
        True
    )
    mmap: Annotated[bool, option("Map the file rather than read it.", "--mmap", panel=MEMORY)] = True
    mlock: Annotated[bool, option("Keep the model in RAM.", "--mlock", panel=MEMORY)] = False
    cache_ram: Annotated[
        int | None,
        Ge(-1),
        Le(1 << 24),
        option(
            "MiB of RAM for prompts that left their slot; -1: no limit.",
            "--cache-ram",
            "-cram",
            panel=MEMORY,
            unit="MiB",
        ),
    ] = None
    fit: Annotated[
        str | None,
        option("Change what is not given so that it fits.", "--fit", "-fit", panel=FIT, choices=("on", "off")),
    ] = None
    fit_target: Annotated[
        tuple[int, ...] | None,
        option(
            "MiB to keep free on each card.",
            "--fit-target",
            "-fitt",
            panel=FIT,
            unit="MiB",
            read=_targets,
            write=_joined,
        ),
    ] = None
    fit_ctx: Annotated[
        int | None,
        Ge(256),
        Le(1 << 27),
        option("Least context that --fit may choose.", "--fit-ctx", "-fitc", panel=FIT, read=read_tokens),
    ] = None
    embedding: Annotated[
        bool,
        option("Serve embeddings: every token of a batch is an output.", "--embedding", "--embeddings", panel=PROGRAM),
    ] = False
    mmproj: Annotated[str | None, option("File of the image encoder.", "--mmproj", "-mm", panel=BESIDE)] = None
    model_draft: Annotated[
        str | None, option("Draft model.", "--model-draft", "-md", "--spec-draft-model", panel=BESIDE)
    ] = None
    draft_max: Annotated[
        int | None,
        Ge(0),
        Le(1024),
        option("Tokens drafted at once.", "--draft-max", "--draft", "--draft-n", "--spec-draft-n-max", panel=BESIDE),
    ] = None
    mla: Annotated[int | None, Ge(0), Le(3), option("ik_llama.cpp: MLA mode.", "--mla-use", "-mla", panel=PROGRAM)] = (
        None
    )
    attention_max_batch: Annotated[
        int | None,
        Ge(0),
        Le(1 << 20),
        option("ik_llama.cpp: MiB of scores at once.", "--attention-max-batch", "-amb", panel=PROGRAM),
    ] = None
    fused_moe: Annotated[
        bool | None,
        option(
            "ik_llama.cpp: fused experts.",
            "--fused-moe",
            "-fmoe",
            switched_off=("--no-fused-moe", "-no-fmoe"),
            panel=PROGRAM,
        ),
    ] = None
    run_time_repack: Annotated[
        bool,
        option("ik_llama.cpp: host weights are interleaved for a CPU.", "--run-time-repack", "-rtr", panel=PROGRAM),
    ] = False

    passed: tuple[str, ...] = ()

    @staticmethod
    def settle(given: Mapping[str, Any]) -> dict[str, Any]:
        """As `Machine.settle`; the first of several cards is the one that is named."""
        found = dict(given)
        text = found.get("gpus") or found.get("gpu")
        if isinstance(text, str):
            listed = cards_of(text)
            if len(listed) > 1:
                found["gpus"], found["gpu"] = text, listed[0].id
        return Machine.settle(found)

    @property
    def cards(self) -> tuple[Gpu, ...]:
        """Every card."""
        if self.gpus is not None:
            return cards_of(self.gpus)
        return (self.gpu,) if self.gpu is not None else ()
