"""A launch without secrets and control characters."""

from __future__ import annotations

from typing import Any

from planner.launches.context import Context
from planner.launches.record import Value


def clean_launch(context: Context) -> None:
    launch, clean = context.launch, context.secrets.clean
    for items in (launch.needs, launch.unread, launch.notes):
        items[:] = [clean(one) for one in items]
    if launch.error is not None:
        launch.error = clean(" ".join(launch.error.split()))[:500]
    for plan in launch.plans:
        if "shm_bytes" not in plan.host:
            plan.host.pop("ipc_host", None)  # it says what becomes of the shm size
        plan.model = clean(plan.model) if plan.model is not None else None
        plan.name = clean(plan.name)[:200] if plan.name is not None else None
        for store in (plan.inputs, plan.further):
            for key, value in list(store.items()):
                store[key] = Value(_cleaned(value.value, clean), value.line, value.file, clean(value.how)[:200])


def _cleaned(value: Any, clean: Any) -> Any:
    if isinstance(value, str):
        return clean(value)[:2000]
    if isinstance(value, list):
        return [_cleaned(one, clean) for one in value[:200]]
    if isinstance(value, dict):
        return {clean(str(key)): _cleaned(one, clean) for key, one in list(value.items())[:200]}
    return value
