"""A caching allocator in miniature that writes snapshots in torch's documented structure.

No GPU is needed: segments, blocks and events have the keys, states, rounding and order of torch 2.5's
_memory_snapshot; the pickle is written with Python's own pickle module. The true state is kept beside it, so that the
reader's replay can be compared with what really was.
"""

from __future__ import annotations

import random
from typing import Any

SMALL, LARGE = 1 << 20, 10 << 20
BASE = 0x7F00_0000_0000


def block_size(size: int) -> int:
    return max(512, -(-size // 512) * 512)


def segment_size(size: int) -> int:
    if size <= SMALL:
        return 2 << 20
    return 20 << 20 if size < LARGE else -(-size // (2 << 20)) * (2 << 20)


class OutOfMemory(Exception):
    """The device has no room; the `oom` event is in the trace."""


class Allocator:
    """First fit within segments of the right pool; splits blocks, merges neighbours, gives whole segments back."""

    def __init__(self, capacity: int, *, device: int = 0) -> None:
        self.capacity = capacity
        self.device = device
        self.segments: dict[int, dict[str, Any]] = {}
        self.trace: list[dict[str, Any]] = []
        self.next_address = BASE
        self.clock = 1_700_000_000_000_000

    @property
    def reserved(self) -> int:
        return sum(s["size"] for s in self.segments.values())

    @property
    def allocated(self) -> int:
        return sum(b["size"] for s in self.segments.values() for b in s["blocks"] if b["state"] == "active_allocated")

    @property
    def free_on_device(self) -> int:
        return self.capacity - self.reserved

    def gaps(self, kind: str) -> list[int]:
        return [
            b["size"]
            for s in self.segments.values()
            if s["kind"] == kind
            for b in s["blocks"]
            if b["state"] == "inactive"
        ]

    def _event(self, action: str, address: int, size: int, site: str = "step") -> None:
        self.clock += 7
        frames = [
            {"filename": "??", "name": "c10::cuda::allocate", "line": 0},
            {"filename": f"/home/someone/project/{site}.py", "name": site, "line": len(site)},
        ]
        event = {"action": action, "size": size, "stream": 0, "time_us": self.clock, "frames": frames}
        event["device_free" if action == "oom" else "addr"] = self.free_on_device if action == "oom" else address
        self.trace.append(event)

    def allocate(self, size: int, site: str = "step") -> int:
        rounded, kind = block_size(size), "small" if size <= SMALL else "large"
        for segment in self.segments.values():
            if segment["kind"] != kind:
                continue
            for index, block in enumerate(segment["blocks"]):
                if block["state"] == "inactive" and block["size"] >= rounded:
                    return self._take(segment, index, rounded, size, site)
        wanted = segment_size(size)
        if wanted > self.free_on_device:
            self._release()
        if wanted > self.free_on_device:
            self._event("oom", 0, rounded, site)
            raise OutOfMemory
        address, self.next_address = self.next_address, self.next_address + wanted + (2 << 20)
        self.segments[address] = {
            "size": wanted,
            "kind": kind,
            "blocks": [{"address": address, "size": wanted, "state": "inactive", "requested": 0}],
        }
        self._event("segment_alloc", address, wanted, site)
        return self._take(self.segments[address], 0, rounded, size, site)

    def _take(self, segment: dict[str, Any], index: int, rounded: int, size: int, site: str) -> int:
        block = segment["blocks"][index]
        rest = block["size"] - rounded
        if rest >= 512:
            segment["blocks"].insert(
                index + 1,
                {"address": block["address"] + rounded, "size": rest, "state": "inactive", "requested": 0},
            )
            block["size"] = rounded
        block.update(state="active_allocated", requested=size, site=site)
        self._event("alloc", block["address"], size, site)
        return int(block["address"])

    def free(self, address: int) -> None:
        for segment in self.segments.values():
            blocks = segment["blocks"]
            for index, block in enumerate(blocks):
                if block["address"] == address:
                    self._event("free_requested", address, block["requested"])
                    self._event("free_completed", address, block["requested"])
                    block["state"] = "inactive"  # the stale requested size stays, as in torch
                    if index + 1 < len(blocks) and blocks[index + 1]["state"] == "inactive":
                        block["size"] += blocks.pop(index + 1)["size"]
                    if index and blocks[index - 1]["state"] == "inactive":
                        blocks[index - 1]["size"] += blocks.pop(index)["size"]
                    return
        raise KeyError(address)

    def _release(self) -> None:
        for address, segment in list(self.segments.items()):
            if all(b["state"] == "inactive" for b in segment["blocks"]):
                del self.segments[address]
                self._event("segment_free", address, segment["size"])

    empty_cache = _release

    def snapshot(self, *, history: bool = True) -> dict[str, Any]:
        """What torch.cuda.memory._snapshot() would return."""
        return {
            "segments": [self._segment(a, s) for a, s in self.segments.items()],
            "device_traces": [[]] * self.device + [self.trace if history else []],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
            "external_annotations": [],
        }

    def _segment(self, address: int, segment: dict[str, Any]) -> dict[str, Any]:
        live = [b for b in segment["blocks"] if b["state"] != "inactive"]
        return {
            "device": self.device,
            "address": address,
            "total_size": segment["size"],
            "allocated_size": sum(b["size"] for b in live if b["state"] == "active_allocated"),
            "active_size": sum(b["size"] for b in live),
            "requested_size": sum(b["requested"] for b in live),
            "stream": 0,
            "segment_type": segment["kind"],
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": [
                {
                    "address": b["address"],
                    "size": b["size"],
                    "requested_size": b["requested"],
                    "state": b["state"],
                    "frames": [{"filename": "/home/someone/project/block.py", "name": "block", "line": 1}],
                }
                for b in segment["blocks"]
            ],
        }


def busy_allocator(seed: int, *, capacity: int = 512 << 20, steps: int = 400) -> Allocator:
    """An allocator after a run of random allocations and frees; it can have met `oom` on the way."""
    rnd = random.Random(seed)
    allocator = Allocator(capacity)
    live: list[int] = []
    for _ in range(steps):
        if live and rnd.random() < 0.45:
            allocator.free(live.pop(rnd.randrange(len(live))))
            continue
        size = rnd.choice((rnd.randrange(1, 2_000), rnd.randrange(1, 3 << 20), rnd.randrange(1 << 20, 60 << 20)))
        try:
            live.append(allocator.allocate(size, rnd.choice(("forward", "backward", "loss"))))
        except OutOfMemory:
            for _ in range(len(live) // 2):
                allocator.free(live.pop())
    return allocator
