"""Operands, views and programs of gradients.py, and how a program becomes a line of JSON."""

import dataclasses
import json
import math
import random
import zlib

import torch

from gradient_calls import call as torch_call

# Elements are whole numbers of sixteenths, which are short and exact in every type of floats.
UNIT = 16

# What the elements of an operand are drawn from, in sixteenths. Many functions have a kink at 0, so
# only the steps have it: they make equal elements.
ANY = [*range(-40, 0), *range(1, 41)]
AWAY = [*range(-40, -8), *range(9, 41)]
POSITIVE = [*range(4, 57)]
SHARES = [*range(1, 16)]
INNER = [*range(-14, 0), *range(1, 15)]
SMALL = [*range(-24, 0), *range(1, 25)]
ABOVE_ONE = [*range(18, 57)]
ABOVE_MINUS_ONE = [*range(-12, 0), *range(1, 41)]
STEPS = [-16, 0, 8, 16]

# Views by name. Each takes the shape that the operation is to see. It gives the parameter's shape
# and the step that leads from it, or None for a shape without such a view.
VIEWS = {
    "whole": lambda s: (s, []),
    "transposed": lambda s: ([*s[-1:], *s[1:-1], *s[:1]], ["transpose", 0, -1]) if s[1:] else None,
    "strided": lambda s: ([*s[:-1], 2 * s[-1]], ["slice", -1, 1, None, 2]) if s else None,
    "flipped": lambda s: (s, ["flip", list(range(len(s)))]) if s else None,
    "expanded": lambda s: ([1, *s[1:]], ["broadcast_to", s]) if s and s[0] > 1 else None,
    "narrowed": lambda s: ([s[0] + 2, *s[1:]], ["narrow", 0, 1, s[0]]) if s else None,
    "selected": lambda s: ([*s[:1], 2, *s[1:]], ["select", min(len(s), 1), 1]),
    "unfolded": lambda s: (
        ([*s[:-2], sum(s[-2:]) - 1], ["unfold", -1, s[-1], 1]) if s[1:] and min(s) else None
    ),
    "diagonal": lambda s: ([*s, s[-1]], ["diagonal", 0, -2, -1]) if s else None,
}
# Those through which an element has one place, so that it can have a given value.
INJECTIVE = ["whole", "transposed", "strided", "flipped", "narrowed", "selected", "diagonal"]


@dataclasses.dataclass(frozen=True)
class Operand:
    """What an operation sees: its shape, what its elements are, and the view that leads there."""

    shape: tuple
    among: tuple = ()
    values: tuple = None
    kind: str = "x"
    view: str = "whole"
    is_constant: bool = False

    def seen(self, view):
        """The same through a view, if its shape has one."""
        may = VIEWS[view](list(self.shape)) and (self.values is None or view in INJECTIVE)
        return dataclasses.replace(self, view=view) if may else self

    def constant(self):
        return dataclasses.replace(self, is_constant=True)

    def stored(self, name):
        """The parameter as it is stored. `name` decides the numbers."""
        shape, step = VIEWS[self.view](list(self.shape))
        generator = random.Random(name)
        count = math.prod(shape)
        if self.values is not None:
            places = torch.arange(count).reshape(shape)
            places = torch_call(step[0], [places], step[1:]) if step else places
            elements = [0] * count
            for place, value in zip(places.flatten().tolist(), self.values):
                elements[place] = value
        elif count <= len(self.among):
            elements = generator.sample(self.among, count)
        else:
            elements = generator.choices(self.among, k=count)
        elements = [number(element) for element in elements]
        stored = {"shape": list(shape), self.kind: elements}
        if step:
            stored["view"] = step
        if self.is_constant or self.kind != "x":
            stored["constant"] = True
        return stored


def x(*shape, among=ANY):
    """Floats."""
    return Operand(shape, tuple(among))


def exact(values):
    """These floats."""
    flat = torch.tensor(values, dtype=torch.float64)
    return Operand(tuple(flat.shape), values=tuple((flat * UNIT).flatten().tolist()))


def ints(values):
    """These indices."""
    flat = torch.tensor(values)
    return Operand(tuple(flat.shape), values=tuple(flat.flatten().tolist()), kind="i")


def below(limit, *shape):
    """Indices below a limit."""
    return Operand(shape, tuple(range(limit)), kind="i")


def mask(*shape):
    """Bools, of which about half are true."""
    return Operand(shape, (0, 1), kind="b")


@dataclasses.dataclass
class Program:
    """Operands, and steps that call operations on them and on results of earlier steps.

    A step is a name, the numbers of its tensors, and options. The operands count first, then the
    results of the steps.
    """

    operands: list
    steps: list
    result: int = -1
    name: str = ""

    def __post_init__(self):
        self.result %= len(self.operands) + len(self.steps)
        seen = [[list(operand.shape), operand.view, operand.kind] for operand in self.operands]
        self.name = self.name or json.dumps([self.steps, seen])


