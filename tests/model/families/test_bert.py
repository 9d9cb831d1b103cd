"""BERT and its relatives, ModernBERT: no cache, heads by architecture, refusals."""

from __future__ import annotations

import pytest

from planner.errors import UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.tensors import parameters, tensors
from tests.model.families.reading import spec_of

BERT, XLMR = "google-bert/bert-base-uncased", "BAAI/bge-m3"
RERANKER, MPNET = "BAAI/bge-reranker-v2-m3", "sentence-transformers/all-mpnet-base-v2"
NOMIC, MODERN = "nomic-ai/nomic-embed-text-v1.5", "answerdotai/ModernBERT-base"


@pytest.mark.parametrize("model", [BERT, XLMR, RERANKER, MPNET, NOMIC, MODERN])
def test_an_encoder_keeps_nothing(model):
    spec = spec_of(model)
    assert spec.decoder is False
    assert all(layer.caches() == () for layer in spec.layers)


def test_bert_base_by_hand():
    layer = 4 * (768 * 768 + 768) + 2 * 3072 * 768 + 3072 + 768 + 4 * 768
    embeddings = (30_522 + 512 + 2) * 768 + 2 * 768
    head = 768 * 768 + 768 + 2 * 768 + 30_522  # the matrix is tied
    assert parameters(spec_of(BERT)) == 12 * layer + embeddings + head == 109_514_298


def test_heads_follow_the_architecture():
    total = parameters(spec_of(BERT, architectures=["BertModel"]))
    pooler = 768 * 768 + 768
    assert total == 109_482_240
    assert parameters(spec_of(BERT, architectures=["BertForSequenceClassification"])) == total + 2 * 768 + 2
    labels = {str(index): f"LABEL_{index}" for index in range(5)}
    tagged = spec_of(BERT, architectures=["BertForTokenClassification"], id2label=labels)
    assert parameters(tagged) == total - pooler + 5 * 768 + 5
    untied = parameters(spec_of(BERT, tie_word_embeddings=False))
    assert untied - parameters(spec_of(BERT)) == 30_522 * 768 + 30_522  # a matrix and a bias of its own


def test_reranker_has_a_two_layer_classifier():
    names = {t.name for t in tensors(spec_of(RERANKER))}
    assert {"classifier.dense.weight", "classifier.out_proj.bias"} <= names
    assert not any("pooler" in name for name in names)


def test_roberta_numbers_positions_from_two():
    assert spec_of(XLMR).max_position_embeddings == 8_194 - 2
    assert spec_of(MPNET).max_position_embeddings == 514 - 2
    assert spec_of(BERT).max_position_embeddings == 512


def test_nomic_turns_heads_and_reads_its_old_spelling():
    spec = spec_of(NOMIC)
    assert [(t.positions, t.rotary_dim) for t in spec.rope_tables] == [(2_048, 64)]
    old = spec_of(
        NOMIC, hidden_size=None, num_hidden_layers=None, num_attention_heads=None, num_key_value_heads=None,
        intermediate_size=None, head_dim=None, max_position_embeddings=None, n_embd=768, n_layer=12, n_head=12,
        n_inner=3072, n_positions=8192,
    )  # fmt: skip
    assert parameters(old) == parameters(spec) == 136_731_648
    assert old.max_position_embeddings == 8_192


def test_modernbert_windows_two_layers_of_three():
    windows = [layer.mixers[0].sliding_window for layer in spec_of(MODERN).layers]
    assert windows == [128 if index % 3 else None for index in range(22)]
    assert len(spec_of(MODERN).rope_tables) == 2
    names = {t.name for t in tensors(spec_of(MODERN))}
    assert "model.layers.1.attn_norm.weight" in names
    assert "model.layers.0.attn_norm.weight" not in names


def test_layers_are_cut():
    shapes = {t.name: local_shape(t, Parallelism(tensor_parallel_size=2)) for t in tensors(spec_of(BERT))}
    assert shapes["bert.encoder.layer.0.attention.self.query.weight"] == (384, 768)
    assert shapes["bert.encoder.layer.0.attention.output.dense.weight"] == (768, 384)
    modern = {t.name: local_shape(t, Parallelism(tensor_parallel_size=2)) for t in tensors(spec_of(MODERN))}
    assert modern["model.layers.0.mlp.Wi.weight"] == (1152, 768)


@pytest.mark.parametrize(
    ("model", "changes", "field"),
    [
        (BERT, {"is_decoder": True}, "is_decoder"),
        (BERT, {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        (BERT, {"architectures": ["BertForQuestionAnswering"]}, "architectures"),
        (BERT, {"num_key_value_heads": 4}, "num_key_value_heads"),
        (BERT, {"head_dim": 128}, "head_dim"),
        (NOMIC, {"architectures": ["NomicBertForMaskedLM"]}, "architectures"),
        (MODERN, {"architectures": ["ModernBertForMultipleChoice"]}, "architectures"),
        (MODERN, {"layer_types": ["linear"] * 22}, "layer_types"),
    ],
)
def test_refusals_name_the_field(model, changes, field):
    with pytest.raises(UnsupportedArchitecture) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field
