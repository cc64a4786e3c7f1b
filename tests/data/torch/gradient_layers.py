"""The cases of gradients.py of products, convolutions, pools and attention."""

import itertools

from gradient_format import AWAY, INNER, POSITIVE, SHARES, below, call, exact, ints, mask, x


def products():
    for a, b in [
        ((4,), (4,)), ((4,), (4, 3)), ((3, 4), (4,)), ((3, 4), (4, 2)), ((1, 4), (4, 3)),
        ((2, 3, 4), (4, 2)), ((3, 4), (2, 4, 2)), ((2, 3, 4), (2, 4, 2)), ((2, 3, 4), (4,)),
        ((4,), (2, 4, 3)), ((2, 1, 2, 3), (3, 3, 2)), ((1, 2, 3), (2, 3, 2)), ((2, 1), (1, 3)),
        ((5, 7), (7, 6)), ((2, 0), (0, 3)), ((0, 2), (2, 3)),
    ]:  # fmt: skip
        yield from call("matmul", [x(*a), x(*b)], ways=4)
    for a in [(3, 4), (4,), (2, 2, 4)]:
        yield from call("linear", [x(*a), x(3, 4)], ways=2)
        yield from call("linear", [x(*a), x(3, 4), x(3)], ways=4)
    columns, bias, residual = x(2, among=AWAY), x(2), x(3, 2)
    for given in [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]:
        ends = [end for end, has in zip([columns, bias, residual], given) if has]
        for activation in [None, "silu", "gelu"]:
            operands = [x(3, 4), x(4, 2), *ends]
            yield from call("matmul_with", operands, given, 0.5, activation, ways=2)
    for activation in ["relu", "gelu_tanh", "sigmoid", "tanh"]:
        yield from call("matmul_with", [x(3, 4), x(4, 2), bias], [0, 1, 0], 1, activation, ways=2)
    weights = ints([[3, -7, 20, 1], [-50, 2, 9, -4], [0, 12, -1, 33]])
    scales = exact([0.0625, 0.125, 0.25]).constant()
    yield from call("matmul_quantized", [x(2, 4), weights, scales])
    for equation, *shapes in [
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
        ("bhqd,bhkd->bhqk", (1, 2, 2, 3), (1, 2, 3, 3)),
        ("i,j->ij", (3,), (4,)),
        ("ij,ij->", (2, 3), (2, 3)),
        ("ii->i", (3, 3)),
        ("ii->", (3, 3)),
        ("ij->ji", (2, 3)),
        ("ij->j", (2, 3)),
        ("ij,j,ik->k", (2, 3), (3,), (2, 4)),
        ("...ij,jk->...ik", (2, 2, 3), (3, 2)),
        ("ij,kj->ik", (2, 3), (4, 3)),
        ("ijk,jil->kl", (2, 3, 2), (3, 2, 2)),
        ("a...,b...->ab...", (2, 3), (3, 3)),
        ("ij,jk", (1, 3), (3, 2)),
    ]:
        yield from call("einsum", [x(*shape) for shape in shapes], equation)


