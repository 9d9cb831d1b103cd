"""Who ends a process for RAM: the kernel, systemd, Slurm and its kin, Kubernetes, notebooks.

Linux mm/oom_kill.c (4.x to 6.x), systemd 245+, Slurm 17 to 24, Kubernetes events.
"""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Pattern

_LIMIT = "the job's memory limit was passed: RAM, not the GPU"

_KERNEL = (
    Pattern(
        kind="kernel_constraint",
        reach=600,
        needle="oom-kill:constraint=",
        regex=r"oom-kill:constraint=(?P<oom_constraint__word>CONSTRAINT_\w{4,20})(?:[^\n]{0,300}?"
        r"oom_memcg=(?P<oom_memcg__word>[\w/.:@\\-]{1,160}))?",
        failure="host_memory",
        confidence="high",
        why="the kernel's own line: it killed a process for RAM",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="kernel_invoked",
        reach=200,
        needle="invoked oom-killer",
        regex=r"\b(?P<oom_asker__word>[\w./:-]{1,40}) invoked oom-killer",
        failure="host_memory",
        confidence="high",
        why="the kernel's own line: it looks for a process to kill for RAM",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="cgroup_memory",
        reach=200,
        needle="memory: usage",
        regex=r"memory: usage (?P<host_used_bytes__kib>\d{1,18})kB, limit (?P<host_limit_bytes__kib>\d{1,18})kB",
        attach_only=True,
    ),
    Pattern(
        kind="no_swap",
        needle="total swap",
        regex=r"Total swap ?= ?(?P<swap_total_bytes__kib>\d{1,18})kB",
        attach_only=True,
    ),
)
_SYSTEMD = (
    Pattern(
        kind="systemd_oom",
        reach=300,
        needle=(
            "has been killed by the oom killer",
            "failed with result 'oom-kill'",
            "result: oom-kill",
            "result=oom-kill",
        ),
        regex=r"(?:(?P<unit__word>[\w@.\\-]{1,80}\.(?:service|scope|slice))[^\n]{0,40}?)?(?:A process of this unit "
        r"has been "
        r"killed by the OOM killer|Failed with result 'oom-kill'|[Rr]esult[:=] ?oom-kill)",
        failure="host_memory",
        confidence="high",
        why="systemd saw the kernel kill a process of the unit for RAM",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="systemd_oomd",
        reach=300,
        needle=("systemd-oomd", "due to memory pressure for", "due to memory used"),
        regex=r"systemd-oomd(?:\[\d{1,10}\])?: Killed|systemd-oomd killed|Killed [\w/@.\\-]{1,160} due to memory "
        r"(?:pressure|used)",
        failure="host_memory",
        confidence="high",
        why="systemd-oomd ended the unit because the machine was short of RAM",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="systemd_killed",
        reach=200,
        needle="status=9/kill",
        regex=r"code=killed, status=9/KILL",
    ),
)
_CLUSTERS = (
    Pattern(
        kind="slurm_exceeded",
        reach=250,
        needle=("exceeded memory limit", "exceeded job memory limit", "exceeded step memory limit"),
        regex=r"(?:Job|Step)[^\n]{0,60}exceeded (?:job |step )?memory limit(?: \((?P<host_used_bytes__kib>\d{1,18}) > "
        r"(?P<host_limit_bytes__kib>\d{1,18})\))?|Exceeded (?:job|step) memory limit",
        failure="host_memory",
        confidence="high",
        why=_LIMIT,
        advise=("slurm_memory", "load_with_less"),
    ),
    Pattern(
        kind="slurm_state",
        needle=("out_of_memory", "out_of_me+", "some of your processes may have been killed"),
        regex=r"\bState\b[^\n]{0,12}\bOUT_OF_MEMORY\b|\bOUT_OF_ME\+|\bJobState=OUT_OF_MEMORY|\bOUT_OF_MEMORY\b(?= "
        r"+0:125)"
        r"|Some of (?:your processes may have been|the step tasks have been) (?:OOM )?killed",
        failure="host_memory",
        confidence="high",
        why="Slurm's memory limit for the job: RAM, not the GPU",
        advise=("slurm_memory", "load_with_less"),
    ),
    Pattern(
        kind="batch_limit",
        reach=250,
        needle=(
            "term_memlimit",
            "h_vmem",
            "exceeded limit",
            "memory usage limit",
            "request_memory",
            "beyond the 'physical'",
            "running beyond physical memory",
            "exceeding memory limits",
        ),
        regex=r"TERM_MEMLIMIT|exceeds job hard limit \"?h_(?:vmem|rss)|job killed: (?:p?v?mem) "
        r"(?P<host_used_bytes__kib>\d{1,18})"
        r"kb exceeded limit (?P<host_limit_bytes__kib>\d{1,18})kb|reaching LSF memory usage limit|memory usage "
        r"exceeded "
        r"request_memory|running beyond (?:the )?'?physical'? memory|killed by YARN for exceeding memory limits",
        failure="host_memory",
        confidence="high",
        why=_LIMIT,
        advise=("job_memory", "load_with_less"),
    ),
)
_KUBERNETES = (
    Pattern(
        kind="k8s_evicted",
        reach=300,
        needle="the node was low on resource: memory",
        regex=r"The node was low on resource: memory\.?(?:[^\n]{0,120}?was using "
        r"(?P<host_used__word>[\d.]{1,20}[KMGT]?i?))?",
        failure="host_memory",
        confidence="high",
        why="the node ran short of RAM and evicted the pod: it used more than it requests",
        advise=("k8s_request", "load_with_less"),
    ),
    Pattern(
        kind="k8s_scheduling",
        reach=300,
        needle="insufficient memory",
        regex=r"\d{1,6}/\d{1,6} nodes are available[^\n]{0,160}?\bInsufficient memory",
        failure="host_memory",
        confidence="high",
        why="no node has the RAM that the pod requests: it was never started",
        advise=("k8s_request_less",),
    ),
    Pattern(
        kind="k8s_oom",
        reach=200,
        needle=("system oom encountered", "oomkilling", "oom-killed"),
        regex=r"System OOM encountered|\bOOMKilling\b|container(?: init)? was OOM-killed",
        failure="host_memory",
        confidence="high",
        why="the kernel killed a process of the container for RAM",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="k8s_shm",
        reach=200,
        needle="usage of emptydir volume",
        regex=r"Usage of EmptyDir volume \"[\w.-]{1,80}\" exceeds the limit",
        failure="host_memory",
        confidence="high",
        why="an emptyDir volume (often /dev/shm) passed its limit, and the pod was evicted",
        advise=("shm_size", "fewer_workers"),
    ),
)
_NOTEBOOKS = (
    Pattern(
        kind="notebook_ram",
        needle=("after using all available ram", "tried to allocate more memory than is available"),
        regex=r"(?:session|notebook)[^\n]{0,40}(?:after using all available RAM|tried to allocate more memory than "
        r"is available)",
        failure="host_memory",
        confidence="high",
        why="the notebook's machine ran out of RAM",
        advise=("load_with_less", "larger_machine"),
    ),
    Pattern(
        kind="kernel_died",
        reach=200,
        needle=("kernel appears to have died", "kernel crashed while executing", "kernel died"),
        regex=r"kernel appears to have died|Kernel crashed while executing|\bkernel died\b",
        failure="host_memory",
        second="undecided",
        confidence="low",
        why="a notebook's kernel that dies without a message was mostly ended for RAM",
        would_change="a segmentation fault in the server's log: then a library is broken",
        advise=("kernel_log", "load_with_less"),
    ),
    Pattern(
        kind="worker_died",
        reach=250,
        needle=(
            "terminated abruptly",
            "unexpectedly terminated",
            "(1) the process is killed by sigkill by oom killer",
            "killed due to memory pressure",
            "worker died or was killed",
        ),
        regex=r"process in the process pool was terminated abruptly|worker (?:process )?[^\n]{0,60}unexpectedly "
        r"terminated"
        r"|killed by SIGKILL by OOM killer|Workers? \(tasks ?/ ?actors\) killed due to memory pressure"
        r"|worker died or was killed while executing a task",
        failure="host_memory",
        second="undecided",
        confidence="medium",
        why="a worker process was ended from outside: mostly for RAM",
        would_change="the kernel's log without a line on that process",
        advise=("fewer_workers", "kernel_log"),
    ),
    Pattern(
        kind="host_warning",
        reach=200,
        needle="of free system memory",
        regex=r"Allocation of (?P<tried_bytes__bytes>\d{1,25}) exceeds \d{1,3}% of free system memory",
        failure="not_a_failure",
        second="host_memory",
        confidence="high",
        why="a warning of TensorFlow on RAM; the program goes on",
        advise=("look_further",),
    ),
)

PATTERNS = (*_KERNEL, *_SYSTEMD, *_CLUSTERS, *_KUBERNETES, *_NOTEBOOKS)
