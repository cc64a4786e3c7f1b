"""Random programs for gradients.py: three to five operations with shared operands and views."""

import math
import random

import torch

from gradient_calls import call as torch_call
from gradient_format import SMALL, Program, Run, Unsound, line, x

COUNT = 240

OF_ONE = """neg tanh sigmoid exp sin cos square relu silu gelu softplus erf atan abs mish
log_sigmoid""".split()
WITH_NUMBER = "add sub mul div maximum".split() + ["number less"]
OF_TWO = "add sub mul mul maximum minimum logaddexp".split()
IN_PLACE_ONE = "tanh_ sigmoid_ exp_ sin_ square_ relu_ neg_".split()
IN_PLACE_TWO = "add_ sub_ mul_ copy_ maximum_".split()

# The most elements of a result, and the largest of them.
ELEMENTS, LARGEST = 40, 30


class Draft:
    """A program that grows. It knows the values, so an operation that cannot be is drawn again."""

    def __init__(self, name):
        self.random = random.Random(name)
        shape = [self.random.choice([2, 3]), self.random.choice([3, 4])]
        second = self.random.choice([shape, shape, shape[1:], [shape[0], 1], []])
        third = self.random.choice([None, None, shape[1:], [1, shape[1]]])
        shapes = [shape, second] + ([third] if third else [])
        self.operands = [x(*shape, among=SMALL).seen(self.view()) for shape in shapes]
        start = Run(Program(self.operands, [["copy", [0]]], name=name), torch.float64)
        self.tensors = start.seen
        self.steps = []
        self.name = name

    def view(self):
        views = "transposed strided flipped expanded narrowed selected diagonal".split()
        return self.random.choice(["whole"] * len(views) + views)

    def pick(self):
        """The newest tensor more often than not, or any."""
        last = len(self.tensors) - 1
        return last if self.random.random() < 0.6 else self.random.randint(0, last)

    def add(self, name, numbers, *options):
        made = torch_call(name, [self.tensors[at] for at in numbers], options)
        size = made.detach().abs()
        if not 0 < made.numel() <= ELEMENTS or not size.max() < LARGEST:
            raise ValueError("too large")
        self.steps.append([name, numbers, *options])
        self.tensors.append(made)
        return len(self.tensors) - 1

    def operation(self):
        kinds = [self.one, self.two, self.two, self.shape, self.axis, self.join, self.write]
        self.random.choice(kinds)()

    def one(self):
        if self.random.random() < 0.3:
            name = self.random.choice(WITH_NUMBER)
            self.add(name, [self.pick()], self.random.choice([0.5, -0.75, 1.5, 2]))
        else:
            self.add(self.random.choice(OF_ONE), [self.pick()])

    def two(self):
        self.add(self.random.choice(OF_TWO), self.random.sample([self.pick(), self.any()], 2))

    def any(self):
        return self.random.randrange(len(self.tensors))

    def shape(self):
        self.seen(self.pick())

    def seen(self, at):
        """A view of a tensor."""
        shape = list(self.tensors[at].shape)
        axis = self.random.randrange(max(len(shape), 1))
        size = shape[axis] if shape else 1
        start = self.random.randrange(size)
        return self.add(*self.random.choice([
            ("transpose", [at], 0, -1),
            ("flip", [at], [axis]),
            ("narrow", [at], axis, start, size - start),
            ("slice", [at], axis, start, None, 2),
            ("select", [at], axis, start),
            ("unsqueeze", [at], axis),
            ("reshape", [at], [math.prod(shape)]),
            ("broadcast_to", [at], [2, *shape]),
            ("diagonal", [at], 0, 0, 1),
            ("unfold", [at], axis, 2, 1),
        ]))  # fmt: skip

    def axis(self):
        at = self.pick()
        axis = self.random.randrange(max(self.tensors[at].dim(), 1))
        self.add(*self.random.choice([
            ("softmax", [at], axis),
            ("log_softmax", [at], axis),
            ("cumsum", [at], axis),
            ("sort", [at], axis, False),
            ("sum", [at], [axis]),
            ("sum_keepdim", [at], [axis]),
            ("mean", [at], [axis]),
            ("max_keepdim", [at], [axis]),
            ("logsumexp", [at], [axis]),
            ("var_keepdim", [at], 0, [axis]),
            ("layer_norm", [at], list(self.tensors[at].shape[-1:]), 0.0625),
        ]))  # fmt: skip

    def join(self):
        at, other = self.pick(), self.any()
        kind = self.random.choice(["matmul", "concat", "stack", "square"])
        if kind == "matmul":
            self.add("matmul", [at, self.add("transpose", [other], 0, -1)])
        elif kind == "square":
            self.add("matmul", [self.add("transpose", [at], 0, -1), at])
        else:
            self.add(kind, [at, other], self.random.choice([0, -1]))

    def write(self):
        """A copy is written in place, whole or through a view."""
        copy = self.add("copy", [self.pick()])
        target = copy if self.random.random() < 0.4 else self.seen(copy)
        if self.steps[-1][0] in ["broadcast_to", "unfold", "reshape"]:
            raise ValueError("not to be written")
        # What was computed before the write has the old elements.
        before = self.random.random() < 0.3
        if before:
            old = self.add(self.random.choice(["add", "sub"]), [copy, self.random.randrange(copy)])
        if self.random.random() < 0.4:
            self.add(self.random.choice(IN_PLACE_ONE), [target])
        else:
            source = self.random.randrange(copy)
            self.add(self.random.choice(IN_PLACE_TWO), [target, source])
        if before:
            self.add(self.random.choice(OF_TWO), [old, copy])
        elif self.random.random() < 0.5 and target != copy:
            # What comes next may see the whole copy.
            self.add(self.random.choice(OF_ONE), [copy])

    def drawn(self):
        for _ in range(self.random.randint(3, 5)):
            self.attempt()
        return Program(self.operands, self.steps, name=self.name)

    def attempt(self):
        """One more operation. What a failed one has added goes again."""
        for _ in range(100):
            steps, tensors = len(self.steps), len(self.tensors)
            try:
                return self.operation()
            except (RuntimeError, ValueError, IndexError):
                del self.steps[steps:], self.tensors[tensors:]
        raise Unsound("nothing fits")


def is_used(program):
    """Do all steps and operands contribute to the result?"""
    needed, count = {program.result}, len(program.operands)
    for at in range(count + len(program.steps) - 1, count - 1, -1):
        name, numbers, *_ = program.steps[at - count]
        # A write contributes if what it writes to does.
        if at in needed or name.endswith("_") and numbers[0] in needed:
            needed |= {at, *numbers}
    return needed == set(range(count + len(program.steps)))


def programs():
    """Programs that use all they have, and whose gradients f32 can give."""
    for number in range(COUNT):
        for attempt in range(1000):
            try:
                program = Draft(f"program {number}, {attempt}").drawn()
                if is_used(program) and line("", program):
                    yield program
                    break
            except Unsound:
                continue
