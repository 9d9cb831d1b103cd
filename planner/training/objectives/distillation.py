"""The generalised Jensen-Shannon loss of distillation on the tape: student and teacher logits of every token.

Source: trl 1.10 experimental/gkd/gkd_trainer.py compute_loss, generalized_jsd_loss (beta 0.5, log_target); torch 2.13
aten native/Loss.cpp kl_div: exp(target) * (target - input), each a tensor; derivatives.yaml logsumexp.
"""

from __future__ import annotations

from planner.training.tape import ops
from planner.training.tape.tape import Tape, Value, detached

FP32 = 4


def distillation_loss(tape: Tape, logits: Value) -> Value:
    """The loss of a student's logits; the teacher's are as large, and alive until it is known."""
    width = FP32 if tape.autocast else logits.width
    given = tape.new(logits.numel, logits.width)  # the teacher's
    student = _log_softmax(tape, ops.scale(tape, logits), width)
    teacher = _log_softmax(tape, tape.like(given), width)
    mixture = _mixture(tape, student, teacher)
    to_teacher = _divergence(tape, mixture, teacher)
    to_student = _divergence(tape, mixture, student)
    del mixture, student, teacher
    total = ops.add(tape, ops.scale(tape, to_teacher), ops.scale(tape, to_student))
    del to_teacher, to_student, given
    chosen = ops.copy(tape, total)  # the tokens that have labels
    del total
    whole = ops.shape(chosen)
    return tape.record(tape.new(1, width), (chosen,), lambda grad: (tape.like(whole),))


def _log_softmax(tape: Tape, x: Value, width: int) -> Value:
    return ops.keep_result(tape, ops.cast(tape, x, width))


def _mixture(tape: Tape, student: Value, teacher: Value) -> Value:
    """`logsumexp(stack([student + log(1 - beta), teacher + log(beta)]), 0)`: keeps both sides and its result."""
    stacked = ops.cat(tape, (ops.shift(tape, student), ops.shift(tape, teacher)))
    less = tape.like(stacked)  # exp(x - max)
    out = tape.new(student.numel, student.width)
    del less
    tape.saves()
    saved = [detached(stacked), detached(out)]

    def backward(grad: Value) -> list[Value | None]:
        weights = tape.like(saved[0])
        result = tape.like(saved[0])
        del weights
        return [result]

    return tape.record(out, (stacked,), backward)


def _divergence(tape: Tape, given: Value, target: Value) -> Value:
    """`kl_div(given, target, log_target=True)` without a reduction."""
    less = ops.add(tape, target, ops.scale(tape, given))
    return ops.mul(tape, ops.keep_result(tape, target), less)
