"""Forms and traps beside the fixtures, one small text each, with what is right by the tools' own rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.launches.reading import read_launch
from planner.launches.record import Launch, LaunchPlan, Settings

GIB = 1 << 30


def read(text: str, name: str = "", **values: str) -> Launch:
    return read_launch(text, name=name, settings=Settings(values=values))


def plan(text: str, name: str = "") -> LaunchPlan:
    [found] = read(text, name).plans
    return found


def values(found: LaunchPlan) -> dict[str, Any]:
    return {name: value.value for name, value in found.inputs.items()}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--max-model-len 32k", {"max-model-len": 32_000}),
        ("--max-model-len 1.5k", {"max-model-len": 1_500}),
        ("--max-model-len=32K", {"max-model-len": 32_768}),
        ("--max_model_len auto", {"max-model-len": -1}),
        ("--max-model 512", {"max-model-len": 512}),
        ("--kv-cache-memory-bytes 12G", {"kv-cache-memory-bytes": 12 * GIB}),
        ("--dtype half", {"dtype": "float16"}),
        ("-tp=2 -pp 2", {"tensor-parallel-size": 2, "pipeline-parallel-size": 2}),
        ("--no-enable-prefix-caching", {"enable-prefix-caching": False}),
        ("--max-num-seqs 8 --max-num-seqs 16", {"max-num-seqs": 16}),
        ("--enforce-eager --port 1 --api-key x", {"enforce-eager": True}),
        ("--limit-mm-per-prompt image=2,video=0", {"limit-mm-per-prompt": {"image": 2, "video": 0}}),
        ("--limit-mm-per-prompt.image 2", {"limit-mm-per-prompt": {"image": 2}}),
        ("--cuda-graph-sizes 1 2 4", {"max-cudagraph-capture-size": 4}),
        ("-cc '{\"cudagraph_capture_sizes\": [8, 16]}'", {"max-cudagraph-capture-size": 16}),
    ],
)
def test_options_are_read_as_vllm_reads_them(words: str, expected: dict[str, Any]) -> None:
    assert values(plan(f"vllm serve a/b {words}")) == expected


@pytest.mark.parametrize(
    ("text", "model", "expected"),
    [
        ("A=a/b\nN=4096\nvllm serve $A --max-model-len $((N*2))", "a/b", 8192),
        ('A=(--max-model-len 64)\nvllm serve a/b "${A[@]}"', "a/b", 64),
        ('O="--max-model-len 64"\nvllm serve a/b $O', "a/b", 64),
        ("vllm serve a/b --max-model-len 64 \\\n # a comment \\\n --max-model-len 128", "a/b", 64),
        ("vllm serve a/b --max-model-len 64 \\ \n --max-model-len 128", "a/b", 64),
        ("(cd /x && nohup nice -n 5 taskset -c 0-7 vllm serve a/b --max-model-len 64 > log 2>&1) &", "a/b", 64),
        ("bash -lc 'source x; exec vllm serve a/b --max-model-len 64'", "a/b", 64),
        ("bash <<'E'\nvllm serve a/b --max-model-len 64\nE", "a/b", 64),
        ("screen -dmS s bash -c 'vllm serve a/b --max-model-len 64'", "a/b", 64),
        ("kubectl exec -it p -c c -- vllm serve a/b --max-model-len 64", "a/b", 64),
        ("user@box:~$ vllm serve a/b \\\n>   --max-model-len 64\nINFO started --max-model-len 1", "a/b", 64),
        ("vllm serve 'a/b' --chat-template \"{{ x }}\" --max-model-len 64 # --max-model-len 1", "a/b", 64),
        ("hf download a/b --local-dir /m\nvllm serve /m --max-model-len 64", "a/b", 64),
        ("vllm serve /root/.cache/huggingface/hub/models--a--b/snapshots/1 --max-model-len 64", "a/b", 64),
        ("conda run -n v --no-capture-output vllm serve a/b --max-model-len 64", "a/b", 64),
        ("set MODEL=a/b\r\nvllm serve %MODEL% ^\r\n --max-model-len 64\r\n", "a/b", 64),
    ],
)
def test_shell_is_read_as_a_shell_reads_it(text: str, model: str, expected: int) -> None:
    [found] = read(text).plans
    assert (found.model, found.get("max-model-len")) == (model, expected)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.9.2", "0.9.2"),
        ("vllm/vllm-openai:v0.8.5.post1", "0.8.5.post1"),
        ("docker.io/vllm/vllm-openai:v0.12.0-cu129", "0.12.0"),
        ("vllm/vllm-openai:v0.11.0rc2", "0.11.0rc2"),
        ("vllm/vllm-openai:nightly-abc", None),
        ("vllm/vllm-openai", None),
        ("vllm/vllm-openai@sha256:00", None),
        ("lmcache/vllm-openai:v0.3.9", None),
        ("reg.example.com/vllm-openai:v0.9.2", None),
    ],
)
def test_release_is_that_of_the_engines_own_image(image: str, version: str | None) -> None:
    assert plan(f"docker run --gpus 1 {image} --model a/b").version == version


@pytest.mark.parametrize(
    ("flags", "gpus", "host"),
    [
        ("--gpus 2 --shm-size 8g", 2, {"shm_bytes": 8 * GIB}),
        ("--gpus '\"device=1,3\"' -m 64gb", 2, {"memory_limit_bytes": 64 * GIB}),
        ("--gpus all --ipc host --shm-size=1g", None, {"shm_bytes": GIB, "ipc_host": True}),
        ("--device nvidia.com/gpu=0 --device nvidia.com/gpu=1", 2, {}),
        ("--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=0,1", 2, {}),
    ],
)
def test_container_gives_devices_and_host_memory(flags: str, gpus: int | None, host: dict[str, Any]) -> None:
    found = plan(f"docker run {flags} vllm/vllm-openai:v0.9.2 --model a/b --tensor-parallel-size 2")
    assert (found.gpus, found.host) == (gpus, host)


def pod(spec: str = "", limits: str = "nvidia.com/gpu: 1", args: str = "--model, a/b") -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n{spec}  containers:\n  - name: c\n"
        f"    image: vllm/vllm-openai:v0.9.2\n    args: [{args}]\n    resources: {{limits: {{{limits}}}}}\n"
    )


@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3", "h100-sxm-80gb"),
        ("nvidia.com/gpu.product: NVIDIA-GeForce-RTX-4090-SHARED", "rtx-4090"),
        ("cloud.google.com/gke-accelerator: nvidia-tesla-a100", "a100-sxm-40gb"),
        ("cloud.google.com/gke-accelerator: nvidia-h200-141gb", "h200-sxm"),
        ("node.kubernetes.io/instance-type: g6e.12xlarge", "l40s"),
        ("node.kubernetes.io/instance-type: Standard_NC24ads_A100_v4", "a100-pcie-80gb"),
        ("node.kubernetes.io/instance-type: a3-highgpu-8g", "h100-sxm-80gb"),
        ("karpenter.k8s.aws/instance-gpu-name: a10g", "a10g"),
        ("nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", None),
    ],
)
def test_card_comes_from_the_node_selector(label: str, key: str | None) -> None:
    found = plan(pod(f"  nodeSelector: {{{label}}}\n"), "p.yaml")
    assert found.card_key == key and found.card == label.partition(": ")[2]


@pytest.mark.parametrize(
    ("text", "size"), [("120G", 120 * 10**9), ("64Gi", 64 * GIB), ("1048576", 1048576), ("1.5Gi", GIB * 3 // 2)]
)
def test_sizes_of_kubernetes(text: str, size: int) -> None:
    assert plan(pod(limits=f"nvidia.com/gpu: 1, memory: {text}"), "p.yaml").host == {"memory_limit_bytes": size}


def test_fewer_gpus_than_the_sizes_need_is_an_error_and_more_are_idle() -> None:
    fewer = read(pod(args="--model, a/b, --tensor-parallel-size, '4'", limits="nvidia.com/gpu: 2"), "p.yaml")
    assert fewer.outcome == "error" and "4 GPUs" in (fewer.error or "")
    more = read(pod(limits="nvidia.com/gpu: 2"), "p.yaml")
    assert more.plans[0].gpus == 2 and any("idle" in note for note in more.notes)


def test_leader_and_workers_are_one_server() -> None:
    text = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate: {spec: {containers: [{name: l, image: "vllm/vllm-openai:v0.9.2",
      resources: {limits: {nvidia.com/gpu: 8}},
      command: [sh, -c, "start.sh leader; vllm serve a/b --tensor-parallel-size 8 --pipeline-parallel-size 2"]}]}}
    workerTemplate: {spec: {containers: [{name: w, image: "vllm/vllm-openai:v0.9.2",
      command: [sh, -c, "start.sh worker"]}]}}
"""
    launch = read(text, "lws.yaml")
    assert launch.form == "lws"
    assert (launch.plans[0].gpus, launch.plans[0].replicas) == (16, 2)