def convolutions():
    for stride, padding, dilation in [(1, 0, 1), (2, 1, 1), (1, 1, 2), (2, 2, 2), (3, 1, 1)]:
        options = [stride], [padding], [dilation], 1
        yield from call("conv1d", [x(2, 2, 7), x(3, 2, 3), x(3)], *options)
        yield from call("conv1d", [x(2, 2, 7), x(3, 2, 2)], *options, ways=2)
    one = [1], [0], [1]
    yield from call("conv1d", [x(2, 5), x(3, 2, 2), x(3)], *one, 1, ways=2)
    yield from call("conv1d", [x(1, 4, 5), x(4, 1, 2), x(4)], *one, 4)
    yield from call("conv1d", [x(1, 4, 5), x(2, 2, 3)], [2], [1], [1], 2)
    yield from call("conv1d", [x(2, 3, 4), x(2, 3, 1)], *one, 1)
    for stride, padding, dilation in [
        ([1, 1], [0, 0], [1, 1]), ([2, 1], [1, 0], [1, 1]), ([1, 2], [0, 1], [2, 1]),
        ([2, 2], [1, 2], [1, 2]),
    ]:  # fmt: skip
        options = stride, padding, dilation, 1
        yield from call("conv2d", [x(1, 2, 4, 5), x(2, 2, 2, 3), x(2)], *options)
        yield from call("conv2d", [x(2, 1, 4, 4), x(2, 1, 2, 2)], *options, ways=2)
    one = [1, 1], [0, 0], [1, 1]
    yield from call("conv2d", [x(2, 3, 4), x(3, 2, 2, 2), x(3)], *one, 1, ways=2)
    yield from call("conv2d", [x(1, 4, 3, 3), x(4, 1, 2, 2), x(4)], *one, 4)
    yield from call("conv2d", [x(1, 4, 3, 3), x(2, 2, 3, 3)], [1, 1], [1, 1], [1, 1], 2)
    yield from call("conv2d", [x(2, 3, 2, 2), x(4, 3, 1, 1), x(4)], *one, 1)
    yield from call("conv2d", [x(1, 2, 5, 5), x(3, 2, 3, 3)], [2, 2], [1, 1], [1, 1], 1)
    for piece in [0, 1]:
        operands = [x(1, 3, 4), x(1, 2, 5), x(3, 2, 2)]
        yield from call("conv1d_backward", operands, [1], [0], [1], 1, piece, ways=2)
        operands = [x(1, 2, 2, 2), x(1, 2, 3, 3), x(2, 2, 2, 2)]
        yield from call("conv2d_backward", operands, *one, 1, piece, ways=2)


def pools():
    for kernel, stride, padding, dilation, *rest in [
        ([2], [2], [0], [1], False, True, None),
        ([3], [1], [1], [1], False, True, None),
        ([3], [2], [1], [1], True, False, None),
        ([2], [3], [0], [1], True, True, None),
    ]:
        options = kernel, stride, padding, dilation
        yield from call("max_pool1d", [x(1, 2, 8)], *options, rest[0], True, None)
        yield from call("avg_pool1d", [x(1, 2, 8)], *options, *rest)
    yield from call("max_pool1d", [x(2, 8)], [2], [1], [1], [3], False, True, None)
    for kernel, stride, padding, *rest in [
        ([2, 2], [2, 2], [0, 0], False, True, None),
        ([3, 2], [2, 1], [1, 1], True, True, None),
        ([2, 3], [1, 2], [1, 0], True, False, None),
        ([3, 3], [2, 2], [1, 1], True, True, 5),
    ]:
        options = kernel, stride, padding, [1, 1]
        yield from call("max_pool2d", [x(1, 2, 4, 5)], *options, rest[0], True, None)
        yield from call("avg_pool2d", [x(1, 2, 4, 5)], *options, *rest)
    dilated = [2, 2], [1, 1], [1, 1], [2, 1], False, True, None
    yield from call("max_pool2d", [x(1, 1, 4, 4)], *dilated)
    yield from call("max_pool2d", [x(2, 4, 4)], *dilated, ways=2)
    ties = exact([[[[1, 1, 2, 2], [1, 1, 2, 0], [0, 3, 3, 3], [0, 0, 3, 3]]]])
    yield from call("max_pool2d", [ties], [2, 2], [2, 2], [0, 0], [1, 1], False, True, None)
    for size in [[3], [4], [9]]:
        yield from call("adaptive_max_pool1d", [x(1, 2, 7)], *size)
        yield from call("adaptive_avg_pool1d", [x(1, 2, 7)], *size)
    for size in [[2, 3], [3, 2], [1, 1]]:
        yield from call("adaptive_max_pool2d", [x(1, 2, 4, 5)], *size)
        yield from call("adaptive_avg_pool2d", [x(1, 2, 4, 5)], *size)
    plain = [2, 2], [2, 2], [0, 0], [1, 1], False, True, None
    for name in ["max_pool2d_backward", "avg_pool2d_backward"]:
        yield from call(name, [x(1, 2, 2, 2), x(1, 2, 4, 4)], *plain, ways=2)
    for name in ["max_pool1d_backward", "avg_pool1d_backward"]:
        plain = [2], [2], [0], [1], False, True, None
        yield from call(name, [x(1, 2, 3), x(1, 2, 6)], *plain, ways=2)
    for name in ["adaptive_max_pool1d_backward", "adaptive_avg_pool1d_backward"]:
        yield from call(name, [x(1, 2, 3), x(1, 2, 7)], 3, ways=2)
    for name in ["adaptive_max_pool2d_backward", "adaptive_avg_pool2d_backward"]:
        yield from call(name, [x(1, 2, 2, 3), x(1, 2, 4, 5)], 2, 3, ways=2)


