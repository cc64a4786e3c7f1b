"""The cases of gradients.py with one operation each, by group."""

import itertools

import gradient_format
from gradient_calls import DOMAINS as DOMAIN_NAMES
from gradient_calls import OF_ONE, WITH_NUMBER
from gradient_calls import SECOND as SECOND_NAMES
from gradient_format import (
    ANY, AWAY, POSITIVE, SHARES, SMALL, STEPS,
    call, exact, ints, mask, x,
)  # fmt: skip

INF, NAN = float("inf"), float("nan")

DOMAINS = {name: getattr(gradient_format, among) for name, among in DOMAIN_NAMES.items()}
SECOND = {name: getattr(gradient_format, among) for name, among in SECOND_NAMES.items()}
VIEWS_TOO = "squeeze t flatten contiguous".split()


def unary():
    for name in OF_ONE:
        if name not in VIEWS_TOO:
            yield from call(name, [x(2, 3, among=DOMAINS.get(name, ANY))], ways=9)


def scalars():
    numbers = {"xlogy": 2.5, "xlog1py": 0.5, "remainder": 0.75, "rem": 1.25}
    for name in WITH_NUMBER:
        among = POSITIVE if name == "pow" else ANY
        for value in [numbers.get(name, 1.5), numbers.get(name, -0.75)]:
            if value < 0 and name.startswith("xlog"):
                continue
            yield from call(name, [x(2, 3, among=among)], value)
    for exponent in [-1, 0, 0.5, 1, 2, 3]:
        yield from call("pow", [x(2, 3, among=POSITIVE)], exponent)
    for exponent in [0, 1, 2, 3]:
        yield from call("pow", [x(2, 3, among=AWAY)], exponent)
    for name, options in [
        ("number less", [2]),
        ("number by", [3]),
        ("clamp", [-1, 0.75]),
        ("hardtanh", [-0.5, 1.03125]),
        ("threshold", [0.21875, -2]),
        ("hardshrink", [0.53125]),
        ("softshrink", [0.53125]),
        ("leaky_relu", [0.1]),
        ("elu", [1.5]),
        ("celu", [1.5]),
        ("nan_to_num", [0.5, 2, -2]),
    ]:
        among = AWAY if name == "number by" else ANY
        yield from call(name, [x(2, 3, among=among)], *options, ways=4)


def edges():
    """Elements at which a function has a kink, a pole or a plateau."""
    around_zero = exact([0, 0.5, -0.5, 0, 2])
    for name in """abs sign relu square sqrt sinc hardswish selu softsign sin tanh silu gelu mish
    floor ceil round trunc frac recip log expm1""".split():
        values = exact([0, 0.5, 1, 2]) if name in ["sqrt", "recip", "log"] else around_zero
        yield from call(name, [values], ways=2)
    large = exact([-100, -50, -20, 20, 50, 100])
    for name in "sigmoid tanh softplus log_sigmoid silu gelu mish erf erfc ndtr selu".split():
        yield from call(name, [large], ways=1)
    for name, options, values in [
        ("relu6", [], [0, 6, 3, -1, 7]),
        ("hardsigmoid", [], [-3, 3, 0, 4, -4]),
        ("hardswish", [], [-3, 3, 0, 4, -4]),
        ("clamp", [-1, 1], [-1, 1, 0, 2, -2]),
        ("hardtanh", [-1, 1], [-1, 1, 0, 2, -2]),
        ("threshold", [0.5, 3], [0.5, 0, 1]),
        ("hardshrink", [0.5], [-0.5, 0.5, 0, 1, -1]),
        ("softshrink", [0.5], [-0.5, 0.5, 0, 1, -1]),
        ("leaky_relu", [0.25], [0, 1, -1]),
        ("elu", [2], [0, 1, -1, -60]),
        ("celu", [2], [0, 1, -1, -60]),
        ("nan_to_num", [0, 2, -2], [NAN, INF, -INF, 1]),
        ("pow", [2], [0, -1.5, 2]),
        ("pow", [3], [0, -1.5, 2]),
        ("pow", [1], [0, -1.5, 2]),
        ("pow", [0], [0, -1.5, 2]),
        ("pow", [0.5], [0, 1.5, 2]),
        ("maximum", [0.5], [0.5, 0, 1]),
        ("minimum", [0.5], [0.5, 0, 1]),
        ("fmax", [0.5], [0.5, 0, 1]),
        ("fmin", [0.5], [0.5, 0, 1]),
        ("xlogy", [2], [0, 1, -1]),
        ("hypot", [0], [1, -2]),
        ("copysign", [-1], [0, 1, -1]),
    ]:
        yield from call(name, [exact(values)], *options, ways=2)
    equal = [exact([0, 1, -1, 2, 1]), exact([0, 1, 1, 2, -1])]
    for name in "maximum minimum fmax fmin sub logaddexp copysign".split():
        yield from call(name, equal, ways=2)
    yield from call("pow", [exact([0, 0, 0, 2, 1]), exact([0, 1, 2, 0, 3])], ways=1)
    yield from call("pow", [exact([-2, -2, -1]), exact([2, 3, 0])], ways=1)
    yield from call("xlogy", [exact([0, 0, 2]), exact([1, 3, 2])], ways=1)
    yield from call("xlog1py", [exact([0, 0, 2]), exact([1, 3, 2])], ways=1)
    yield from call("atan2", [exact([0, 1, -1, 0]), exact([1, 0, 0, -1])], ways=1)
    yield from call("hypot", [exact([0, 3, 0]), exact([0, 0, -2])], ways=1)
    yield from call("div", [exact([1, 0, 2]), exact([0, 0, 4])], ways=1)
    yield from call("logaddexp", [exact([-INF, 100, 0]), exact([0, -100, -INF])], ways=1)
    yield from call("clamp", [exact([[0, 0], [1, 1]])], 0, 1, ways=2)
    yield from poles()