SLURM = """#!/bin/bash
#SBATCH --job-name=sft --nodes=2
#SBATCH --gres=gpu:{gres}
##SBATCH --gres=gpu:h100:8
#SBATCH --mem=480G
HEAD=$(scontrol show hostnames | head -1)
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 --rdzv_endpoint $HEAD:29500 run_clm.py \\
  --model_name_or_path a/b --per_device_train_batch_size 2 --block_size 4096 --bf16 True \\
  --fsdp "full_shard auto_wrap offload" --output_dir o
"""


@pytest.mark.parametrize(
    ("gres", "key"), [("l40s:4", "l40s"), ("a100-80:4", "a100-sxm-80gb"), ("a100:4", None), ("4", None)]
)
def test_slurm_gives_nodes_gpus_card_and_memory(gres: str, key: str | None) -> None:
    launch = read(SLURM.format(gres=gres), "job.sbatch")
    [found] = launch.plans
    assert (launch.form, launch.outcome) == ("slurm", "plan")
    assert (found.gpus, found.nodes, found.card_key, found.host) == (8, 2, key, {"memory_limit_bytes": 480 * GIB})
    assert values(found) == {
        "method": "full",
        "num-gpus": 8,
        "sharding": "fsdp",
        "offload-parameters": True,
        "autocast": "bf16",
        "per-device-train-batch-size": 2,
        "max-seq-length": 4096,
    }