def attention():
    name = "scaled_dot_product_attention"
    masks = [[], [mask(3, 5)], [x(3, 5)], [x(1, 5)], [mask(2, 3, 5)], [x(2, 1, 5)]]
    for causal, others in itertools.product([0, 1, 2], masks):
        operands = [x(2, 3, 4), x(2, 5, 4), x(2, 5, 2), *others]
        yield from call(name, operands, causal, None, ways=2)
    for q, k, v in [
        ((3, 4), (5, 4), (5, 4)),
        ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)),
        ((2, 2, 2, 3), (1, 2, 3, 3), (2, 2, 3, 2)),
        ((1, 4, 2, 4), (1, 2, 3, 4), (1, 2, 3, 4)),
        ((4, 3, 4), (1, 3, 4), (1, 3, 4)),
    ]:
        for causal in [0, 1, 2]:
            yield from call(name, [x(*q), x(*k), x(*v)], causal, 0.75)
    # Two queries see no key.
    yield from call(name, [x(1, 5, 4), x(1, 3, 4), x(1, 3, 4)], 2, None)
    for others in [[x(5, 9)], [mask(5, 9)]]:
        operands = [x(1, 5, 8, among=INNER), x(1, 9, 8), x(1, 9, 4), *others]
        yield from call(name, operands, 0, None, ways=2)
    for interleaved in [False, True]:
        for shape, angles in [((3, 4), (3, 2)), ((2, 3, 5), (3, 2)), ((1, 2, 2, 6), (2, 2))]:
            operands = [x(*shape), x(*angles, among=SHARES), x(*angles, among=POSITIVE)]
            yield from call("rotary", operands, interleaved)


def larger():
    """Sizes for which lapidary has kernels of other forms. The adapter runs all of these."""
    yield from call("matmul", [x(17, 20), x(20, 18)], ways=1)
    yield from call("matmul", [x(2, 1, 36), x(36, 20)], ways=1)
    yield from call("linear", [x(9, 20), x(12, 20), x(12)], ways=1)
    one = [1, 1], [1, 1], [1, 1]
    yield from call("conv2d", [x(1, 8, 7, 7), x(8, 8, 3, 3), x(8)], *one, 1, ways=1)
    yield from call("conv1d", [x(1, 4, 40), x(6, 4, 3), x(6)], [2], [1], [1], 1, ways=1)
    plain = [2, 2], [2, 2], [0, 0], [1, 1], False, True, None
    yield from call("max_pool2d", [x(1, 1, 16, 16)], *plain, ways=1)
    operands = [x(1, 18, 8), x(1, 40, 8), x(1, 40, 8)]
    yield from call("scaled_dot_product_attention", operands, 2, None, ways=1)
    yield from call("layer_norm", [x(2, 130), x(130), x(130)], [130], 1e-3, ways=1)
    yield from call("rms_norm", [x(2, 130), x(130)], [130], 1e-3, ways=1)
    yield from call("batch_norm_train", [x(2, 4, 20), x(4), x(4)], 1e-3, ways=1)
    yield from call("cross_entropy", [x(2, 150), ints([7, 149])], "mean", None, 0, ways=1)
    for name in ["softmax", "log_softmax", "cumsum", "cummax"]:
        yield from call(name, [x(1, 150)], 1, ways=1)
    for name, *options in [("sum",), ("mean",), ("max",), ("logsumexp",), ("var", 1), ("norm", 2)]:
        yield from call(name, [x(2, 150)], *options, [1], ways=1)
        yield from call(name, [x(150, 2)], *options, [0], ways=1)
    yield from call("sort", [x(2, 40)], 1, True, ways=1)
    yield from call("embedding", [x(40, 6), below(40, 60)], ways=1)
    yield from call("scatter_add", [x(4, 30), below(30, 4, 50), x(4, 50)], 1, ways=1)
