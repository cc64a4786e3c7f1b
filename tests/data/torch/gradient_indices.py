"""The cases of gradients.py of indices, of shapes, and of writes in place."""

from gradient_cases import DOMAINS, SECOND
from gradient_format import ANY, AWAY, POSITIVE, SHARES, below, call, exact, ints, mask, write, x

REDUCES = "sum prod mean amax amin".split()


def indices():
    for axis, shape, named in [
        (0, (3, 4), (2, 4)),
        (1, (3, 4), (3, 5)),
        (-1, (2, 2, 3), (2, 2, 2)),
    ]:
        yield from call("gather", [x(*shape), below(shape[axis], *named)], axis, ways=4)
        yield from call("scatter_add", [x(*shape), below(shape[axis], *named), x(*named)], axis)
    yield from call("gather", [x(3, 4), below(3, 2, 3)], 0)
    yield from call("take_along", [x(3, 4), below(4, 1, 2)], 1)
    yield from call("take_along", [x(1, 4), below(1, 2, 4)], 0)
    yield from call("take_along", [x(3, 4), below(3, 2, 4)], 0, ways=2)
    for axis in [0, 1, -1]:
        yield from call("index_select", [x(3, 3, 2), below(2, 4)], axis)
        yield from call("index_add", [x(3, 3, 2), below(2, 2), x(*two(axis))], axis)
    yield from call("embedding", [x(5, 3), below(5, 4)], ways=4)
    yield from call("embedding", [x(5, 2), below(5, 2, 3)], ways=4)
    once = ints([[2, 0, 3], [1, 3, 0]])
    yield from call("scatter", [x(3, 4), once, x(2, 3)], 1, ways=4)
    yield from call("scatter", [x(4, 3), ints([[2, 0, 3], [1, 3, 0]]), x(2, 3)], 0, ways=4)
    for reduce in REDUCES:
        for include in [True, False]:
            operands = [x(3, 4, among=AWAY), below(3, 3, 4), x(3, 4, among=AWAY)]
            yield from call("scatter_reduce", operands, 1, reduce, include)
    named, equal = ints([0, 0, 1, 1, 1, 3]), exact([1, 1, 0, 0, 0, 3])
    zeros = [exact([1, 2, 0, 2]), named, exact([0, 1, 0, 2, 0, 3])]
    for include in [True, False]:
        # PyTorch shares with an equal element even if that takes no part.
        onto = exact([1, 0, 5, 2] if include else [4, 4, 4, 4])
        for reduce in ["amax", "amin"]:
            yield from call("scatter_reduce", [onto, named, equal], 0, reduce, include, ways=2)
        yield from call("scatter_reduce", zeros, 0, "prod", include, ways=2)
    i, j = ints([2, 0]), ints([[1], [3]])
    for given, named, shape in [
        ([1, 1], [i, j], (2, 2, 2)),
        ([0, 1], [j], (3, 2, 1, 2)),
        ([0, 1, 1], [i, ints([[1], [0]])], (3, 2, 2)),
        ([1, 0, 1], [i, ints([1, 0])], (2, 4)),
        ([1], [i], (2, 4, 2)),
    ]:
        base = x(3, 4, 2)
        yield from call("index", [base, *named], given)
        yield from call("index_put", [base, *named, x(*shape)], given, False)
        yield from call("index_put", [base, *named, x(*shape[1:])], given, True)
    twice = [ints([1, 1, 0]), ints([2, 2, 0])]
    yield from call("index", [x(3, 4), *twice], [1, 1])
    yield from call("index_put", [x(3, 4), *twice, x(3)], [1, 1], True)
    for shape in [(3, 4), (4,), (3, 1)]:
        yield from call("masked_select", [x(3, 4), mask(*shape)])
        yield from call("masked_select_first", [x(3, 4), mask(*shape)], 5)


def two(axis):
    shape = [3, 3, 2]
    shape[axis] = 2
    return shape


ONE = [
    ("t", (2, 3)), ("flatten", (2, 3)), ("contiguous", (2, 3)), ("copy", (2, 3)),
    ("squeeze", (1, 3, 1)), ("transpose", (2, 3, 2), 0, -1), ("permute", (2, 3, 2), [2, 0, 1]),
    ("slice", (5, 2), 0, 1, 4, 2), ("slice", (2, 5), -1, 1, None, 3), ("narrow", (4, 2), 0, 1, 2),
    ("narrow", (2, 4), -1, 2, 2), ("select", (3, 2), 0, 1), ("select", (3, 2), -1, 1),
    ("squeeze_axis", (2, 1, 3), 1), ("unsqueeze", (2, 3), 1), ("flip", (2, 3), [0]),
    ("flip", (2, 3), [0, 1]), ("broadcast_to", (3,), [2, 3]), ("broadcast_to", (2, 1), [2, 2, 3]),
    ("broadcast_to", (), [2, 2]), ("reshape", (2, 6), [3, 4]), ("reshape_infer", (2, 6), [-1, 3]),
    ("flatten_axes", (2, 2, 3), 0, 1), ("movedim", (2, 3, 2), -1, 0),
    ("diagonal", (3, 4), 1, 0, 1), ("diagonal", (2, 3, 3), -1, 1, 2), ("unfold", (2, 5), 1, 3, 1),
    ("unfold", (5, 2), 0, 2, 2), ("unflatten", (2, 6), 1, [2, 3]), ("unbind", (3, 2), 0, 1),
    ("split", (2, 5), 2, 1, 2), ("split_sizes", (5, 2), [1, 3, 1], 0, 1),
    ("chunk", (5, 2), 2, 0, 1), ("pad", (2, 3), [[1, 0], [2, 1]], 3), ("pad", (3,), [[0, 2]], 0),
    ("repeat", (2, 3), [2, 2]), ("repeat", (3,), [2, 2]), ("repeat_interleave", (2, 3), 2, 1),
    ("repeat_interleave", (2, 3), 3, 0), ("roll", (2, 3), [1], [1]),
    ("roll", (3, 4), [1, -2], [0, 1]), ("flatten", (0, 3)), ("pad", (0, 2), [[1, 0], [0, 1]], 2),
    ("tril", (3, 4), 0), ("tril", (2, 3, 3), -1), ("triu", (3, 4), 1), ("triu", (4, 3), -1),
    ("glu", (3, 4), -1), ("glu", (4, 3), 0),
]  # fmt: skip


