"""Serving engines that refuse by their own arithmetic: SGLang, TGI, TensorRT-LLM, ExLlama (vLLM has its own module).

SGLang's texts are its format strings from 0.1 to 0.5; ExLlama's and TensorRT-LLM's are from public issue threads.
"""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern
from planner.diagnosis.sizes import NUMBER

_SGLANG = (
    Pattern(
        kind="sglang_static",
        reach=200,
        needle="increase --mem-fraction-static",
        regex=rf"(?:Not enough memory\.? ?)?Please try to increase --mem-fraction-static\.?"
        rf"(?: ?Current value: (?:self\.)?(?:server_args\.)?mem_fraction_static=(?P<fraction__number>{NUMBER}))?",
        failure="engine_budget",
        confidence="high",
        why="the weights leave no room for the KV pool within mem_fraction_static",
        would_change="a CUDA out-of-memory at the next higher fraction means the model does not fit at all",
        advise=("raise_mem_fraction", "quantize_or_split", "shrink_engine_work"),
    ),
    Pattern(
        kind="sglang_tokens",
        needle="out of memory. try to lower your batch size",
        regex=r"(?:Prefill|Decode|Extend) out of memory\.? Try to lower your batch size\.?"
        r"(?: ?Try to allocate (?P<tried_tokens__int>\d{1,12}) tokens)?",
    ),
    Pattern(
        kind="sglang_available",
        needle="tokens:",
        regex=r"Ava(?:ilable|liable) tokens: (?P<available_tokens__int>\d{1,12})",  # "Avaliable" to 0.4
        attach_only=True,
    ),
    Pattern(
        kind="sglang_evictable",
        needle="evictable_size",
        regex=r"evictable_size(?:\(\))?=(?P<evictable_tokens__int>\d{1,12})",
        attach_only=True,
    ),
    Pattern(
        kind="sglang_slots",
        reach=300,
        needle="alloc_req_slots runs out of memory",
        regex=r"alloc_req_slots runs out of memory[^=]{0,160}(?:available_size\(\)=(?P<available_slots__int>\d{1,9}), ?"
        r"num_reqs=(?P<dummy_requests__int>\d{1,9}))?",
        failure="engine_budget",
        confidence="high",
        why="all request slots are taken: a count of requests, not memory of the card",
        advise=("lower_running_requests",),
    ),
    Pattern(
        kind="sglang_profiled",
        needle="is larger than the profiled value",
        regex=r"max_total_tokens=(?P<max_total_tokens__int>\d{1,12}) is larger than the profiled value "
        r"(?P<kv_tokens__int>-?\d{1,12})",
    ),
    Pattern(
        kind="sglang_unbalanced",
        needle="memory capacity is unbalanced",
        regex=r"The memory capacity is unbalanced",
        failure="other_process",
        confidence="high",
        why="the ranks see different free memory: some card is occupied by something else",
        advise=("look_at_card", "one_rank_per_gpu"),
    ),
    Pattern(
        kind="sglang_retracted",
        needle="retracted_reqs",
        regex=r"(?:Decode out of memory happened|KV cache pool is full\. Retract requests)\.? ?#retracted_reqs: "
        r"(?P<retracted_reqs__int>\d{1,9})",
        failure="not_a_failure",
        second="engine_budget",
        confidence="high",
        why="the KV pool was full; a request was put back and is retried: normal under load",
        would_change="retraction in every step means the pool is too small for the load",
        advise=("raise_mem_fraction", "lower_running_requests"),
    ),
    Pattern(
        kind="sglang_flashinfer",
        reach=200,
        needle="alignedallocator",
        regex=r"Failed to allocate memory for (?:\w{1,60}) with size (?P<tried_bytes__bytes>\d{1,25}) and alignment "
        r"\d{1,9} in AlignedAllocator",
        failure="engine_budget",
        second="limit_not_capacity",
        confidence="medium",
        why="FlashInfer's workspace buffer of fixed size is too small for this batch; the card is not full",
        advise=("flashinfer_workspace",),
    ),
)