def call(name, operands, *options, ways=3):
    """One step on these operands as they are, and in other ways, through views."""
    views = [view for view in VIEWS if view != "whole"]
    start = zlib.crc32(json.dumps([name, options]).encode())
    for way in range(ways):
        seen = operands
        if way > 0:
            turn = lambda at: views[(start + way + 3 * at) % len(views)]
            seen = [operand.seen(turn(at)) for at, operand in enumerate(operands)]
        yield Program(seen, [[name, list(range(len(seen))), *options]])


def write(name, operands, *options, targets=("whole", "strided", "transposed")):
    """A step that writes through its first operand: through a view of a copy of a parameter."""
    count = len(operands)
    for view in targets:
        first = operands[0].seen(view)
        shape, step = VIEWS[first.view](list(first.shape))
        whole = dataclasses.replace(first, shape=tuple(shape), view="whole")
        steps = [["copy", [0]]]
        if step:
            steps.append([step[0], [count], *step[1:]])
        at = count + len(steps) - 1
        steps.append([name, [at, *range(1, count)], *options])
        yield Program([whole, *operands[1:]], steps, result=count)


def number(value):
    """A short number, or its name if JSON does not have it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return int(value) if value == int(value) else value


def rounded(value):
    """Six digits are enough for the tolerance of f32."""
    return number(float(f"{value:.6g}")) if math.isfinite(value) else str(value)


class Run:
    """A program's run in one of PyTorch's types."""

    def __init__(self, program, dtype, stored=None):
        self.stored = stored or [
            operand.stored(f"{program.name}, operand {at}")
            for at, operand in enumerate(program.operands)
        ]
        self.leaves = [self.leaf(one, dtype) for one in self.stored]
        tensors = []
        for one, leaf in zip(self.stored, self.leaves):
            view = one.get("view")
            tensors.append(torch_call(view[0], [leaf], view[1:]) if view else leaf)
        self.seen = list(tensors)
        for name, numbers, *options in program.steps:
            tensors.append(torch_call(name, [tensors[at] for at in numbers], options))
        self.result = tensors[program.result]

    @staticmethod
    def leaf(stored, dtype):
        shape = stored["shape"]
        if "x" in stored:
            values = torch.tensor([float(value) for value in stored["x"]], dtype=dtype)
            leaf = (values / UNIT).reshape(shape)
            return leaf if stored.get("constant") else leaf.requires_grad_()
        of = {"i": torch.int32, "b": torch.bool}
        [kind] = set(stored) & set(of)
        return torch.tensor(stored[kind], dtype=of[kind]).reshape(shape)

    def gradients(self, seed):
        leaves = [leaf for leaf in self.leaves if leaf.requires_grad]
        seed = torch.tensor(seed, dtype=self.result.dtype).reshape(self.result.shape) / UNIT
        found = iter(torch.autograd.grad(self.result, leaves, seed, allow_unused=True))
        return [
            None if not leaf.requires_grad else self.flat(next(found), leaf)
            for leaf in self.leaves
        ]

    @staticmethod
    def flat(gradient, leaf):
        gradient = torch.zeros_like(leaf) if gradient is None else gradient
        return gradient.flatten().tolist()


def far(a, b):
    """Is `a` further from `b` than half of what the test allows?"""
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) > (1e-5 + 2e-4 * abs(b)) / 2
    return str(a) != str(b)


class Unsound(Exception):
    """f32 cannot give the gradients of f64."""


def line(group, program):
    """A program with its gradients in f64, which f32 must nearly give too."""
    run = Run(program, torch.float64)
    size = run.result.numel()
    generator = random.Random(f"{program.name}, seed")
    seed = generator.sample(ANY, size) if size <= len(ANY) else generator.choices(ANY, k=size)
    gradients = run.gradients(seed)
    single = Run(program, torch.float32, run.stored).gradients(seed)
    for exactly, nearly in zip(gradients, single):
        pairs = zip(exactly or [], nearly or [])
        worse = next(((a, b) for a, b in pairs if far(b, a)), None)
        if worse:
            raise Unsound(f"{group}: {program.name}: {worse}")
    made = {"group": group, "operands": run.stored, "steps": program.steps}
    if program.result != len(program.operands) + len(program.steps) - 1:
        made["result"] = program.result
    made |= {
        "shape": list(run.result.shape),
        "seed": seed,
        "gradients": [values and [rounded(value) for value in values] for values in gradients],
    }
    return json.dumps(made, separators=(",", ":"))
