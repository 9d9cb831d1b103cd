"""What allocators of RAM print: C, Rust, Go, Java, JavaScript, Arrow, ggml, Ray's object store, early killers."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Pattern
from planner.diagnosis.sizes import NUMBER

_LANGUAGES = (
    Pattern(
        kind="rust_allocation",
        needle="memory allocation of",
        regex=r"memory allocation of (?P<tried_bytes__bytes>\d{1,25}) bytes failed",
        failure="host_memory",
        confidence="high",
        why="a Rust program's request of RAM was refused",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="managed_heap",
        needle=(
            "heap out of memory",
            "java heap space",
            "java.lang.outofmemory",
            "fatal error: runtime: out of memory",
        ),
        regex=r"JavaScript heap out of memory|java\.lang\.OutOfMemoryError(?:: [\w ]{1,60})?"
        r"|fatal error: runtime: out of memory",
        failure="host_memory",
        second="limit_not_capacity",
        confidence="high",
        why="the heap of a Java, JavaScript or Go program is full: RAM, or the heap's own limit",
        advise=("managed_heap", "ulimit"),
    ),
    Pattern(
        kind="arrow",
        needle=("arrowmemoryerror", "malloc of size"),
        regex=r"\bmalloc of size (?P<tried_bytes__bytes>\d{1,25}) failed|\bArrowMemoryError\b",
        failure="host_memory",
        confidence="high",
        why="Arrow's tables are in RAM",
        advise=("smaller_host_array",),
    ),
    Pattern(
        kind="glibc",
        needle=("memory exhausted", "virtual memory exhausted"),
        regex=r"malloc\(\): memory exhausted|virtual memory exhausted",
        failure="host_memory",
        confidence="high",
        why="malloc found no RAM or address space",
        advise=("load_with_less", "ulimit"),
    ),
    Pattern(
        kind="threads",
        needle=("can't start new thread", "pthread_create failed"),
        regex=r"can't start new thread|pthread_create failed for thread|pthread_create failed: Resource temporarily",
        failure="limit_not_capacity",
        second="host_memory",
        confidence="medium",
        why="no further thread could be started: a limit of processes, or no RAM for its stack",
        would_change="free RAM and ulimit -u well above what is used",
        advise=("ulimit", "fewer_workers"),
    ),
)
_RUNTIMES = (
    Pattern(
        kind="ggml_mlock",
        reach=250,
        needle="failed to mlock",
        regex=r"failed to mlock (?P<tried_bytes__bytes>\d{1,25})-byte buffer(?:[^:]{0,120}: Cannot allocate memory)?",
        failure="not_a_failure",
        second="host_memory",
        confidence="high",
        why="a warning: the weights could not be kept from being swapped; the program goes on",
        advise=("mlock_limit",),
    ),
    Pattern(
        kind="ggml_host",
        reach=250,
        needle=("ggml_aligned_malloc", "cpu_buffer_type_alloc_buffer", "failed to allocate cpu buffer"),
        regex=rf"ggml_aligned_malloc: insufficient memory \(attempted to allocate (?P<tried_bytes__mib>{NUMBER}) MB\)"
        r"|cpu_buffer_type_alloc_buffer: failed to allocate buffer of size (?P<tried_host_bytes__bytes>\d{1,25})"
        r"|failed to allocate CPU buffer of size",
        failure="host_memory",
        confidence="high",
        why="ggml's buffer of the CPU: layers and cache outside the GPU are held in RAM",
        advise=("smaller_model_host",),
    ),
    Pattern(
        kind="paddle_host",
        reach=200,
        needle="fail to alloc memory of",
        regex=r"Fail to alloc memory of (?P<tried_bytes__bytes>\d{1,25}) size",
        failure="host_memory",
        confidence="high",
        why="Paddle's CPU allocator: the request is for RAM",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="ray_store",
        reach=200,
        needle=("objectstorefullerror", "object store memory full", "failed to put object", "plasma store"),
        regex=r"\bObjectStoreFullError\b|object store memory full|Failed to put object [^\n]{0,60}because it is full"
        r"|plasma store: Failed to create object: OutOfMemory",
        failure="host_memory",
        confidence="high",
        why="Ray's object store (shared memory) is full: it is RAM with a size of its own",
        advise=("ray_object_store", "shm_size"),
    ),
    Pattern(
        kind="ray_store_warning",
        reach=200,
        needle="object store is using /tmp instead of /dev/shm",
        regex=r"object store is using /tmp instead of /dev/shm because /dev/shm has only "
        r"(?P<shm_available_bytes__bytes>\d{1,25}) bytes",
        failure="not_a_failure",
        second="host_memory",
        confidence="high",
        why="a warning: shared memory is small, so Ray's object store lies on disk, slowly",
        advise=("shm_size",),
    ),
    Pattern(
        kind="early_killer",
        reach=200,
        needle=("earlyoom", "nohang", "jetsam"),
        regex=r"earlyoom(?:\[\d{1,10}\])?: (?:low memory|sending SIG(?:TERM|KILL))|\bJetsam[^\n]{0,60}memory",
        failure="host_memory",
        confidence="high",
        why="a watcher of free RAM ended the process before the kernel had to",
        advise=("load_with_less", "free_ram"),
    ),
    Pattern(
        kind="hierarchical_cache",
        reach=200,
        needle="not enough host memory available",
        regex=rf"Not enough host memory available\. Requesting (?P<tried_bytes__gb>{NUMBER}) GB but only have "
        rf"(?P<host_available_bytes__gb>{NUMBER}) GB",
        failure="host_memory",
        confidence="high",
        why="SGLang's hierarchical cache asks for more RAM than is free",
        advise=("smaller_hicache",),
    ),
    Pattern(
        kind="vllm_lack_of_swap",
        reach=200,
        needle="lack of cpu swap space",
        regex=r"lack of CPU swap space",
        failure="host_memory",
        second="engine_budget",
        confidence="high",
        why="preempted sequences found no room in the CPU swap space: it is RAM that vLLM sets apart",
        advise=("raise_swap_space",),
        versions="vllm V0",
    ),
    Pattern(
        kind="bus_error",
        needle="python error: bus error",
        regex=r"Fatal Python error: Bus error",
        failure="host_memory",
        confidence="medium",
        why="a bus error: shared memory (/dev/shm) or a mapped file ran out under the process",
        would_change="room in /dev/shm and on the disk of the mapped file",
        advise=("shm_size", "fewer_workers"),
    ),
)

PATTERNS = (*_LANGUAGES, *_RUNTIMES)
