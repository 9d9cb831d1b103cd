"""The engines: one folder each, imported when asked for. Adding one is a folder and a row here."""

from planner.contract.engine import recognise, register

register("vllm", "planner.engines.vllm.engine:VLLM", "vllm serve")
register("transformers", "planner.engines.transformers.engine:TRANSFORMERS")
register("sglang", "planner.engines.sglang.engine:SGLANG", "python -m sglang.launch_server", "sglang serve")
register("llama.cpp", "planner.engines.llama_cpp.engine:LLAMA_CPP", "llama-server", "llama-cli")
register("ollama", "planner.engines.ollama.engine:OLLAMA", "ollama run")
register("tensorrt-llm", "planner.engines.tensorrt_llm.engine:TENSORRT_LLM", "trtllm-serve")
recognise("lmdeploy", "LMDeploy (TurboMind)", "lmdeploy serve api_server", "lmdeploy serve")