def poles():
    """Where a function or its slope is infinite, or not defined."""
    for name, values in [
        ("log", [-1, -0.5]), ("log2", [-1, 0]), ("log10", [-1, 0]), ("log1p", [-1, -2]),
        ("sqrt", [-1]), ("rsqrt", [-1, 0]), ("asin", [1, -1, 2]), ("acos", [1, -1, 2]),
        ("acosh", [1, 0.5]), ("atanh", [1, -1, 2]), ("erfinv", [1, -1, 2]), ("logit", [0, 1, 2]),
        ("exp", [20, -INF]), ("tanh", [INF, -INF]), ("sigmoid", [INF, -INF]),
        ("relu", [INF, -INF, NAN]), ("abs", [INF, -INF]), ("clamp", [INF, -INF]),
    ]:  # fmt: skip
        options = [-1, 1] if name == "clamp" else []
        yield from call(name, [exact(values)], *options, ways=1)
    strange = exact([NAN, 1, INF])
    yield from call("where", [mask(3), strange, exact([1, NAN, 2])], ways=2)
    yield from call("masked_fill", [strange, mask(3)], 2, ways=2)
    yield from call("maximum", [exact([INF, 1]), exact([INF, -INF])], ways=1)
    hidden = exact([[0, -INF, 1], [-INF, -INF, 2]])
    for name in ["softmax", "log_softmax"]:
        yield from call(name, [hidden], 1, ways=2)
    yield from call("logsumexp", [hidden], [1], ways=2)


SHAPES = [
    ((3, 4), (3, 4), 4),
    ((2, 3), (3,), 3),
    ((3, 1), (1, 4), 2),
    ((), (2, 3), 2),
    ((2, 2, 3), (2, 1), 2),
    ((2, 3), (), 1),
]


def binary():
    for name in WITH_NUMBER:
        first = POSITIVE if name == "pow" else ANY
        second = SECOND.get(name, ANY)
        for a, b, ways in SHAPES:
            yield from call(name, [x(*a, among=first), x(*b, among=second)], ways=ways)
    for a, b, ways in SHAPES[:3]:
        if b == a:
            yield from call("gelu_backward", [x(*a), x(*b)], ways=ways)


