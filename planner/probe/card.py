"""What a card is: total memory by its driver, and what a process holds before its first tensor."""

from __future__ import annotations

from planner.errors import UnknownGpu
from planner.hardware.contexts import cuda_context
from planner.hardware.gpus import find_gpu
from planner.model.shallow.depth import Depths
from planner.probe.backends.accelerator import used_before_context
from planner.probe.backends.choice import meter_for
from planner.probe.extras import library, versions
from planner.probe.figures import Figure, Measurement
from planner.probe.session import card_of
from planner.training.outside import workspace_bytes


def measure_card(device: str = "auto") -> Measurement:
    """The device's memory, and the context of this process, beside the table's figures.

    The context is what the driver counts more once a matrix product has run than before torch touched the card, less
    what torch reserved for its tensors; other processes must be quiet meanwhile. Only the total is judged: a context
    has a range. The CPU has neither a row in the table nor a context.

    Raises:
        ProbeError: no such device here.
    """
    untouched = used_before_context(device)
    meter = meter_for(device)
    with meter:
        found, before = meter.device(), meter.used_bytes()
        figures = [_total(found.name, found.total_bytes)]
        if meter.torch_device != "cpu":
            torch, card = library("torch"), card_of(found)
            ones = torch.ones(256, 256, device=meter.torch_device)
            (ones @ ones).sum().item()
            held = meter.live_bytes() - ones.nbytes
            figures.append(
                Figure(
                    name="matrix_workspace", planned=workspace_bytes(card, trains=False), measured=held, judged=False
                )
            )
            context = None
            if untouched is not None:
                context = meter.used_bytes() - untouched - (meter.reserved_bytes() or 0)
            figures.append(
                Figure(name="context", planned=cuda_context(card).best_bytes, measured=context, judged=False)
            )
        after = meter.used_bytes()
    return Measurement(
        command="card",
        model=found.name,
        config="",
        workload={},
        depths=Depths(shallow=0, deep=0, total=0),
        figures=tuple(figures),
        at_depth=tuple(figures),
        device=found,
        used_before_bytes=before if untouched is None else untouched,
        used_peak_bytes=after,
        versions=versions() | found.details,
    )


def _total(name: str, measured: int) -> Figure:
    try:
        planned = find_gpu(name).reported_memory_bytes
    except UnknownGpu:
        planned = None
    return Figure(name="total_memory", planned=planned, measured=measured)
