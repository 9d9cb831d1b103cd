"""Hostile text ends in one clear error, quickly, and in little memory; nothing is ever raised."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.launches.reading import read_launch
from planner.report.launch import launch_json, launch_table

MIB = 1 << 20
HOSTILE = {
    "alias bomb in a manifest": (
        "x.yaml",
        "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(12))
        + "apiVersion: v1\nkind: Pod\n",
    ),
    "alias of itself": ("x.yaml", "model: &m [*m]\nmax-model-len: 1\n"),
    "merge bomb": (
        "x.yaml",
        "a: &a {k: 1}\n" + "".join(f"b{i}: &b{i}\n  <<: [{','.join(['*a'] * 500)}]\n" for i in range(500)),
    ),
    "deep flow": ("x.yaml", "model: " + "[" * 100_000),
    "deep block": ("x.yaml", "model:\n" + "".join(" " * i + "- \n" for i in range(1, 300))),
    "deep JSON": ("x.json", '{"zero_optimization": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    "deep Python": ("x.py", "from vllm import LLM\nLLM(" + "(" * 50_000 + ")" * 50_000 + ")"),
    "long Python sum": (
        "x.py",
        "from vllm import LLM\nX = " + "+".join(["1"] * 20_000) + "\nLLM('a/b', max_model_len=X)",
    ),
    "power": ("x.py", "from vllm import LLM\nX = 9**9**9**9\nLLM('a/b', max_model_len=X, max_num_seqs=9**64)"),
    "repeated text": ("x.py", "from vllm import LLM\nX = 'a'*10**9\nLLM(X)"),
    "endless continuation": ("x.sh", "vllm serve a/b \\\n" * 50_000),
    "endless line": ("x.sh", "vllm serve a/b " + "x" * 3_000_000),
    "NULs": ("x.sh", "vllm serve a/b\0 --max-model-len 12\0" * 1000),
    "brackets in shell": ("x.sh", "vllm serve $(" * 20_000),
    "expansions in shell": ("x.sh", "A=${" * 20_000 + "\nvllm serve a/b"),
    "growing variable": ("x.sh", "A=aaaaaaaaaa\n" + "A=$A$A$A$A\n" * 60 + "vllm serve $A"),
    "growing array": ("x.sh", "A=(a a a a)\n" + 'A=("${A[@]}" "${A[@]}" "${A[@]}")\n' * 40 + 'vllm serve "${A[@]}"'),
    "shells in shells": ("x.sh", "bash -c " + "'bash -c " * 500 + "vllm serve a/b"),
    "script of itself": ("x.sh", "bash x.sh\nvllm serve a/b\n"),
    "macros of themselves": (
        "x.yaml",
        "macros:\n  a: '${b} ${b}'\n  b: '${a} ${a}'\nmodels:\n  m:\n    cmd: '${a} llama-server -m x.gguf'\n",
    ),
    "compose default of defaults": (
        "x.yml",
        "services:\n  a:\n    image: x\n    command: '" + "${A:-" * 3000 + "}" * 3000 + "'\n",
    ),
    "many documents": ("x.yaml", "---\nmodel: a/b\nmax-model-len: 1\n" * 3000),
    "numbers": ("x.yaml", "model: a/b\nmax-model-len: 99999999999999999999999999\ngpu-memory-utilization: 1e999\n"),
    "too large": ("x.sh", "# x\n" * (2 * MIB)),
    "backtracking": ("x.sh", "docker run " + "-" * 50_000 + " vllm/vllm-openai\n" + "${" + "A" * 50_000),
    "regular expressions": ("x.yaml", "services:\n  a:\n    image: b\n    command: '" + "$" * 100_000 + "'\n"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_ends_soon_and_small(name: str) -> None:
    file, text = HOSTILE[name]
    tracemalloc.start()
    start = time.perf_counter()
    launch = read_launch(text, name=file)
    took = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 8, took  # tracing makes Python about four times slower: 2 s without it
    assert peak < 200 * MIB
    assert len(json.dumps(launch_json(launch))) + len(launch_table(launch)) < 2 * MIB


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("x.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n\tname: x\n", ("line 4", "tab")),
        ("x.yml", "services:\n  a:\n    image: vllm/vllm-openai\n    image: x\n", ("line 4", "duplicate")),
        ("x.yaml", "model: !!python/name:os.system x\nmax-model-len: 1\n", ("line 1", "tag")),
        ("x.yaml", "model: !vault abc\nmax-model-len: 1\n", ("line 1", "tag")),
        ("x.json", '{"zero_optimization": {"stage": 3,}}', ("line 1", "json")),
        ("x.ipynb", '{"cells": [\n{"cell_type": "code"\n', ("line", "json")),
        ("x.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n", ("nothing here starts",)),
        ("x.sh", "vllm serve a/b --model c/d\n", ("line 1", "two models")),
        ("x.sh", "vllm serve 'a/b\n", ("line 1", "quote")),
        ("x.sh", "vllm serve a/b --max-model-len lots\n", ("line 1", "--max-model-len")),
        ("x.py", "from vllm import LLM\nLLM('a/b'\n", ("line", "not python")),
        ("x.txt", "Hello, world.\n", ("nothing here starts",)),
        ("", "", ("nothing here starts",)),
    ],
)
def test_broken_text_says_what_and_where(file: str, text: str, words: tuple[str, ...]) -> None:
    launch = read_launch(text, name=file)
    assert launch.outcome == "error" and launch.plans == []
    for word in words:
        assert word in (launch.error or "").lower()


SECRETS = ("hf_abcdefghijklmnop", "sk-abcdefghijklmnop", "ghp_abcdefghijklmnop", "AKIAABCDEFGHIJKL", "hunter2hunter2")


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "text",
    [
        "export X_TOKEN={0}\nvllm serve a/b --api-key {0} --max-model-len 12\n",
        "docker run -e DB_PASSWORD={0} --gpus all vllm/vllm-openai:v0.9.2 --model a/b --api-key={0}\n",
        "services:\n  a:\n    image: vllm/vllm-openai:v0.9.2\n    command: --model a/b --api-key {0}\n   "
        " environment: [API_KEY={0}]\n",
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec:\n  containers:\n  - name: v\n    image:"
        " vllm/vllm-openai:v0.9.2\n"
        "    env: [{{name: MY_SECRET, value: {0}}}]\n    args: [--model, a/b, --api-key, $(MY_SECRET)]\n",
        "[Service]\nEnvironment=AUTH={0}\nExecStart=/usr/bin/vllm serve a/b --api-key ${{AUTH}}\n",
        "model: a/b\nmax-model-len: 4096\napi-key: {0}\n",
        "import os\nfrom vllm import LLM\nos.environ['HF_TOKEN'] = '{0}'\nLLM('a/b', max_model_len=1,"
        " hf_token='{0}')\n",
        'vllm serve a/b --max-model-len 12 --hf-token {0} --kv-transfer-config \'{{"k": "{0}"}}\'\n',
    ],
)
def test_secrets_never_leave_the_reader(text: str, secret: str) -> None:
    launch = read_launch(
        text.format(secret), name="x.yaml" if text[0] in "sam" else "x.py" if text[:6] == "import" else "x"
    )
    assert launch.plans
    assert secret not in json.dumps(launch_json(launch)) + launch_table(launch) + repr(launch)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("vlmserve -=\n'\"\\$(){}[]:&*#|;<>!`~%@,.x1\t"), max_size=400))
def test_any_text_is_read_or_refused(text: str) -> None:
    for name in ("x.sh", "x.yaml", "x.py", "x.md", ""):
        read_launch("vllm serve a/b " + text, name=name)
        read_launch("services:\n a:\n  image: vllm/vllm-openai\n  command: " + text, name=name)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("x.sh", "vllm serve a/b\n# the end"),
        ("x.sh", "vllm serve a/b\n   \n"),
        ("x.sh", "# nothing\n\n"),
        ("x.py", "from vllm import LLM\nif 1is 1: pass\nLLM('a/b')\n"),
    ],
)
def test_ends_and_oddities_are_read(file: str, text: str) -> None:
    assert len(read_launch(text, name=file).plans) == text.count("a/b")


def test_unknown_parts_of_a_dictionary_are_asked_for_and_printed_nowhere() -> None:
    text = "from vllm import LLM\nLLM('a/b', limit_mm_per_prompt={'image': f()}, **{'max_num_seqs': g()})\n"
    launch = read_launch(text, name="x.py")
    assert [need.split(" ")[0] for need in launch.needs] == ["limit_mm_per_prompt", "max_num_seqs"]
    json.dumps(launch_json(launch))