def ternary():
    shapes = [[(2, 3)] * 3, [(2, 3), (3,), (2, 1)], [(), (2, 1), (3,)], [(1, 3), (2, 1), ()]]
    for a, b, c in shapes:
        yield from call("where", [mask(*a), x(*b), x(*c)], ways=4)
        yield from call("where, number first", [mask(*a), x(*b)], 0.5)
        yield from call("where, number last", [mask(*a), x(*b)], -2)
        yield from call("masked_fill", [x(2, 3), mask(*c)], 3)
        yield from call("lerp", [x(*a), x(*b), x(*c, among=SHARES)], ways=4)
        yield from call("lerp", [x(*a), x(*b)], 0.25)
    # PyTorch has no broadcast of the first operand here.
    for b, c in [((2, 3), (2, 3)), ((3,), (2, 1)), ((), (2, 3))]:
        yield from call("addcmul", [x(2, 3), x(*b), x(*c)], 1.5, ways=4)
        yield from call("addcdiv", [x(2, 3), x(*b), x(*c, among=AWAY)], -0.5, ways=4)


FOLDS = [("", (2, 3), [0]), ("", (2, 3), [-1]), ("", (2, 3, 2), [0, 2]), ("", (2, 3, 2), [1])]
KEPT = [("_keepdim", (3, 4), [1]), ("_keepdim", (2, 2, 3), [0, 1]), ("_all", (3, 4), [])]


def reductions():
    options = {"var": [[0], [1]], "std": [[0], [1]], "norm": [[1], [2], [3], [0.5], [INF], [-INF]]}
    for name in "sum mean prod max min logsumexp var std norm".split():
        for before in options.get(name, [[]]):
            before = [str(value) if value in (INF, -INF) else value for value in before]
            for form, shape, axes in FOLDS + KEPT:
                after = [] if form == "_all" else [axes]
                ways = 2 if name == "norm" else 3
                yield from call(f"{name}{form}", [x(*shape)], *before, *after, ways=ways)
    yield from call("norm", [x(2, 3)], 0, [1], ways=1)
    ties = exact([[1, 2, 2, 0], [-1, -1, -1, -1], [0, -2, 2, 2]])
    zeros = exact([[1, 0, 2, 3], [0, 4, 0, 1], [2, 1, 3, -1]])
    for name in ["max", "min"]:
        yield from call(name, [ties], [1])
        yield from call(name, [ties], [0])
        yield from call(f"{name}_all", [ties], ways=2)
        yield from call(f"{name}_with_indices", [x(3, 4)], 1)
        yield from call(f"{name}_with_indices", [x(2, 3, 2)], 0)
    for axes in [[0], [1], [0, 1]]:
        yield from call("prod", [zeros], axes)
    yield from call("prod_all", [exact([2, 0, 3])], ways=2)
    for p in ["inf", "-inf"]:
        yield from call("norm", [ties], p, [1], ways=2)
    for p in [1, 2, 3]:
        yield from call("norm", [exact([[0, 0, 0], [1, 0, -2]])], p, [1], ways=2)
    yield from call("logsumexp", [exact([[100, 99, -100], [-200, -200, -199]])], [1], ways=2)
    for correction in [0, 1]:
        # PyTorch gives 0 where the deviation is 0.
        yield from call("std", [exact([[1, 1, 1], [0, 1, 2]])], correction, [1], ways=2)
    yield from call("sum", [x(1, 1, 3)], [0, 1], ways=2)
    for name in ["sum", "prod", "logsumexp"]:
        yield from call(name, [x(0, 3)], [0], ways=1)
        yield from call(name, [x(2, 0, 3)], [0], ways=1)
    yield from call("sum_all", [x()], ways=2)
    yield from call("mean", [x(3)], [0], ways=4)


def scans():
    zeros = exact([[1, 0, 2, 3], [0, 4, 0, 1], [2, 1, 3, -1]])
    ties = x(3, 4, among=STEPS)
    for name in "cumsum cumprod cummax cummin".split():
        for axis, shape in [(0, (3, 4)), (-1, (3, 4)), (1, (2, 3, 2))]:
            yield from call(name, [x(*shape, among=SMALL)], axis)
    for axis in [0, 1]:
        yield from call("cumprod", [zeros], axis)
        yield from call("cummax", [ties], axis)
        yield from call("cummin", [ties], axis)
        for descending in [False, True]:
            yield from call("sort", [x(3, 4)], axis, descending)
            yield from call("top_k", [x(3, 4)], 2, axis, descending)
    yield from call("sort", [ties], 1, False)
    yield from call("sort", [x(2, 3, 2)], 1, True)


