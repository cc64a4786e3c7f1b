"""The group `rows` of values.py: reductions, softmax, norms, losses, and what moves elements.

A case's name begins with the call in tests/torch/rows.rs, and goes on with its options.
"""

import itertools

import torch
import torch.nn.functional as F

from values_networks import Draw

INF, NAN = torch.inf, torch.nan
STRANGE = [
    [1.0, NAN, 3.0, -INF, 5.0],
    [1.0, 2.0, INF, -1.0, 0.0],
    [-INF, -INF, -INF, -INF, -INF],
    [INF, -INF, 0.0, 0.0, 0.0],
    [-0.0, 0.0, -0.0, 0.0, -0.0],
    [NAN, NAN, NAN, NAN, NAN],
]
FAR = [
    [1e4, 1e4, -1e4, 0.0],
    [-3e38, -3e38, -3e38, -3e38],
    [-INF, -INF, -INF, -INF],
    [-INF, 0.0, -INF, 0.0],
    [INF, 0.0, 0.0, 0.0],
    [NAN, 0.0, 0.0, 0.0],
    [3e38, -3e38, 0.0, 0.0],
    [0.0, -0.0, 0.0, 1e-30],
]


def product(x, axes):
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis)
    return x


def norm(p):
    return lambda x, axes: torch.linalg.vector_norm(x, p, axes)


SUMS = {"sum": lambda x, a: x.sum(a), "mean": lambda x, a: x.mean(a)}
EXTREMES = {"max": lambda x, a: x.amax(a), "min": lambda x, a: x.amin(a)}
COUNTS = {
    "any": lambda x, a: (x != 0).any(a),
    "all": lambda x, a: (x != 0).all(a),
    "count_nonzero": lambda x, a: (x != 0).sum(a),
    "norm 0": lambda x, a: (x != 0).sum(a).to(x.dtype),
}
MOMENTS = {
    "prod": product,
    "var": lambda x, a: x.var(a, correction=1),
    "std": lambda x, a: x.std(a, correction=0),
    "norm 1": norm(1),
    "norm 2": norm(2),
    "norm 3": norm(3),
    "norm inf": norm(INF),
    "norm -inf": norm(-INF),
    "logsumexp": lambda x, a: x.logsumexp(a),
}
FOLDS = {**SUMS, **EXTREMES, **COUNTS, **MOMENTS}


def rounded(y):
    return y.float() if y.is_floating_point() else y


def folded(name, x, axes, number):
    """A case. PyTorch means all axes by none."""
    y = FOLDS[name](x.double(), axes)
    yield f"{name}: {' '.join(map(str, axes))}: {number}", [x], rounded(y)


def folds():
    x = Draw(0)((5, 13, 7))
    for count in [1, 2, 3]:
        for axes, name in itertools.product(itertools.combinations(range(3), count), FOLDS):
            yield from folded(name, x, axes, 0)
    for number, (shape, axes) in enumerate([((3, 3000), (1,)), ((3000, 3), (0,)), ((1, 37), (0,))]):
        for name in [name for name in FOLDS if name != "prod"]:
            yield from folded(name, Draw(number)(shape), axes, number + 1)
    # One row at a time, because a power of another row may overflow.
    strange = torch.tensor(STRANGE)
    for number, row in enumerate([*strange, *strange.T]):
        for name in FOLDS:
            yield from folded(name, row.contiguous(), (0,), number + 4)
        for name in ["argmax", "argmin"]:
            yield f"{name}: 0: {number}", [row.contiguous()], getattr(row, name)(0)
    large = torch.tensor([90.0, 91.0, -200.0, 89.0, 1.0])
    yield from folded("logsumexp", large, (0,), "large")
    for name, axis in itertools.product(["argmax", "argmin"], range(3)):
        # PyTorch may give any of equal ones.
        values = torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1)) / 8
        x = values.reshape(x.shape)
        yield f"{name}: {axis}: whole", [x], getattr(x, name)(axis)
    whole = (Draw(3)((4, 6, 5)) * 8).int()
    for axes in [(0,), (1, 2), (0, 1, 2)]:
        for name in ["sum", "max", "min", "any", "all"]:
            y = FOLDS[name](whole, axes)
            y = y if y.dtype == torch.bool else y.int()
            yield f"{name}: {' '.join(map(str, axes))}: i32", [whole], y


