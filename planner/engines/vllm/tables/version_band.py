"""What is said, and what is left open, of a version whose figures were not checked on measured starts.

The rules of every version are read from its release; the constants (driver memory, graphs) are readings of a few. For a
version that no measured start covers, the cache therefore has a band of its own beside those of the terms.
"""

from __future__ import annotations

from typing import Final

from planner.contract.component import Component
from planner.engines.vllm.tables.profile import EngineProfile, parse_version, validated_versions
from planner.units import MIB, format_size

NAME: Final = "unvalidated_version"


def version_band(profile: EngineProfile) -> Component | None:
    """The band, nothing at its best estimate; None for a validated version.

    What several GPUs leave open is in the rows of their link.
    """
    if profile.validated:
        return None
    open_bytes = profile.residual_mib * MIB
    return Component(
        name=NAME,
        low=-open_bytes,
        best=0,
        high=open_bytes,
        evidence="assumed",
        formula=f"vLLM {profile.version} was not checked on measured starts: {format_size(open_bytes)} either way",
        source=f"rules: {profile.source}; size of the band: starts of neighbouring versions in public logs",
    )


def version_note(profile: EngineProfile) -> str | None:
    """What is known of the version, in one line; None when it is validated."""
    if profile.validated:
        return None
    known = validated_versions()
    asked = parse_version(profile.version)
    older = [version for version in known if parse_version(version) < asked]
    if not older:
        where = f"older than {known[0]}, the oldest that is"
    elif len(older) == len(known):
        where = f"newer than {known[-1]}, the newest that is"
    else:
        where = f"between {older[-1]} and {known[len(older)]}, which are"
    return (
        f"vLLM {profile.version} is not validated on measured starts ({where}): its own rules ({profile.source}),"
        " driver and graph memory as read on other versions, and a wider band; docs/accuracy.md has the starts by"
        " version"
    )
