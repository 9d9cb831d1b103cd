"""Read an out-of-memory error and say which failure it is. `diagnose` is the way in."""

from __future__ import annotations

from planner.diagnosis.diagnosis import diagnose, diagnose_text
from planner.diagnosis.length_tiers import Buckets, Tier, bucket_lengths
from planner.diagnosis.result import Action, Diagnosis, FailureClass, Finding, Message, Verdict

__all__ = [
    "Action",
    "Buckets",
    "Diagnosis",
    "FailureClass",
    "Finding",
    "Message",
    "Tier",
    "Verdict",
    "bucket_lengths",
    "diagnose",
    "diagnose_text",
]
