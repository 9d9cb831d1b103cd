"""Throw configs and command lines at the planner and list what it must never do: tracebacks, hangs, absurd plans.

    python benchmarks/fuzz.py --configs 100000 --lines 20000 --seed 1 > fuzz.md

Configs are bundled ones with values changed: numbers to others near and far, types to others, keys dropped, added and
nested. Lines are the declared options of every engine and of `train` with values that mostly mean something. Each is
planned in this process. A fault is an error that is no `PlannerError`, more than `SLOWEST` seconds, a plan whose parts
are negative, out of order or do not add up, "fits" beyond the card, or a control character in what is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import random
import shlex
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from planner.cli import run
from planner.contract.card import Card
from planner.contract.engine import engine_names, find_engine
from planner.contract.inputs import Input, inputs_of
from planner.contract.workload import Workload
from planner.errors import PlannerError
from planner.hardware.gpus import find_gpu
from planner.model.from_config import model_from_config
from planner.model.names.bundled import bundled_file, bundled_names
from planner.training.recipe import Recipe
from planner.version import __version__

SLOWEST: Final = 5.0
GPUS: Final = ("H100", "4090", "T4", "A100-80GB", "MI300X", "B200", "L4", "3090")
ODD: Final = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 63, 4097, 1 << 20, 1 << 40, 10**25, 0.5, -0.1, float("nan")),
    *("", "x", "auto", "bfloat16", "\x1b[31m", "🙂", "../../etc/passwd", [], [1], ["x"], {}, {"a": 1}, [[[]]]),
)
CONTROLS: Final = frozenset(map(chr, [*range(9), *range(11, 32), 127, *range(128, 160)]))


@dataclass
class Tally:
    """What happened, and the first examples of each fault."""

    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    slowest: float = 0.0

    def fault(self, kind: str, example: str) -> None:
        self.faults[kind] += 1
        self.examples.setdefault(kind, example[:400])

    def ask(self, question: Callable[[], str], example: str) -> None:
        """Ask, and count how it ended: what `question` returns, "refused", or a fault."""
        start = time.process_time()
        try:
            self.ends[question()] += 1
        except PlannerError as error:
            self.ends["refused"] += 1
            if CONTROLS & set(str(error).replace("\n", "")):
                self.fault("control character in an error", example)
        except AssertionError as error:
            self.fault(f"absurd: {error}", example)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.fault(f"{type(error).__name__} at {place.filename.rpartition('planner/')[2]}:{place.lineno}", example)
        took = time.process_time() - start
        self.slowest = max(self.slowest, took)
        if took > SLOWEST:
            self.fault("slow", f"{took:.1f} s: {example}")


def changed(config: dict[str, Any], chance: random.Random, others: list[str]) -> dict[str, Any]:
    """A config with one to four values changed."""
    config = copy.deepcopy(config)
    for _ in range(chance.randint(1, 4)):
        place = config
        while nested := [key for key, value in place.items() if isinstance(value, dict) and value]:
            if chance.random() < 0.5:
                break
            place = place[chance.choice(nested)]
        keys = list(place)
        match chance.randint(0, 5):
            case 0 if keys:
                place.pop(chance.choice(keys))
            case 1:
                place[chance.choice(others)] = copy.deepcopy(chance.choice(ODD))
            case 2 | 3 if numbers := [key for key in keys if type(place[key]) in (int, float)]:
                key = chance.choice(numbers)
                factor = chance.choice((0.5, 2, 3, 1.5, 8, 0.25))
                place[key] = type(place[key])(place[key] * factor) if chance.random() < 0.7 else place[key] + 1
            case _ if keys:
                place[chance.choice(keys)] = copy.deepcopy(chance.choice(ODD))
    return config


def check_plan(plan: Any) -> str:
    """The verdict of a plan that is none of the absurd things.

    Raises:
        AssertionError: it is one; says which.
    """
    for device in plan.devices:
        for part in device.components:
            assert part.low <= part.best <= part.high, f"{part.name} out of order"
            assert part.best >= 0, f"{part.name} below nothing"
            assert isinstance(part.best, int), f"{part.name} is no whole number"
        if plan.verdict == "fits":
            assert device.free_bytes >= 0, "fits beyond the card"
    return str(plan.verdict)


def fuzz_configs(count: int, chance: random.Random) -> Tally:
    """Changed configs, planned with each engine in turn."""
    tally, names = Tally(), list(bundled_names())
    configs = [json.loads(bundled_file(name).read_text("utf-8")) for name in chance.sample(names, 200)]
    keys = sorted({key for config in configs for key in config})
    engines = [find_engine(name) for name in engine_names()]
    for number in range(count):
        config = changed(chance.choice(configs), chance, keys)
        engine, gpu = engines[number % len(engines)], find_gpu(chance.choice(GPUS))

        def question(config: dict[str, Any] = config, engine: Any = engine, gpu: Any = gpu) -> str:
            model = model_from_config(config, name="fuzzed", origin="fuzzed")
            return check_plan(engine.plan(model, engine.Deployment(gpu=gpu)))

        tally.ask(question, f"{engine.name} on {gpu.id}: {json.dumps(config)}")
    return tally


def value_of(one: Input, chance: random.Random) -> str:
    """A value that mostly means something to this input."""
    if chance.random() < 0.05:
        return str(chance.choice(ODD))
    if one.option.choices:
        return str(chance.choice(one.option.choices))
    if int in one.kinds:
        return str(chance.choice((0, 1, 2, 4, 8, 16, 128, 512, 2048, 8192, 32768)))
    if float in one.kinds:
        return str(chance.choice((0.1, 0.5, 0.8, 0.9, 0.95, 1, 2)))
    return chance.choice(("auto", "fp8", "awq", "Q4_K_M", "bfloat16", "q8_0", "4GiB", "1024", '{"image": 2}', "none"))


def words_of(records: tuple[type, ...], chance: random.Random) -> list[str]:
    """Up to five of the inputs of these records."""
    inputs = [
        one for record in records for one in inputs_of(record) if one.spellings and one.name not in ("gpu", "config")
    ]
    words: list[str] = []
    for one in chance.sample(inputs, chance.randint(0, min(5, len(inputs)))):
        words.append(chance.choice(one.spellings))
        if not one.is_switch:
            words.append(value_of(one, chance))
    return words


def lines(count: int, chance: random.Random) -> Iterator[list[str]]:
    """Command lines of every engine and of train."""
    names = chance.sample(list(bundled_names()), 60)
    for number in range(count):
        gpu = ["--gpu", chance.choice(GPUS)]
        if number % 3 == 0:
            yield ["train", chance.choice(names), *gpu, "--no-largest", *words_of((Recipe,), chance)]
        else:
            engine = chance.choice(engine_names())
            kinds = (find_engine(engine).Deployment, Workload, Card)
            yield ["serve", chance.choice(names), "--engine", engine, *gpu, *words_of(kinds, chance)]


def fuzz_lines(count: int, chance: random.Random) -> Tally:
    """Command lines, run as the command runs them; what is printed is looked at too."""
    tally = Tally()
    for words in lines(count, chance):

        def question(words: list[str] = words) -> str:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                status = run(words[0], words)
            text = out.getvalue()
            assert status in (0, 1, 2), f"exit status {status}"
            assert not CONTROLS & set(text.replace("\n", "")), "control character printed"
            assert text, "nothing printed"
            return f"exit {status}"

        tally.ask(question, shlex.join(words))
    return tally


def report(title: str, tally: Tally) -> Iterator[str]:
    total = sum(tally.ends.values()) + sum(tally.faults.values())
    yield f"## {title}: {total:,}\n"
    yield ", ".join(f"{name} {count:,}" for name, count in tally.ends.most_common()) + "."
    yield f"Slowest: {tally.slowest:.1f} s of processor time. Faults: {sum(tally.faults.values())}.\n"
    for kind, count in tally.faults.most_common():
        yield f"- {count} x {kind}: `{tally.examples[kind]}`"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=int, default=1000)
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    print(f"# Fuzzing vram-planner {__version__}\n\n{time.strftime('%Y-%m-%d')}, seed {asked.seed}.\n")
    faults = 0
    for title, tally in (
        ("Changed configs", fuzz_configs(asked.configs, chance)),
        ("Command lines", fuzz_lines(asked.lines, chance)),
    ):
        print("\n".join(report(title, tally)), flush=True)
        faults += sum(tally.faults.values())
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
