"""The card that a pod's node selector or affinity states."""

from __future__ import annotations

from typing import Final

from planner.launches.around import Card, card_of
from planner.launches.context import Context
from planner.launches.documents import Map, as_list, as_map, text_of

_CARD_LABELS: Final = (
    ("nvidia.com/gpu.product", "product"),
    ("gpu.nvidia.com/model", "product"),
    ("gpu.nvidia.com/class", "product"),
    ("nvidia.com/gpu.family", "hint"),
    ("cloud.google.com/gke-accelerator", "gke"),
    ("karpenter.k8s.aws/instance-gpu-name", "karpenter"),
    ("node.kubernetes.io/instance-type", "instance"),
    ("beta.kubernetes.io/instance-type", "instance"),
    ("karpenter.azure.com/sku-gpu-name", "product"),
)


def pod_card(context: Context, spec: Map) -> Card | None:
    """The card of nodeSelector or required affinity with one value; several values: said, none taken."""
    labels: dict[str, list[str]] = {}
    for key, value in as_map(spec.get("nodeSelector")).items():
        labels[str(key)] = [text_of(value) or ""]
    affinity = as_map(as_map(spec.get("affinity")).get("nodeAffinity"))
    required = as_map(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    for term in as_list(required.get("nodeSelectorTerms")):
        for rule in as_list(as_map(term).get("matchExpressions")):
            if as_map(rule).get("operator") == "In":
                labels.setdefault(
                    str(as_map(rule).get("key")), [str(one) for one in as_list(as_map(rule).get("values"))]
                )
    for term in as_list(affinity.get("preferredDuringSchedulingIgnoredDuringExecution")):
        for rule in as_list(as_map(as_map(term).get("preference")).get("matchExpressions")):
            if str(as_map(rule).get("key")) in dict(_CARD_LABELS):
                context.launch.note("a preferred affinity names a card: a hint only")
    for label, source in _CARD_LABELS:
        values = labels.get(label)
        if not values or source == "hint":
            continue
        if len(values) == 1:
            return card_of(source, values[0])
        return _smallest(context, [card_of(source, value) for value in values])
    memory_label = labels.get("nvidia.com/gpu.memory")
    if memory_label and len(memory_label) == 1 and memory_label[0].isdecimal():
        return Card(
            f"{memory_label[0]} MiB",
            None,
            note=f"the node's GPU memory is {memory_label[0]} MiB: give --gpu-memory {memory_label[0]}MiB",
        )
    if as_list(spec.get("tolerations")) and any(
        "gpu" in str(as_map(one).get("key", "")) for one in as_list(spec.get("tolerations"))
    ):
        return None
    return None


def _smallest(context: Context, cards: list[Card]) -> Card | None:
    from planner.hardware.gpus import find_gpu

    known = [card for card in cards if card.key is not None]
    if len(known) != len(cards):
        context.launch.note(f"several cards are allowed ({', '.join(card.text for card in cards)[:200]}): give --gpu")
        return None
    smallest = min(known, key=lambda card: find_gpu(card.key or "").total_memory_bytes)
    context.launch.note(
        f"several cards are allowed ({', '.join(card.text for card in cards)[:200]}): the smallest is planned"
    )
    return smallest