def test_slurm_variables_are_those_of_its_directives() -> None:
    text = "#!/bin/bash\n#SBATCH -N 1\n#SBATCH --gpus-per-node=h100:2\n#SBATCH --mem-per-gpu=100G\n"
    text += "vllm serve a/b -tp $SLURM_GPUS_ON_NODE\n"
    found = plan(text, "x.slurm")
    assert (found.get("tensor-parallel-size"), found.gpus, found.card_key) == (2, 2, "h100-sxm-80gb")
    assert found.host == {"memory_limit_bytes": 200 * GIB}


def test_trl_yaml() -> None:
    text = "model_name_or_path: a/b\ndataset_name: x\nuse_peft: true\nlora_r: 8\nload_in_4bit: true\n"
    text += "max_length: 2048\npacking: true\nlearning_rate: 2e-5\n"
    launch = read(text, "sft.yaml")
    [found] = launch.plans
    assert (launch.form, found.tool, found.gpus) == ("trl", "trl", None)
    assert values(found) == {
        "method": "qlora",
        "base-quantization": "nf4",
        "lora-rank": 8,
        "max-seq-length": 2048,
        "padding": False,
    }
    assert found.defaults["gradient-checkpointing"] is True  # on from 0.22
    assert found.inputs["lora-rank"].line == 4


@pytest.mark.parametrize(
    ("release", "checkpointing", "autocast"),
    [("0.15.2", False, None), ("0.21.0", False, "bf16"), ("0.24.0", True, "bf16")],
)
def test_defaults_of_trl_are_those_of_its_release(release: str, checkpointing: bool, autocast: str | None) -> None:
    found = plan(f"pip install trl=={release}\ntrl sft --model_name_or_path a/b --output_dir o")
    assert found.version == release
    assert (found.defaults["gradient-checkpointing"], found.defaults.get("autocast")) == (checkpointing, autocast)


def test_deepspeed_json() -> None:
    config = {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}},
        "bf16": {"enabled": True},
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": "auto",
    }
    launch = read(json.dumps(config, indent=1), "ds.json")
    assert (launch.form, launch.outcome) == ("deepspeed", "partial")
    assert values(launch.plans[0]) == {
        "sharding": "zero3",
        "offload-optimizer": True,
        "offload-parameters": False,
        "autocast": "bf16",
        "per-device-train-batch-size": 2,
    }
    assert [need.partition(":")[0] for need in launch.needs] == ["model", "sequence length", "method"]
    settled = read(json.dumps(config), "ds.json", model="a/b", max_seq_length="512", method="full")
    assert settled.outcome == "plan" and settled.plans[0].get("max-seq-length") == 512


