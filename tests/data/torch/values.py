"""values.py [GROUP ...]: asks PyTorch for the values that tests/torch.rs compares with.

Each function below is a group. It yields cases: a name, the operands, and PyTorch's results. The
group's cases go to GROUP.jsonl in this folder, one a line. The table of calls in
tests/torch/GROUP.rs has an entry of the same name for each.

The files are committed, so nothing but this script needs PyTorch: pip install torch numpy. A group
whose function did not change gives the same file again.
"""

import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.bool: "bool",
}


def numbers(*shape, seed=0):
    """Floats around 0 that are exact in every type, of which no two are equal."""
    generator = torch.Generator().manual_seed(seed)
    count = math.prod(shape)
    return ((torch.randperm(count, generator=generator) - count // 2) / 8).reshape(shape)


def wholes(*shape, below=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, below, shape, generator=generator, dtype=torch.int32)


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


def shapes():
    x = numbers(2, 3, 4)
    yield "movedim", [x], x.movedim(-1, 0)
    yield "diagonal", [x], x.diagonal(1, 1, 2)
    yield "unfold", [x], x.unfold(-1, 3, 1)
    yield "unflatten", [x], x.unflatten(-1, (2, 2))
    yield "unbind", [x], x.unbind(1)
    yield "reshape_infer", [x], x.reshape(-1, 6)
    yield "flatten_axes", [x], x.flatten(1, -1)
    yield "narrow", [x], x.narrow(2, -3, 2)
    yield "linspace", [], torch.linspace(-1, 2, 7)
    yield "number on the left", [x], 1 - x
    yield "number over", [x], 2 / x
    yield "where, number first", [x > 0, x], torch.where(x > 0, 3.0, x)
    yield "where, number last", [x > 0, x], torch.where(x > 0, x, -0.5)
    yield "where, numbers", [x > 0], torch.where(x > 0, 1.0, 0.0)
    whole = wholes(2, 3, below=6)
    yield "exp of integers", [whole], whole.exp()
    yield "log1p of integers", [whole], whole.log1p()
    yield "sigmoid of bools", [x > 0], (x > 0).sigmoid()
    yield "atan2 of integers", [whole, whole.flip(0)], whole.atan2(whole.flip(0))
    yield "ones_like", [x], torch.ones_like(x)
    yield "full_like", [whole], torch.full_like(whole, -3)


def indexing():
    x = numbers(3, 4, 5)
    i, j = ints([2, 0]), ints([[1], [3]])
    operands, (a, b) = [x, i, j], (i.long(), j.long())
    yield "index, together", operands, x[a, b]
    yield "index, inner axes", operands, x[:, a, b]
    yield "index, apart", operands, x[a, :, b]
    values = numbers(2, 2, 5, seed=1)
    yield "index_put", operands + [values], x.clone().index_put_((a, b), values)
    i, j = ints([1, 1, 0]), ints([2, 2, 0])
    values = numbers(3, 5, seed=2)
    summed = x.clone().index_put_((i.long(), j.long()), values, accumulate=True)
    yield "index_put, accumulated", [x, i, j, values], summed
    mask = wholes(4, 5, below=2) > 0
    yield "masked_select", [x, mask], x.masked_select(mask)
    edges, values = numbers(8).sort().values, numbers(3, 4, seed=3)
    yield "search_sorted", [edges, values], torch.searchsorted(edges, values)
    yield "search_sorted, right", [edges, edges], torch.searchsorted(edges, edges, right=True)


def reductions():
    x = numbers(3, 5)
    yield "max_with_indices", [x], x.max(1)
    yield "min_with_indices", [x], x.min(0)
    number, index = torch.tensor(2.5), torch.tensor(0)
    yield "sum of a number", [number], number.sum(-1)
    yield "softmax of a number", [number], number.softmax(0)
    yield "sort of a number", [number], number.sort(0)
    yield "cumsum of a number", [number], number.cumsum(-1)
    yield "gather of a number", [number, index], number.gather(0, index)


def losses():
    x, share = numbers(4, 5).sigmoid(), numbers(4, 5, seed=1).sigmoid()
    yield "binary_cross_entropy", [x, share], F.binary_cross_entropy(x, share)
    logits, classes = numbers(4, 5), ints([1, 4, -100, 0])
    yield "cross_entropy, ignored", [logits, classes], F.cross_entropy(logits, classes.long())
    weights = torch.tensor([0.5, 2, 1, 0.25, 3])
    operands, target = [logits, classes, weights], classes.long()
    loss = F.cross_entropy(logits, target, weights)
    yield "cross_entropy, weights", operands, loss
    loss = F.cross_entropy(logits, target, weights, label_smoothing=0.1)
    yield "cross_entropy, weights and smoothing", operands, loss
    loss = F.cross_entropy(logits, target, label_smoothing=0.1, reduction="none")
    yield "cross_entropy, smoothing", [logits, classes], loss
    shares = numbers(4, 5, seed=2).softmax(1)
    yield "cross_entropy, probabilities", [logits, shares], F.cross_entropy(logits, shares)
    loss = F.cross_entropy(logits, shares, weights, label_smoothing=0.2)
    yield "cross_entropy, probabilities and weights", [logits, shares, weights], loss
    images, labels = numbers(2, 3, 2, 2), wholes(2, 2, 2, below=3)
    loss = F.cross_entropy(images, labels.long(), weights[:3])
    yield "cross_entropy, images", [images, labels, weights[:3]], loss
    logs = logits.log_softmax(1)
    yield "nll_loss, weights", [logs, classes, weights], F.nll_loss(logs, target, weights)
    loss = F.binary_cross_entropy_with_logits(logits, share)
    yield "binary_cross_entropy_with_logits", [logits, share], loss
    loss = F.binary_cross_entropy_with_logits(logits, share, pos_weight=weights)
    yield "binary_cross_entropy_with_logits, weight", [logits, share, weights], loss


GROUPS = [shapes, indexing, reductions, losses]


def number(value):
    """A number that JSON has, and else its name."""
    if isinstance(value, bool):
        return int(value)
    return value if math.isfinite(value) else str(value)


def tensor(x):
    values = [number(value) for value in x.flatten().tolist()]
    return {"dtype": NAMES[x.dtype], "shape": list(x.shape), "values": values}


def main():
    folder = pathlib.Path(__file__).parent
    wanted = sys.argv[1:]
    for group in GROUPS:
        name = group.__name__
        if wanted and name not in wanted:
            continue
        lines = []
        for case, operands, results in group():
            results = [results] if isinstance(results, torch.Tensor) else list(results)
            line = {
                "case": case,
                "operands": [tensor(operand) for operand in operands],
                "results": [tensor(result) for result in results],
            }
            lines.append(json.dumps(line) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))


main()