_SGLANG_GRAPH = (
    Pattern(
        kind="sglang_graph",
        needle="capture cuda graph failed",
        regex=r"Capture (?:cuda|CUDA) graph failed",
        failure="device_full",
        second="engine_budget",
        confidence="medium",
        why="memory ran out while graphs were captured, outside the static fraction",
        would_change="a lower fraction or fewer graph sizes: if it starts, this was it",
        advise=("lower_mem_fraction", "fewer_graphs"),
    ),
)

_OTHER_ENGINES = (
    Pattern(
        kind="tgi_prefill",
        needle="not enough memory to handle",
        regex=r"Not enough memory to handle (?:(?P<total_tokens__int>\d{1,12}) total tokens with )?"
        r"(?P<prefill_tokens__int>\d{1,12}) prefill tokens",
    ),
    Pattern(
        kind="tgi_max_batch",
        needle="not enough memory to handle",
        regex=r"Not enough memory to handle `?max_batch_total_tokens",
        failure="engine_budget",
        why="the KV cache of the token budget does not fit beside the weights",
        advise=("lower_prefill_tokens", "quantize_or_split"),
    ),
    Pattern(
        kind="trtllm_executor",
        needle="executor creation failed due to insufficient gpu memory",
        regex=r"Executor creation failed due to insufficient GPU memory",
        failure="engine_budget",
        second="device_full",
        confidence="high",
        why="a component of the executor did not fit into what the ones before it left",
        would_change="the component that is named: model, KV cache or resources ask for different levers",
        advise=("trtllm_budget", "quantize_or_split"),
    ),
    Pattern(
        kind="trtllm_total",
        needle="total gpu memory (gib)",
        regex=rf"Total GPU memory \(GiB\): (?P<total_bytes__gib>{NUMBER})",
        attach_only=True,
    ),
    Pattern(
        kind="trtllm_free",
        needle="before component creation attempt",
        regex=rf"Free GPU memory before component creation attempt \(GiB\): (?P<free_bytes__gib>{NUMBER})",
        attach_only=True,
    ),
    Pattern(
        kind="trtllm_blocks",
        reach=300,
        needle="available in the kv cache",
        regex=r"The number of blocks available in the KV cache \((?P<kv_blocks__int>\d{1,12})\) is not enough"
        r"(?:[^\n]{0,80}\((?P<kv_tokens__int>\d{1,12})\) is less than the max_seq_len "
        r"(?P<max_model_len__int>\d{1,12}))?",
        failure="engine_budget",
        confidence="high",
        why="the KV cache that its fraction pays for is shorter than one sequence of the full length",
        advise=("raise_utilization", "trtllm_budget"),
    ),
    Pattern(
        kind="trtllm_kv",
        needle=("for kv cache", "for the kv cache", "allocate kv cache", "allocate the kv cache"),
        regex=r"(?:Insufficient|not enough) (?:free )?(?:GPU )?memory (?:is available )?(?:for|to allocate)(?: the)? "
        r"KV cache|No enough memory for (?:the )?KV cache",
        failure="engine_budget",
        confidence="high",
        why="the engine found no room for its KV cache within its fraction",
        advise=("trtllm_budget", "quantize_or_split", "shrink_engine_work"),
    ),
    Pattern(
        kind="exllama_vram",
        needle="insufficient vram",
        regex=r"Insufficient VRAM (?:in split )?for model(?: and cache)?|Insufficient space in device allocation",
        failure="engine_budget",
        second="device_full",
        confidence="high",
        why="the automatic split went through every device and the model with its cache did not fit",
        would_change="a shorter max_seq_len or a quantised cache: the default context is the model's full one",
        advise=("exllama_cache", "quantize_or_split"),
        versions="exllamav2, exllamav3",
    ),
)

FAMILIES = (
    Family(program="sglang", patterns=_SGLANG, gap=400),
    Family(program="sglang", patterns=_SGLANG_GRAPH, gap=2000, wraps=True),
    Family(program="tgi", patterns=_OTHER_ENGINES[:2]),
    Family(program="tensorrt-llm", patterns=_OTHER_ENGINES[2:7], gap=1500),
    Family(program="exllama", patterns=_OTHER_ENGINES[7:]),
)
