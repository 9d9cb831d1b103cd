"""Host memory (RAM): CPU allocators, the kernel's killer, containers, schedulers, shared memory, Windows' page file."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.host_allocators import PATTERNS as ALLOCATORS
from planner.diagnosis.messages.wordings.pattern import KILLED_LINE, Family, Pattern
from planner.diagnosis.messages.wordings.runtimes import SIGNALS
from planner.diagnosis.messages.wordings.schedulers import PATTERNS as SCHEDULERS
from planner.diagnosis.messages.wordings.windows import PATTERNS as WINDOWS
from planner.diagnosis.sizes import NUMBER, size_pattern

# Parts of what shells print for signal 9 in other languages: enough to find the line.
KILLED_ABROAD = (
    "已杀死",
    "已終止",
    "etötet",
    "ocessus arr",
    "tué",
    "(killed)",
    "бито",
    "強制終了",
    "죽었음",
    "ldürüldü",
    "ucciso",
    "zabity",
)

_HOST = (
    Pattern(
        kind="cpu_allocator",
        needle="you tried to allocate",
        regex=r"you tried to allocate (?P<tried_bytes__bytes>\d{1,25}) bytes",
        why="torch's CPU allocator: the request is for RAM",
        failure="host_memory",
        confidence="high",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="torch7_ram",
        needle="buy new ram",
        regex=r"not enough memory: you tried to allocate (?P<tried_bytes__size>\d{1,9}GB)\. Buy new RAM",
        failure="host_memory",
        confidence="high",
        why="an old CPU allocator: the request is for RAM",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="oom_killed",
        needle="oomkilled",
        regex=r"Reason: {1,20}OOMKilled|\"?OOMKilled\"?(?:\"?: ?| ?= ?)true"
        r"|(?<!\")\bOOMKilled\b(?!\"?(?:: ?| ?= ?)false)",
        failure="host_memory",
        confidence="high",
        why="the container passed its memory limit and the kernel killed it",
        advise=("load_with_less", "shm_size"),
    ),
    Pattern(
        kind="not_oom_killed",
        needle="oomkilled",
        regex=r"\"?OOMKilled\"?(?:\"?: ?| ?= ?)false",
        attach_only=True,
    ),
    Pattern(
        kind="kernel_oom",
        reach=300,
        needle="out of memory: kill",
        regex=r"(?:(?P<oom_cgroup__word>Memory cgroup) o|O)ut of memory: Kill(?:ed)? process "
        r"(?P<victim_pid__word>\d{1,10})"
        r"(?: \((?P<victim__word>[\w./:@+ -]{1,40})\))?"
        r"(?:,? ?(?:score \d{1,6} )?[^\n]{0,40}total-vm:(?P<host_virtual_bytes__kib>\d{1,20})kB)?"
        r"(?:, anon-rss:(?P<host_resident_bytes__kib>\d{1,20})kB)?",
        failure="host_memory",
    ),
    Pattern(
        kind="exit_137",
        needle=tuple(
            f"{word}137"
            for word in (
                "code ",
                "code: ",
                "code=",
                'code": ',
                "code = ",
                "status ",
                "status: ",
                "status=",
                "(",
                "rc=",
                "returned ",
            )
        ),
        regex=r"(?:exit(?:ed)?(?: with)?(?: status| code)?|exit_?code|returncode|return code|status(?: code)?|\brc"
        r"|returned"
        r"(?: non-zero)?(?: exit)?(?: status| code)?)[\"']? ?[:=]? ?\(?(?P<exit_code__int>137)\b",
    ),
    Pattern(
        kind="exit_minus_9",
        needle=tuple(
            f"{word}-9"
            for word in (
                "code ",
                "code: ",
                "code=",
                "code': ",
                'code": ',
                "code = ",
                "status ",
                "status: ",
                "status=",
                "rc=",
                "returned ",
            )
        ),
        regex=r"(?:exit_?code|exit code|returncode|return code|exit status|\brc|returned(?: non-zero)?(?: exit)?(?: "
        r"status| code)?)"
        r"[\"']? ?[:=]? ?(?P<exit_code__int>-9)\b",
    ),
    Pattern(
        kind="killed_shell",
        needle=("killed", KILLED_LINE, *KILLED_ABROAD),
        regex=r"line \d{1,6}: {1,8}\d{1,10} Killed\b|\[\d{1,4}\]\+? {1,8}(?:\d{1,10} )?Killed\b|zsh: killed\b"
        rf"|{KILLED_LINE}",
    ),
    Pattern(
        kind="sigkill",
        needle="sigkill",
        regex=r"Signal 9 \(SIGKILL\)|(?:terminated|killed|crashed|died|exited) (?:by|with|due to) (?:signal )?SIGKILL"
        r"|sent (?:a )?SIGKILL|received SIGKILL|SIGKILL\(-9\)|exited on SIGKILL",
    ),
    Pattern(
        kind="dataloader_killed",
        reach=200,
        needle="dataloader worker",
        regex=r"DataLoader worker \(pid\(?s?\)? ?[\d, ]{1,80}\) (?:is killed by signal: Killed|exited unexpectedly)",
        failure="host_memory",
        confidence="high",
        why="a DataLoader worker was killed: RAM, once per worker",
        advise=("fewer_workers", "shm_size"),
    ),
    Pattern(
        kind="dataloader_bus",
        needle="bus error",
        regex=r"killed by signal: Bus error|Bus error ?\. It is possible that dataloader's workers are out of shared "
        r"memory|Bus error \(core dumped\)",
        failure="host_memory",
        confidence="high",
        why="shared memory (/dev/shm) is full: it is RAM with a limit of its own in containers",
        advise=("shm_size", "fewer_workers"),
    ),
    Pattern(
        kind="shm",
        reach=200,
        needle="no space left on device",
        regex=r"unable to (?:write to|open|mmap|allocate) (?:file|shared memory)[^\n]{0,120}"
        r"No space left on device",
        failure="host_memory",
        confidence="high",
        why="shared memory (/dev/shm) is full",
        advise=("shm_size", "fewer_workers"),
    ),
    Pattern(
        kind="ray",
        needle="node running low on memory",
        regex=r"node running low on memory",
        failure="host_memory",
        confidence="high",
        why="Ray killed the task for the node's RAM",
        advise=("fewer_workers",),
    ),
    Pattern(
        kind="ray_usage",
        reach=200,
        needle="memory usage threshold",
        regex=rf"was (?P<host_used_bytes__size>{NUMBER}[KMGT]i?B) ?/ ?(?P<host_total_bytes__size>{NUMBER}[KMGT]i?B) "
        rf"\({NUMBER}\), which exceeds the memory usage threshold",
        attach_only=True,
    ),
    Pattern(
        kind="slurm",
        needle=("oom-kill event", "oom_kill event"),
        regex=r"slurmstepd: error: Detected \d{1,9} oom[-_]kill event",
        failure="host_memory",
        confidence="high",
        why="Slurm's memory limit for the step: RAM, not the GPU",
        advise=("slurm_memory", "load_with_less"),
    ),
    Pattern(
        kind="slurm_task",
        needle="out of memory",
        regex=r"srun: error: [^\n]{0,60}task \d{1,6}: Out Of Memory|State ?[:=] ?OUT_OF_MEMORY",
        failure="host_memory",
        confidence="high",
        why="Slurm's memory limit for the step: RAM, not the GPU",
        advise=("slurm_memory", "load_with_less"),
    ),
    Pattern(
        kind="page_file",
        needle="paging file is too small",
        regex=r"The paging file is too small for this operation to complete",
        failure="host_memory",
        second="limit_not_capacity",
        confidence="high",
        why="Windows' commit limit (RAM and page file): loading asks for address space that it must be able to back",
        advise=("page_file", "load_with_less"),
    ),
    Pattern(
        kind="numpy",
        needle="unable to allocate",
        regex=rf"Unable to allocate {size_pattern('tried_bytes')} for an array with shape",
        failure="host_memory",
        confidence="high",
        why="NumPy arrays are in RAM",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="cannot_allocate",
        needle=("cannot allocate memory", "errno 12]", "(os error 12)"),
        regex=r"(?:\[Errno 12\]|errno[ =]12|Error code 12|fork:|mmap:?|mlock:?|madvise:?)[^\n]{0,60}Cannot allocate "
        r"memory"
        r"|\[Errno 12\]|\(os error 12\)|(?:^|: )Cannot allocate memory",
        failure="host_memory",
        confidence="high",
        why="the kernel refused memory or address space (ENOMEM)",
        advise=("ulimit",),
    ),
    Pattern(
        kind="python_memory_error",
        needle="memoryerror",
        regex=r"(?:^|\s)MemoryError(?:\s|:|$)",
        failure="host_memory",
        why="Python's MemoryError is about RAM",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="bad_alloc",
        needle="bad_alloc",
        regex=r"std::bad_alloc(?!: ?(?:out_of_memory|CUDA))",
        failure="host_memory",
        why="C++'s bad_alloc without a device's name is about RAM",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="cpu_virtual_memory",
        reach=200,
        needle="cpu virtual memory",
        regex=rf"CPU Virtual Memory: used = (?P<host_used_bytes__gib>{NUMBER}) GB, percent = {NUMBER}%",
        attach_only=True,
    ),
)

FAMILIES = (Family(program="host", patterns=(*ALLOCATORS, *_HOST, *SCHEDULERS, *WINDOWS, *SIGNALS), gap=500),)