def softmaxes():
    for number, shape in enumerate([(5,), (9, 37), (4, 8, 12), (1, 3000), None, (3, 0)]):
        x = torch.tensor(FAR) if shape is None else Draw(number)(shape)
        for axis in range(x.dim()):
            if shape is None and axis == 0:
                continue
            for name in ["softmax", "log_softmax"]:
                yield f"{name}: {axis}: {number}", [x], getattr(x.double(), name)(axis).float()


def norms():
    for number, shape in enumerate([(1,), (9, 37), (4, 8, 12), (24, 16), (1, 3000)]):
        for last in [1, 2][: len(shape) if number < 4 else 1]:
            draw = Draw(number)
            x, size = draw(shape), shape[-last:]
            weight, bias = draw(size), draw(size)
            wide = [x.double(), weight.double(), bias.double()]
            for given in range(4 if number < 4 else 1):
                is_given = [True, given & 1, given & 2]
                y = F.layer_norm(
                    wide[0], size, wide[1] if given & 1 else None, wide[2] if given & 2 else None
                )
                operands = list(itertools.compress([x, weight, bias], is_given))
                yield f"layer_norm: {last} {given}: {number}", operands, y.float()
        draw = Draw(number)
        x, weight = draw(shape), draw(shape[-1:])
        root = (x.double().square().mean(-1, keepdim=True) + 0.25).sqrt()
        yield f"rms_norm: : {number}", [x], (x.double() / root).float()
        yield f"rms_norm: w: {number}", [x, weight], (x.double() / root * weight.double()).float()
    groups = [((2, 6), 3), ((3, 4, 5), 1), ((2, 8, 3, 4), 4), ((1, 4, 33), 4), ((0, 4, 3), 2)]
    for number, (shape, groups) in enumerate(groups):
        draw = Draw(number)
        x, weight, bias = draw(shape), draw(shape[1:2]), draw(shape[1:2])
        for operands in [[x], [x, weight, bias]]:
            wide = [one.double() for one in operands]
            y = F.group_norm(wide[0], groups, *wide[1:], eps=1e-2) if x.numel() else wide[0]
            yield f"group_norm: {groups} {len(operands)}: {number}", operands, y.float()


def losses():
    for number, shape in enumerate([(5,), (1, 1), (6, 5), (3, 7, 4), (2, 1000)]):
        x, axis = Draw(number)(shape), min(len(shape), 2) - 1
        classes, rest = shape[axis], shape[:axis] + shape[axis + 1 :]
        generator = torch.Generator().manual_seed(number)
        targets = torch.randint(0, classes, rest, generator=generator)
        hidden = torch.rand(rest, generator=generator) < 0.25
        for ignore in [None, 1, -100]:
            given = targets if ignore is None else torch.where(hidden, ignore, targets)
            wide = x.double()
            for reduction in ["none", "sum", "mean"]:
                for name in ["cross_entropy", "nll_loss"]:
                    y = getattr(F, name)(
                        wide, given, ignore_index=-99 if ignore is None else ignore,
                        reduction=reduction,
                    )  # fmt: skip
                    how = f"{'' if ignore is None else ignore} {reduction}"
                    yield f"{name}: {how}: {number}", [x, given.int()], y.float()


