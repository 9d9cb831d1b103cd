"""vLLM's options beside the inputs: which release has which, and what is said of those that are no input here."""

from __future__ import annotations

from collections.abc import Iterator

from planner.contract.inputs import inputs_of, words_of
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.tables.flags import check_versions, read_other_flags
from planner.engines.vllm.tables.profile import EngineProfile


def check_options(deployment: Deployment, typed: tuple[str, ...]) -> None:
    """Every option that was typed is one of this release.

    Args:
        typed: spellings as in a command.

    Raises:
        UsageError: vLLM has that option, but not in this version; names the nearest it has.
    """
    check_versions(typed, deployment.engine_version)


def check_release(deployment: Deployment) -> None:
    """Every input that is set is one of this release, whoever set it.

    Raises:
        UsageError: as `check_options`.
    """
    stated = (
        one.spelling
        for one in inputs_of(type(deployment))
        if not one.option.ours and getattr(deployment, one.name) != one.default
    )
    check_versions(stated, deployment.engine_version)


def notes_on_options(deployment: Deployment, profile: EngineProfile) -> Iterator[str]:
    """What a reader should know of options that have no effect, or one that is not planned.

    Raises:
        UsageError: an option passed through that vLLM, or this version, does not have.
    """
    if deployment.passed:
        own = [word for word in words_of(deployment) if word.startswith("--")]
        yield from read_other_flags(list(deployment.passed), version=profile.version, own=own)
    if deployment.kv_transfer_config is not None:
        yield "--kv-transfer-config: not planned, though memory may depend on it: buffers of the connector"
    if deployment.swap_space_bytes is not None:
        yield _swap_note(profile)


def _swap_note(profile: EngineProfile) -> str:
    if profile.swap_space == "blocks":
        return "--swap-space holds CPU blocks: it takes host memory on every GPU, none on the card"
    if profile.swap_space == "ignored":
        return f"--swap-space has no effect in the V1 engine (vLLM {profile.version})"
    return f"--swap-space is gone from vLLM {profile.version}: leave it out of the command"
