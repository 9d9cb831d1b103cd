"""Where a program ran, from the words of schedulers, containers and systems around a message."""

from __future__ import annotations

import re
from typing import Final

from planner.diagnosis.messages.programs import first_named

_PLACES: Final = (
    (
        "slurm",
        ("slurm", "SLURM", "srun", "sbatch", "OUT_OF_MEMORY"),
        re.compile(
            r"\bslurmstepd\b|\bsrun: |\bsbatch\b|\bSLURM_\w+|\bslurm_script\b|State ?[:=] "
            r"?OUT_OF_MEMORY"
        ),
    ),
    (
        "kubernetes",
        (
            "kube",
            "CrashLoop",
            "Terminated",
            "terminated",
            "pod/",
            "containerStatuses",
            "low on resource",
            "Evicted",
            "restartCount",
            "lastState",
            "OOMKilled",
            "Back-off",
        ),
        re.compile(
            r"\bkubectl\b|\bkubelet\b|/kubepods|\bkubepods|CrashLoopBackOff|Last State: {1,20}Terminated|\bpod/[\w-]+"
            r"|containerStatuses|terminated: ?\{|The node was low on resource|\bEvicted\b|restartCount|lastState"
            r"|Reason: {1,20}OOMKilled|Back-off restarting|command terminated with exit code"
        ),
    ),
    (
        "docker",
        ("docker", "xited ", " | ", "containerd", "podman", "entrypoint.sh", "/workspace/", "HostConfig"),
        re.compile(
            r"\bdocker\b|\bExited \(137\)|\bdocker-[0-9a-f]{3,64}\.scope|/docker[/-]|\bexited with code 137\b"
            r"|^[\w.-]{1,64} {1,8}\| |\bcontainerd\b|\bpodman\b"
            r"|entrypoint\.sh"
            r"|/workspace/|HostConfig",
            re.M,
        ),
    ),
    (
        "systemd",
        ("systemd", ".service:", "status=9/KILL", "system.slice", "oom-kill"),
        re.compile(
            r"\bsystemd(?:\[\d+\])?: |systemd-oomd|\.service: (?:Main process exited|Failed with result|A process of "
            r"this unit)"
            r"|status=9/KILL|/system\.slice/|result 'oom-kill'"
        ),
    ),
    (
        "wsl",
        ("WSL", "sl/", "microsoft-standard", "/mnt/", "vmmem"),
        re.compile(r"\bWSL2?\b|\b[Ww]sl/|microsoft-standard|/mnt/[a-z]/(?:Users|home)|vmmem"),
    ),
    (
        "windows",
        ("\\", "Windows", "WDDM", "1455", "aging file", "agefile"),
        re.compile(
            r"[A-Za-z]:\\{1,2}(?:Users|Program|Python|ProgramData|AI|ComfyUI|Windows|stable)|\bWindows (?:10|11"
            r"|Server)\b"
            r"|\bWDDM\b|\b(?:os|WinError|win) ?error:? ?1455\b|WinError 1455|paging file|pagefile",
            re.IGNORECASE,
        ),
    ),
    ("colab", ("/content/", "olab", "/kaggle/"), re.compile(r"/content/|\bcolab\b|/kaggle/", re.IGNORECASE)),
)


def place_of(text: str) -> str:
    """ "slurm", "kubernetes", "systemd", "docker", "wsl", "windows", "colab", or "" when nothing says."""
    return first_named(_PLACES, text)