def notebook(*cells: str, **metadata: Any) -> str:
    listed = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": listed, "metadata": metadata, "nbformat": 4})


def test_notebook() -> None:
    text = notebook(
        "!pip install -q trl==0.23.0 \\\n  peft\n%load_ext autoreload\nMODEL = 'a/b' #@param",
        "from trl import SFTConfig, SFTTrainer\ncfg = SFTConfig(per_device_train_batch_size=2, max_length=1024)",
        "%%time\nSFTTrainer(MODEL, args=cfg).train()",
        colab={"gpuType": "T4"},
    )
    launch = read(text, "x.ipynb")
    [found] = launch.plans
    assert (launch.form, found.tool, found.version, found.model) == ("notebook", "trl", "0.23.0", "a/b")
    assert (found.card, found.card_key) == ("T4", "t4")
    assert values(found) == {
        "method": "full",
        "objective": "sft",
        "per-device-train-batch-size": 2,
        "max-seq-length": 1024,
    }


def test_llm_d_values() -> None:
    text = """modelArtifacts: {uri: "hf://a/b", name: b}
decode:
  replicas: 2
  parallelism: {tensor: 4}
  containers:
  - {name: vllm, image: "ghcr.io/llm-d/llm-d-cuda:v0.3.0", modelCommand: vllmServe, args: ["--max-model-len", "16384"],
     resources: {limits: {memory: 100Gi, nvidia.com/gpu: "4"}}}
prefill:
  replicas: 3
  parallelism: {tensor: 1}
  containers: [{name: vllm, modelCommand: vllmServe}]
"""
    launch = read(text, "values.yaml")
    decode, prefill = launch.plans
    assert launch.form == "helm-llm-d"
    assert (decode.model, decode.version, decode.gpus, decode.replicas) == ("a/b", None, 4, 2)
    assert values(decode) == {"tensor-parallel-size": 4, "max-model-len": 16384}
    assert (prefill.gpus, prefill.replicas, values(prefill)) == (1, 3, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MODEL = 'a/b'\nLLM(MODEL, max_model_len=2**12)", 4096),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=64)\n"
            "args = p.parse_args()\nLLM('a/b', max_model_len=args.n)",
            64,
        ),
        ("import os\nLLM(f\"{os.environ.get('ORG', 'a')}/b\", max_model_len=int(os.getenv('N', '64')))", 64),
        ("kw = {'max_model_len': 64}\nkw['max_num_seqs'] = 8\nLLM('a/b', **kw)", 64),
        (
            "from dataclasses import dataclass, field\n@dataclass\nclass C:\n    n: int = field(default=64)\nc = C()\n"
            "LLM('a/b', max_model_len=c.n)",
            64,
        ),
        ("def main(model: str = 'a/b', n: int = typer.Option(64)):\n    LLM(model, max_model_len=n)", 64),
        ("if __name__ == '__main__':\n    n = 64\n    LLM('a/b', max_model_len=n)", 64),
    ],
)
def test_values_of_a_script_are_followed(text: str, expected: int) -> None:
    [found] = read("from vllm import LLM\n" + text, "x.py").plans
    assert (found.model, found.get("max-model-len")) == ("a/b", expected)


@pytest.mark.parametrize(
    "text",
    ["n = f()\n", "n = 64\nif x:\n    n = 128\n", "for n in (64, 128):\n    pass\n", "n = int(open('f').read())\n", ""],
)
def test_computed_values_are_asked_for(text: str) -> None:
    launch = read(f"from vllm import LLM\n{text}LLM('a/b', max_model_len=n)", "x.py")
    assert launch.outcome == "partial" and "max_model_len" in launch.needs[0] and "--set" in launch.needs[0]


