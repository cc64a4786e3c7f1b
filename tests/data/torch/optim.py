"""optim.py: computes with PyTorch the values for tests/optim/values.rs.

It writes optim.jsonl in this folder, a case a line: an optimizer with its options, perhaps a norm
to clip to, and the parameters after 10 steps in f32. The parameters at the start and the gradients
of each step are formulas, `start` and `gradient` below, which the test has too. After 5 steps the
learning rate is halved. The second parameter has no gradient in every third step.

The file is committed, so only this script needs PyTorch: pip install torch==2.5.1 numpy.
"""

import json
import math
import pathlib

import torch

SHAPES = [(5,), (2, 3), (), (17,)]
STEPS = 10

CASES = [
    ("SGD", {"lr": 0.1}, None),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}, None),
    ("SGD", {"lr": 0.1, "momentum": 0.9}, None),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01}, None),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, None),
    ("AdamW", {}, None),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.1}, None),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.0, "eps": 0.01}, None),
    ("AdamW", {"lr": 0.1, "betas": [0.3, 0.5]}, None),
    ("AdamW", {"lr": 0.1, "betas": [0.0, 0.99]}, None),
    ("SGD", {"lr": 0.1, "momentum": 0.9}, 0.5),
    ("AdamW", {"lr": 0.1}, 1.0),
    ("AdamW", {"lr": 0.1}, 100.0),
]


def start(number, at):
    return ((at * 7 + number * 3) % 11 - 5) / 8


def gradient(step, number, at):
    return ((at * 5 + number * 7 + step * 3) % 13 - 6) / 16 * (1 + step % 3)


def of(shape, element):
    elements = [element(at) for at in range(math.prod(shape))]
    return torch.tensor(elements, dtype=torch.float32).reshape(shape)


def short(x):
    return [float(f"{value:.9g}") for value in x.flatten().tolist()]


def main():
    lines = []
    for algorithm, options, max_norm in CASES:
        parameters = [
            torch.nn.Parameter(of(shape, lambda at: start(number, at)))
            for number, shape in enumerate(SHAPES)
        ]
        optimizer = getattr(torch.optim, algorithm)(parameters, **options)
        norms = []
        for step in range(STEPS):
            if step == 5:
                optimizer.param_groups[0]["lr"] *= 0.5
            for number, parameter in enumerate(parameters):
                grad = of(SHAPES[number], lambda at: gradient(step, number, at))
                parameter.grad = None if number == 1 and step % 3 == 1 else grad
            if max_norm is not None:
                norms.append(torch.nn.utils.clip_grad_norm_(parameters, max_norm))
            optimizer.step()
        line = {
            "algorithm": algorithm,
            "options": options,
            "max_norm": max_norm,
            "norms": short(torch.tensor(norms)),
            "results": [short(parameter.data) for parameter in parameters],
        }
        lines.append(json.dumps(line) + "\n")
    pathlib.Path(__file__).with_name("optim.jsonl").write_text("".join(lines))


main()