def shapes():
    for name, shape, *options in ONE:
        yield from call(name, [x(*shape)], *options, ways=4)
    yield from call("view_as", [x(2, 6)], [3, 4], ways=1)
    for mode in ["reflect", "replicate", "circular"]:
        for shape, widths in [
            ((2, 5), [[0, 0], [2, 1]]),
            ((1, 3, 4), [[0, 0], [1, 2], [3, 0]]),
            ((4,), [[2, 3]]),
            ((3, 3), [[1, 1], [2, 2]]),
        ]:
            yield from call("pad_with", [x(*shape)], widths, mode)
    for axis, parts in [
        (0, [(1, 3), (2, 3), (1, 3)]), (1, [(2, 1), (2, 3)]), (-1, [(2, 2, 1), (2, 2, 2)]),
        (0, [(2,), (3,)]), (0, [(2, 2)]), (0, [(0, 2), (3, 2)]),
    ]:  # fmt: skip
        yield from call("concat", [x(*shape) for shape in parts], axis, ways=4)
    for axis in [0, 1, 2, -1]:
        yield from call("stack", [x(2, 3), x(2, 3), x(2, 3)], axis)
    for shape, weight in [((2, 3), (3,)), ((2, 3), (1,)), ((2, 3, 2), (3,)), ((4,), (1,))]:
        yield from call("prelu", [x(*shape), x(*weight)])
    yield from call("prelu", [exact([0, 1, -1]), exact([0.25])], ways=1)


OF_ONE = """neg abs square relu floor ceil round trunc exp log sqrt rsqrt recip sin cos tanh sigmoid
silu gelu""".split()
OF_TWO = """add sub mul div maximum minimum rem remainder floor_divide pow atan2 hypot copysign
xlogy""".split()


def in_place():
    for name in OF_ONE:
        yield from write(f"{name}_", [x(2, 3, among=DOMAINS.get(name, ANY))])
    for name in OF_TWO:
        first = POSITIVE if name == "pow" else ANY
        second = SECOND.get(name, ANY)
        for shape in [(2, 3), (3,), ()]:
            operands = [x(2, 3, among=first), x(*shape, among=second)]
            yield from write(f"{name}_", operands)
        value = 2.5 if name == "xlogy" else 1.5
        yield from write(f"{name}_", [x(2, 3, among=first)], value)
    more = "whole", "narrowed", "selected", "flipped", "diagonal"
    for shape in [(2, 3), (3,), (2, 1), ()]:
        yield from write("copy_", [x(2, 3), x(*shape)], targets=more)
        yield from write("masked_fill_", [x(2, 3), mask(*shape)], 3, targets=more)
    yield from write("fill_", [x(2, 3)], 2, targets=more[1:])
    yield from write("clamp_", [x(2, 3)], -1, 1.03125)
    broken = exact([1, float("nan"), -1])
    yield from write("nan_to_num_", [broken], 2, None, None, targets=["whole"])
    yield from write("lerp_", [x(2, 3), x(2, 3), x(2, 1, among=SHARES)])
    yield from write("lerp_", [x(2, 3), x(3)], 0.25)
    yield from write("addcmul_", [x(2, 3), x(3), x(2, 3)], 1.5)
    yield from write("addcdiv_", [x(2, 3), x(2, 3), x(2, 1, among=AWAY)], 1.5)
    once = ints([[2, 0, 3], [1, 3, 0]])
    named = [x(2, 4), below(4, 2, 3), x(2, 3)]
    yield from write("scatter_", [x(3, 4), once, x(2, 3)], 1)
    yield from write("scatter_add_", named, 1)
    for reduce in REDUCES:
        operands = [x(2, 4, among=AWAY), below(3, 2, 4), x(2, 4, among=AWAY)]
        yield from write("scatter_reduce_", operands, 1, reduce, True)
        yield from write("scatter_reduce_", operands, 1, reduce, False, targets=["whole"])
    yield from write("index_add_", [x(3, 4), below(3, 2), x(2, 4)], 0)
    yield from write("index_add_", [x(3, 4), below(4, 3), x(3, 3)], 1)
    yield from write("index_put_", [x(3, 4), ints([2, 0]), x(2, 4)], [1], False)
    yield from write("index_put_", [x(3, 4), ints([1, 1]), x(3, 2)], [0, 1], True)
