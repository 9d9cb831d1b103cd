"""A separate model that proposes tokens: a small model of its own, or a head over the target's hidden states.

An EAGLE head is one layer that reads the target's hidden states. It borrows the target's embedding and, before
EAGLE-3, its output matrix. Published configs of EAGLE heads call themselves by the class of one plain Llama layer.

Sources: arXiv 2401.15077, 2503.01840; vLLM 0.19.1 `config/speculative.py` (the method by name and config of the draft),
`models/llama_eagle.py`, `models/llama_eagle3.py`; SGLang 0.5.9 `speculative/eagle_worker.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from planner.errors import PlannerError
from planner.model.from_config import model_from_config
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp
from planner.model.load import load_model
from planner.model.model import Model
from planner.model.spec import Layer
from planner.model.tensor import Role, linear

HEADS: Final = ("eagle", "eagle3")
_WITH_OTHER_WEIGHTS: Final = ("medusa", "mlp_speculator", "dflash", "dspark")
_HEAD_DIM: Final = 128
# published heads have 2.5 to 6 (gpt-oss-120b's) times the hidden size in their MLP; Llama-3.1-8B's has 3.5
_WIDTHS: Final = (2.5, 3.5, 6.0)
# rows of the output matrix in published EAGLE-3 heads
_DRAFT_ROWS: Final = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A draft beside its target.

    Args:
        method: "eagle", "eagle3" or "draft_model"; another where nothing says what it is.
        model: what it is, with what it borrows left out; None where nothing says what it is.
        narrow, wide: an assumed head at either end of what published ones are; None for one that was read.
        note: what was found, in a sentence.
    """

    name: str
    method: str
    model: Model | None
    narrow: Model | None = None
    wide: Model | None = None
    note: str

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, which have a cache of their own."""
        return self.model.spec.layers if self.model is not None else ()

    @property
    def sizes(self) -> tuple[Model, ...]:
        """The narrowest, the likely and the widest that it may be; () where nothing says what it is."""
        if self.model is None:
            return ()
        return (self.narrow or self.model, self.model, self.wide or self.model)


def read_draft(target: Model, name: str, method: str, *, shares_embedding: bool) -> Draft:
    """The draft of that name.

    Args:
        name: a bundled name, a folder or file, or a Hub id.
        method: "eagle", "eagle3", "draft_model", "mtp"; "": by the name and the config.
        shares_embedding: the engine gives an EAGLE head the target's embedding.
    """
    read = _read(name)
    kind = method or _method_of(name, read)
    if kind in HEADS and read is None:
        narrow, best, wide = (
            _borrowing(_assumed_head(target, kind, width), kind, shares_embedding) for width in _WIDTHS
        )
        note = (
            f"the draft {name[:80]} is assumed to be one layer as wide as the model's, the usual {kind} head; give its"
            " folder for its own sizes"
        )
        return Draft(name=name, method=kind, model=best, narrow=narrow, wide=wide, note=note)
    if read is None or kind in _WITH_OTHER_WEIGHTS:
        note = f"the draft model {name[:80]} ({kind}): its sizes are not known here; give its folder or a bundled name"
        return Draft(name=name, method=kind, model=None, note=note)
    if kind in HEADS:
        read = _borrowing(read, kind, shares_embedding)
    # engines keep one rotary table for all layers that turn alike
    tables = tuple(table for table in read.spec.rope_tables if table not in target.spec.rope_tables)
    read = replace(read, spec=replace(read.spec, rope_tables=tables), memo={})
    note = f"the draft {name[:80]} ({kind}) is counted: its weights with the model's, its layers in the same cache"
    return Draft(name=name, method=kind, model=read, note=note)


def _read(name: str) -> Model | None:
    """The model of that name; no tag of another library, which engines do not read."""
    try:
        found = load_model(name)
    except PlannerError:
        return None
    return None if any(why.startswith("tag ") for why in found.spec.assumed) else found


def _method_of(name: str, read: Model | None) -> str:
    """The method as vLLM finds it: by the name, then by the config."""
    folded = name.lower().rsplit("/", 1)[-1]
    architecture = read.spec.architecture.lower() if read is not None else ""
    for kind in ("eagle3", "eagle", "medusa", "dflash", "dspark"):
        if kind in folded.replace("eagle-3", "eagle3") or kind in architecture:
            return kind
    return "draft_model"


def _borrowing(head: Model, kind: str, shares_embedding: bool) -> Model:
    """The head without what it shares with the target."""
    spec = head.spec
    if kind == "eagle" and "eagle" not in spec.architecture.lower():
        # published configs of EAGLE heads call themselves by the class of one plain layer
        joint = linear("model.fc", spec.hidden_size, 2 * spec.hidden_size, Role.DRAFT)
        spec = replace(spec, embeddings=(*spec.embeddings, *joint), head=())
    if shares_embedding:
        spec = replace(spec, embeddings=tuple(t for t in spec.embeddings if t.role is not Role.EMBEDDING))
    return replace(head, spec=spec, memo={})


def _assumed_head(target: Model, kind: str, width: float) -> Model:
    """One Llama layer of the target's width: what EAGLE heads are."""
    spec = target.spec
    mixers = [mixer for layer in spec.layers for mixer in layer.mixers]
    attention = next((mixer for mixer in mixers if isinstance(mixer, Attention)), None)
    widths = [block.intermediate_size for layer in spec.layers if isinstance(block := layer.feed_forward, Mlp)]
    heads = attention.num_attention_heads if attention is not None else max(1, spec.hidden_size // _HEAD_DIM)
    values: dict[str, object] = {
        "model_type": "llama",
        "architectures": ["Eagle3LlamaForCausalLM" if kind == "eagle3" else "EagleLlamaForCausalLM"],
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": attention.num_key_value_heads if attention is not None else heads,
        "head_dim": attention.head_dim if attention is not None else _HEAD_DIM,
        "intermediate_size": max(widths) if widths else int(width * spec.hidden_size),
        "vocab_size": spec.vocab_size,
        "draft_vocab_size": min(_DRAFT_ROWS, spec.vocab_size),
        "max_position_embeddings": spec.max_position_embeddings,
    }
    head = model_from_config(values, name="draft", origin="assumed")
    return replace(head, spec=replace(head.spec, rope_tables=()))