@pytest.mark.parametrize(
    ("text", "name", "tool", "expected"),
    [
        (
            "base_model: a/b\nadapter: lora\nload_in_8bit: true\nsequence_len: 64\nmicro_batch_size:"
            " 1\nfsdp_version: 2\n"
            "fsdp_config: {offload_params: true}\nrl: dpo\ndatasets: []\n",
            "a.yml",
            "axolotl",
            {
                "method": "lora",
                "base-quantization": "int8",
                "sharding": "fsdp2",
                "offload-parameters": True,
                "objective": "dpo",
            },
        ),
        (
            "base_model: a/b\nsequence_len: 64\nmicro_batch_size: 1\ndeepspeed: deepspeed_configs/zero3_bf16.json\n"
            "gradient_checkpointing: offload\n",
            "a.yml",
            "axolotl",
            {"method": "full", "sharding": "zero3", "gradient-checkpointing": True, "activation-offload": True},
        ),
        (
            "model_name_or_path: a/b\nstage: dpo\nfinetuning_type: lora\nquantization_bit: 4\nflash_attn: fa2\n"
            "disable_gradient_checkpointing: true\npure_bf16: true\n",
            "l.yaml",
            "llamafactory",
            {
                "method": "qlora",
                "base-quantization": "nf4",
                "objective": "dpo",
                "attn-implementation": "flash_attention_2",
                "gradient-checkpointing": False,
                "dtype": "bfloat16",
            },
        ),
        (
            "NPROC_PER_NODE=4 swift rlhf --rlhf_type dpo --model a/b --tuner_type full --deepspeed"
            " zero3_offload --max_length 64",
            "s.sh",
            "ms-swift",
            {
                "method": "full",
                "objective": "dpo",
                "num-gpus": 4,
                "sharding": "zero3",
                "offload-optimizer": True,
                "offload-parameters": True,
            },
        ),
        (
            "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --max_len 64 --pretrain a/b"
            " --micro_train_batch_size 2"
            " --zero_stage 3 --bf16 --lora_rank 64",
            "o.sh",
            "openrlhf",
            {
                "method": "lora",
                "lora-rank": 64,
                "sharding": "zero3",
                "num-gpus": 8,
                "dtype": "bfloat16",
                "objective": "sft",
            },
        ),
        (
            "accelerate launch --num_processes 4 --use_deepspeed --zero_stage 2 --mixed_precision bf16 dpo.py"
            " --model_name_or_path a/b --use_peft --lora_r 64 --max_length 64",
            "t.sh",
            "trl",
            {
                "method": "lora",
                "objective": "dpo",
                "sharding": "zero2",
                "num-gpus": 4,
                "autocast": "bf16",
                "lora-rank": 64,
            },
        ),
        (
            "python run_clm.py --model_name_or_path a/b --output_dir o --no_bf16 --block-size 64"
            " --gradient_checkp true",
            "t.sh",
            "transformers",
            {"method": "full", "max-seq-length": 64, "gradient-checkpointing": True},
        ),
    ],
)
def test_trainers(text: str, name: str, tool: str, expected: dict[str, Any]) -> None:
    found = plan(text, name)
    assert found.tool == tool
    assert expected.items() <= values(found).items()


@pytest.mark.parametrize(
    ("text", "tool", "expected"),
    [
        (
            "LLAMA_ARG_CTX_SIZE=8 LLAMA_ARG_N_GPU_LAYERS=9 llama-server -hf a/b:Q4_K_M -c 16 -fa",
            "llama.cpp",
            {"ctx-size": 16, "n-gpu-layers": 9, "flash-attn": "on"},
        ),
        (
            "sglang serve --model-path a/b --tp 2 --disable-cuda-graph --port 1",
            "sglang",
            {"tp-size": 2, "disable-cuda-graph": True},
        ),
        ("trtllm-serve a/b --tp_size 2 --max_seq_len 64", "tensorrt-llm", {"tp_size": 2, "max_seq_len": 64}),
        ("OLLAMA_NUM_PARALLEL=2 ollama run a:8b", "ollama", {"num_parallel": 2}),
    ],
)
def test_engines(text: str, tool: str, expected: dict[str, Any]) -> None:
    found = plan(text)
    assert (found.tool, values(found)) == (tool, expected)


def test_a_thousand_lines_are_read_in_little_time() -> None:
    import time

    text = (
        "".join(f"export NAME_{i}=value_{i}  # a comment\n" for i in range(999)) + "vllm serve a/b --max-model-len 64\n"
    )
    read(text)
    assert min(_timed(text, time.process_time) for _ in range(3)) < 0.3  # 50 ms on an idle machine


