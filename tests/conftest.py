"""No test reaches beyond this machine; the gate draws the same examples every time.

`HYPOTHESIS_PROFILE=default pytest` draws new ones: what they find becomes a test of its own.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("gate", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