def rotations():
    sizes = [((5, 4), 2), ((3, 7, 9), 3), ((2, 3, 6, 8), 4), ((4, 2), 0)]
    for number, (shape, pairs) in enumerate(sizes):
        x = Draw(number)(shape)
        angles = 0.37 * torch.arange(shape[-2] * pairs, dtype=torch.float64)
        angles = angles.reshape(shape[-2], pairs)
        cos, sin = angles.cos().float(), angles.sin().float()
        for interleaved in [0, 1]:
            turned, rest = x[..., : 2 * pairs].double(), x[..., 2 * pairs :].double()
            halves = turned.unflatten(-1, (pairs, 2) if interleaved else (2, pairs))
            a, b = halves.unbind(-1 if interleaved else -2)
            made = [a * cos.double() - b * sin.double(), b * cos.double() + a * sin.double()]
            y = torch.stack(made, -1 if interleaved else -2).flatten(-2)
            y = torch.cat([y, rest], -1).float()
            yield f"rotary: {interleaved}: {number}", [x, cos, sin], y


def arrangements():
    x, deep = Draw(4)((3, 5)), Draw(5)((2, 5, 7))
    for axis in [0, 1, 2, -1]:
        yield f"stack: {axis}: ", [x, x + 1, -x], torch.stack([x, x + 1, -x], axis)
    for counts in ["2 3", "1 1", "3 1 2", "0 2"]:
        yield f"repeat: {counts}: ", [x], x.repeat(*map(int, counts.split()))
    for count, axis in itertools.product([0, 1, 3], [0, 1]):
        yield f"repeat_interleave: {count} {axis}: ", [x], x.repeat_interleave(count, axis)
    for shifts, axes in [((2, -1), (0, 1)), ((7,), (1,)), ((0,), (0,)), ((-8, 3), (-1, 0))]:
        how = " ".join(map(str, shifts + axes))
        yield f"roll: {how}: ", [x], x.roll(shifts, axes)
    for diagonal in [0, 1, -2, 100, -100]:
        yield f"tril: {diagonal}: ", [deep], deep.tril(diagonal)
        yield f"triu: {diagonal}: ", [deep], deep.triu(diagonal)
    for mode, widths in [
        ("constant", [1, 2, 0, 3]), ("constant", [4, 0, 0, 0]), ("reflect", [4, 1, 2, 6]),
        ("replicate", [9, 1, 0, 8]), ("circular", [5, 1, 2, 7]), ("reflect", [0, 0, 0, 3]),
    ]:  # fmt: skip
        value = 9 if mode == "constant" else None
        y = F.pad(deep[None], [*widths[2:], *widths[:2]], mode=mode, value=value)[0]
        yield f"pad {mode}: 0 0 {' '.join(map(str, widths))}: ", [deep], y
    for axis in range(3):
        yield f"cumsum: {axis}: ", [deep], deep.double().cumsum(axis).float()
        yield f"cumprod: {axis}: ", [deep], deep.double().cumprod(axis).float()


def indexed():
    x = Draw(6)((4, 5, 6))
    generator = torch.Generator().manual_seed(7)
    for axis in range(3):
        size = x.shape[axis]
        # Smaller along the other axes, and larger along this one, or all different.
        shape = [9 if at == axis else dim - 1 for at, dim in enumerate(x.shape)]
        some = torch.randint(0, size, shape, generator=generator)
        once = torch.rand([dim - 1 for dim in x.shape], generator=generator).argsort(axis)
        row = torch.randint(0, size, [9], generator=generator)
        source = Draw(axis)([dim + 5 for dim in x.shape])
        slices = Draw(axis + 3)([9 if at == axis else dim for at, dim in enumerate(x.shape)])
        yield f"gather: {axis}: ", [x, some.int()], x.gather(axis, some)
        yield f"scatter: {axis}: ", [x, once.int(), source], x.scatter(axis, once, source)
        yield f"scatter_add: {axis}: ", [x, some.int(), source], x.scatter_add(axis, some, source)
        yield f"index_select: {axis}: ", [x, row.int()], x.index_select(axis, row)
        yield f"index_add: {axis}: ", [x, row.int(), slices], x.index_add(axis, row, slices)


def rows():
    for group in [folds, softmaxes, norms, losses, rotations, arrangements, indexed]:
        yield from group()
