"""What a model ends in: a vocabulary, a classifier, a reward, or nothing (embeddings); and how engines change it.

    task_of(spec)                       "generate", "embed", "classify", "token_classify", "reward" or "question_answer"
    without_language_head(spec)         what a pooling runner keeps of a generating model
    with_classifier(spec, num_labels)   a generating model served as a classifier

Sources: transformers 5.24 `modeling_layers.py` GenericForSequenceClassification (a matrix without bias),
GenericForTokenClassification and GenericForQuestionAnswering (with bias); vLLM 0.19.1
`model_executor/models/adapters.py` as_embedding_model (takes lm_head away), as_seq_cls_model (`score`, no bias), and
`qwen2_rm.py` (two matrices with biases), `internlm2.py` InternLM2ForRewardModel (`v_head`).
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, Literal

from planner.model.config import RawConfig
from planner.model.spec import ModelSpec
from planner.model.tensor import Role, Tensor, linear

Task = Literal["generate", "embed", "classify", "token_classify", "reward", "question_answer"]

_BY_ENDING: Final[tuple[tuple[str, Task], ...]] = (
    ("ForSequenceClassification", "classify"),
    ("ForTokenClassification", "token_classify"),
    ("ForProcessRewardModel", "reward"),
    ("ForRewardModel", "reward"),
    ("ForQuestionAnswering", "question_answer"),
)
# Classes of generating models whose names end in Model alone
_GENERATING: Final = ("LMHeadModel", "ChatModel", "ChatGLMModel", "OmniModel")
# Published with sentence-transformers' modules.json, which engines take for "pool vectors" although the class
# generates (vLLM 0.19.1 config/model.py _get_default_runner_type)
_EMBEDDING_NAMES: Final = (
    "qwen/qwen3-embedding-*",
    "qwen/qwen3-vl-embedding-*",
    "baai/bge-en-icl",
    "baai/bge-multilingual-gemma2",
    "alibaba-nlp/gte-qwen*",
    "intfloat/e5-mistral-*",
    "salesforce/sfr-embedding-*",
    "linq-ai/linq-embed-*",
    "jinaai/jina-embeddings-*",
)
_MOST_LABELS: Final = 1 << 20


def task_of(spec: ModelSpec) -> Task:
    """What the architecture of the config is for."""
    for ending, task in _BY_ENDING:
        if spec.architecture.endswith(ending):
            return task
    bare = spec.architecture.endswith("Model") and not spec.architecture.endswith(_GENERATING)
    return "embed" if bare or not spec.decoder else "generate"


def published_for_embedding(name: str) -> bool:
    """Whether the model of this Hub id, or the one it is an export of, is published as an embedding model."""
    return any(fnmatchcase(name.lower(), pattern) for pattern in _EMBEDDING_NAMES)


def without_language_head(spec: ModelSpec) -> ModelSpec:
    """The model without its output matrix: what a pooling runner loads. A tied matrix stays as the embedding."""
    return replace(spec, head=tuple(tensor for tensor in spec.head if tensor.role is not Role.LM_HEAD))


def with_classifier(spec: ModelSpec, num_labels: int) -> ModelSpec:
    """The model with a classifier of that many labels in the place of its output matrix."""
    bare = without_language_head(spec)
    return replace(bare, head=(*bare.head, *linear("score", num_labels, spec.hidden_size, Role.OTHER)))


def read_task_head(spec: ModelSpec, raw: RawConfig) -> ModelSpec:
    """A decoder with the head that its architecture names in the place of the output matrix.

    Encoders' families read their heads themselves, with the poolers before them.

    Raises:
        ConfigError: num_labels that makes no sense.
    """
    task = task_of(spec)
    if not spec.decoder or task in ("generate", "embed"):
        return spec
    bare = without_language_head(spec)
    return replace(bare, head=(*bare.head, *_head(spec, task, read_labels(raw))))


def read_labels(raw: RawConfig) -> int:
    """num_labels, or as many as id2label names, or 2, transformers' default."""
    named = raw.section("id2label")
    default = len(named.mapping()) if named is not None else 2
    return raw.integer("num_labels", default=max(1, default), minimum=1, maximum=_MOST_LABELS)


def _head(spec: ModelSpec, task: Task, labels: int) -> tuple[Tensor, ...]:
    hidden = spec.hidden_size
    if task == "classify":
        return linear("score", labels, hidden, Role.OTHER)
    if task == "token_classify":
        return linear("score", labels, hidden, Role.OTHER, bias=True)
    if task == "question_answer":
        return linear("qa_outputs", 2, hidden, Role.OTHER, bias=True)
    if spec.model_type == "internlm2":
        return linear("v_head", 1, hidden, Role.OTHER)
    labels = labels if spec.architecture.endswith("ForProcessRewardModel") else 1
    return (
        *linear("score.0", hidden, hidden, Role.OTHER, bias=True),
        *linear("score.2", labels, hidden, Role.OTHER, bias=True),
    )