def norms():
    for name in ["softmax", "log_softmax"]:
        for axis, shape in [(0, (3, 4)), (-1, (3, 4)), (1, (2, 3, 2)), (0, (5,))]:
            yield from call(name, [x(*shape)], axis, ways=4)
        yield from call(name, [exact([[100, 99, -100], [0, 0, 0]])], 1, ways=2)
        yield from call(f"{name}_backward", [x(3, 4), x(3, 4, among=SHARES)], 1)
    scale, shift = x(4, among=AWAY), x(4)
    for others in [[], [scale], [scale, shift]]:
        yield from call("layer_norm", [x(3, 4), *others], [4], 1e-3, ways=4)
        yield from call("layer_norm", [x(2, 2, 4), *others], [4], 1e-3)
    yield from call("layer_norm", [x(2, 3, 2), x(3, 2), x(3, 2)], [3, 2], 1e-3, ways=4)
    for others in [[], [scale]]:
        yield from call("rms_norm", [x(3, 4), *others], [4], 1e-3, ways=4)
    yield from call("rms_norm", [x(2, 3, 2), x(3, 2)], [3, 2], 1e-3)
    for groups, others in itertools.product([1, 2, 4], [[], [scale, shift]]):
        yield from call("group_norm", [x(2, 4, 3), *others], groups, 1e-3)
    yield from call("group_norm", [x(1, 4, 2, 2), scale], 2, 1e-3)
    channel = x(3)
    for others in [[], [x(3, among=AWAY)], [x(3, among=AWAY), channel]]:
        yield from call("batch_norm_train", [x(2, 3, 4), *others], 1e-3)
        yield from call("batch_norm_train", [x(4, 3), *others], 1e-3, ways=2)
        known = [channel, x(3, among=POSITIVE)]
        yield from call("batch_norm", [x(2, 3, 2), *known, *others], 1e-3)
    for piece in [0, 1]:
        operands = [x(3, 4), x(3, 4), x(4)]
        yield from call("layer_norm_backward", operands, [4], 0.0625, piece, ways=2)
        operands = [x(2, 3, 2), x(2, 3, 2), x(3)]
        yield from call("batch_norm_backward", operands, 0.0625, piece, ways=2)


def losses():
    shares, classes = x(4, 3, among=SHARES), ints([2, 0, -100, 1])
    weights = exact([0.5, 2, 1]).constant()
    for reduction in ["none", "mean", "sum"]:
        yield from call("mse_loss", [x(3, 4), x(3, 4)], reduction)
        yield from call("mse_loss", [x(2, 3), x(3)], reduction)
        yield from call("binary_cross_entropy", [shares, shares], reduction)
        yield from call("binary_cross_entropy_with_logits", [x(4, 3), shares], reduction)
        operands = [x(4, 3), shares, x(3, among=POSITIVE).constant()]
        yield from call("binary_cross_entropy_with_logits", operands, reduction)
        for others in [[], [weights]]:
            yield from call("nll_loss", [x(4, 3), classes, *others], reduction, -100)
            yield from call("nll_loss", [x(4, 3), ints([1, 0, 1, 2]), *others], reduction, 1)
            for smoothing in [0, 0.25]:
                options = reduction, -100, smoothing
                yield from call("cross_entropy", [x(4, 3), classes, *others], *options)
                options = reduction, None, smoothing
                yield from call("cross_entropy", [x(4, 3), shares, *others], *options)
        images, labels = x(2, 3, 2), ints([[0, 2], [1, 1]])
        yield from call("cross_entropy", [images, labels, weights], reduction, None, 0)
        yield from call("nll_loss", [images, labels], reduction, None)
        yield from call("cross_entropy", [x(3), ints(1)], reduction, None, 0, ways=2)