def _timed(text: str, clock: Any) -> float:
    before = clock()
    read(text)
    return float(clock() - before)


def test_option_with_a_computed_value_is_settled_by_its_name() -> None:
    text = "vllm serve a/b --tensor-parallel-size $(nvidia-smi -L | wc -l)"
    asked = read(text)
    assert asked.outcome == "partial" and asked.plans[0].gpus is None
    assert "--set tensor-parallel-size=VALUE" in asked.needs[0]
    settled = read(text, **{"tensor-parallel-size": "4"})
    assert settled.outcome == "plan" and settled.plans[0].get("tensor-parallel-size") == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'f() {\n local m=$1\n shift\n vllm serve "$m" --max-model-len ${L:-64} "$@"\n}\nf a/b --max-num-seqs 8',
            [("a/b", {"max-model-len": 64, "max-num-seqs": 8})],
        ),
        (
            "f() { vllm serve $1 -tp $2; }\nf a/b 2 &\nf c/d 1 &\nwait",
            [("a/b", {"tensor-parallel-size": 2}), ("c/d", {"tensor-parallel-size": 1})],
        ),
        ("function f { vllm serve a/b --max-num-seqs 4; }\nf", [("a/b", {"max-num-seqs": 4})]),
        ("f() { f; vllm serve a/b; }\nf", [("a/b", {})]),
    ],
)
def test_a_function_is_its_body_with_the_words_of_the_call(text: str, expected: list[tuple[str, Any]]) -> None:
    found = read(text).plans
    assert [(one.model, values(one)) for one in found][: len(expected)] == expected


def test_an_element_of_an_array_whose_index_is_unknown_is_asked_for() -> None:
    launch = read("#!/bin/bash\n#SBATCH --array=0-1\nM=(a/b c/d)\nvllm serve ${M[$SLURM_ARRAY_TASK_ID]}")
    assert [one.model for one in launch.plans] == [None]
    assert any("SLURM_ARRAY_TASK_ID" in need for need in launch.needs)


@pytest.mark.parametrize(
    "wrapper",
    [
        "infisical run --env=prod --",
        "doppler run -p x --",
        "op run --",
        "direnv exec .",
        "aws-vault exec me --",
        "gosu me",
    ],
)
def test_what_hands_out_secrets_is_looked_through(wrapper: str) -> None:
    assert plan(f"{wrapper} vllm serve a/b").model == "a/b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "koboldcpp -m m.gguf -fa -c 100000 -b 1024 -ngl 99 --moecpu 10 --quantkv 1 --tensor_split 3 1 --nommap",
            "--variant koboldcpp --flash-attn on --ctx-size 100000 --batch-size 1024 --ubatch-size 1024 --n-gpu-layers"
            " 99 --n-cpu-moe 10 --cache-type-k q8_0 --cache-type-v q8_0 --tensor-split 3,1 --no-mmap",
        ),
        (
            "koboldcpp --model m.gguf --gpulayers -1 --usemlock",
            "--variant koboldcpp --n-gpu-layers auto --mlock",
        ),
        (
            "lms load m --gpu max --context-length 16384 --parallel 2",
            "--variant lm-studio --n-gpu-layers all --ctx-size 16384 --parallel 2",
        ),
        ("lms load m --gpu off", "--variant lm-studio --n-gpu-layers 0"),
    ],
)
def test_programs_that_run_llama_cpp_are_planned_by_its_options(text: str, expected: str) -> None:
    from planner.launches.words import serve_words

    words = serve_words(read(text).plans[0], {})
    assert " ".join(words[words.index("llama.cpp") + 1 :]) == expected


def test_koboldcpps_saved_settings_are_no_config_of_vllm() -> None:
    saved = {"model": "m.gguf", "contextsize": 32768, "gpulayers": -1, "flashattention": True, "quantkv": 2,
             "tensor_split": None, "usecublas": ["normal"], "nommap": False, "sdmodel": "x"}  # fmt: skip
    launch = read(json.dumps(saved), "my.kcpps")
    [found] = launch.plans
    assert (launch.form, found.tool, found.variant, found.model) == (
        "koboldcpp-settings", "llama.cpp", "koboldcpp", "m.gguf"
    )  # fmt: skip
    assert values(found) == {"contextsize": 32768, "gpulayers": -1, "flashattention": True, "quantkv": 2}
