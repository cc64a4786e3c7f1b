"""values.py [GROUP ...]: computes with PyTorch the values for tests/torch.rs.

Each function below is a group. It yields cases: a name, the operands, and PyTorch's results. The
group's cases go to GROUP.jsonl in this folder, one a line. The table of calls in
tests/torch/GROUP.rs has an entry of the same name for each.

The group of elementwise operations takes PyTorch's functions from gradient_calls.py. It and the
groups of networks and rows compute in f64, and their files are packed.

The files are committed, so only this script needs PyTorch: pip install torch==2.5.1 numpy. A group
whose function did not change gives the same file again, but for the last digits on another
processor.
"""

import gzip
import io
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

# No folder of compiled modules beside the data.
sys.dont_write_bytecode = True

from gradient_calls import OF_ONE, OF_TWO, WITH_OPTIONS
from values_networks import networks
from values_rows import rows

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
    """Different floats around 0 that are exact in every type."""
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
    a, b, row = numbers(2, 3), numbers(2, 4, seed=1), numbers(3, seed=2)
    yield "hstack", [a, b], torch.hstack([a, b])
    yield "hstack of vectors", [row, row[:2]], torch.hstack([row, row[:2]])
    yield "vstack", [a, row], torch.vstack([a, row])
    yield "tensor_split", [b], b.tensor_split(3, 1)
    yield "tensor_split_at", [b], b.tensor_split((1, -2, 7), 1)
    yield "diag", [row], row.diag(-1)
    yield "diag of a matrix", [b], b.diag(1)
    yield "outer", [row, b[0]], row.outer(b[0])
    yield "eye_with", [], torch.eye(2, 3)
    counts = ints([2, 0, 3])
    yield "repeat_interleave_by", [a, counts], a.repeat_interleave(counts.long(), 1)
    yield "one_hot, no count", [counts], F.one_hot(counts.long()).float()


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
    yield "nonzero", [x[0].relu()], x[0].relu().nonzero()
    rows, flags = torch.tensor([True, False, True]), x[0] > 0
    yield "index, mask of rows", [x, rows], x[rows]
    yield "index, mask of two axes", [x, mask], x[:, mask]
    yield "index_put, mask", [x, rows, x[1]], x.index_put((rows,), x[1])
    values = numbers(4, 5, seed=4)
    yield "masked_scatter", [x[0], flags, values], x[0].masked_scatter(flags, values)
    edges, values = numbers(8).sort().values, numbers(3, 4, seed=3)
    yield "search_sorted", [edges, values], torch.searchsorted(edges, values)
    yield "search_sorted, right", [edges, edges], torch.searchsorted(edges, edges, right=True)


def reductions():
    x = numbers(3, 5)
    yield "max_with_indices", [x], x.max(1)
    yield "min_with_indices", [x], x.min(0)
    yield "argmax_keepdim", [x], x.argmax(1, keepdim=True)
    yield "argmin_keepdim", [x], x.argmin(0, keepdim=True)
    yield "argmax_all", [x], x.argmax()
    yield "argmin_all", [x], x.argmin()
    yield "max_with_indices_keepdim", [x], x.max(1, keepdim=True)
    yield "min_with_indices_keepdim", [x], x.min(0, keepdim=True)
    yield "max_with_indices_all", [x], [x.max(), x.argmax()]
    yield "min_with_indices_all", [x], [x.min(), x.argmin()]
    yield "var, a fraction", [x], x.var(1, correction=0.5)
    yield "var, less than none", [x], x.var((0, 1), correction=-2)
    yield "std, two", [x], x.std(0, correction=2, keepdim=True)
    yield "norm", [x], x.norm(2, dim=1)
    far = numbers(3, 9) * torch.tensor([[1], [40], [0.01]])
    yield "logcumsumexp", [far], far.logcumsumexp(1)
    number, index = torch.tensor(2.5), torch.tensor(0)
    yield "sum of a number", [number], number.sum(-1)
    yield "softmax of a number", [number], number.softmax(0)
    yield "sort of a number", [number], number.sort(0)
    yield "cumsum of a number", [number], number.cumsum(-1)
    yield "gather of a number", [number, index], number.gather(0, index)


def losses():
    x, share = numbers(4, 5).sigmoid(), numbers(4, 5, seed=1).sigmoid()
    yield "binary_cross_entropy", [x, share], F.binary_cross_entropy(x, share)
    weight = numbers(5, seed=3)
    yield "binary_cross_entropy_weighted", [x, share, weight], F.binary_cross_entropy(
        x, share, weight
    )
    loss = F.binary_cross_entropy_with_logits(x, share, weight, pos_weight=weight.abs())
    operands = [x, share, weight, weight.abs()]
    yield "binary_cross_entropy_with_logits_weighted", operands, loss
    yield "l1_loss", [x, share], F.l1_loss(x, share)
    loss = F.smooth_l1_loss(x, share, beta=0.25, reduction="none")
    yield "smooth_l1_loss", [x, share], loss
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


def layers():
    x, edges = numbers(1, 3, 8, 7), {"stride": 2, "padding": 1, "ceil_mode": True}
    window, line = (3, 2), numbers(1, 2, 9)
    dilated = dict(edges, dilation=(2, 1))
    yield "max_pool2d, dilated", [x], F.max_pool2d(x, window, return_indices=True, **dilated)
    strange = x.clone()
    strange[0, 0, 0, :2] = math.nan
    strange[0, 0, 2:4, 2:4] = -math.inf
    yield "max_pool2d, NaN", [strange], F.max_pool2d(strange, 2, return_indices=True)
    yield "avg_pool2d, rounded up", [x], F.avg_pool2d(x, window, **edges)
    inside = dict(edges, count_include_pad=False)
    yield "avg_pool2d, without padding", [x], F.avg_pool2d(x, window, **inside)
    yield "avg_pool2d, a divisor", [x], F.avg_pool2d(x, window, divisor_override=5, **edges)
    yield "avg_pool1d", [line], F.avg_pool1d(line, 3, **edges)
    yield "adaptive_avg_pool2d", [x], F.adaptive_avg_pool2d(x, (3, 4))
    yield "adaptive_max_pool2d", [x], F.adaptive_max_pool2d(x, (3, 9), return_indices=True)
    yield "adaptive_avg_pool1d", [line[0]], F.adaptive_avg_pool1d(line[0], 4)
    for name, call in [
        ("avg_pool2d_backward", lambda x: F.avg_pool2d(x, window, **inside)),
        ("max_pool2d_backward", lambda x: F.max_pool2d(x, window, **dilated)),
        ("adaptive_avg_pool2d_backward", lambda x: F.adaptive_avg_pool2d(x, (3, 5))),
    ]:
        leaf = x.clone().requires_grad_()
        y = call(leaf)
        grad = numbers(*y.shape, seed=1)
        yield name, [grad, x], torch.autograd.grad(y, leaf, grad)
    weight = numbers(2, 3, 2, 2, seed=2)
    yield "conv2d, one sample", [x[0], weight], F.conv2d(x[0], weight)
    taps, bias = numbers(3, 2, 2, seed=3), numbers(3, seed=4)
    yield "conv1d, one sample", [line[0], taps, bias], F.conv1d(line[0], taps, bias)
    row = numbers(2, 3, 5)
    for mode in ["reflect", "replicate", "circular"]:
        yield f"pad, {mode}", [row], F.pad(row, (2, 1), mode=mode)
    image = numbers(1, 2, 3, 4)
    yield "pad, two axes", [image], F.pad(image, (3, 2, 1, 2), mode="reflect")
    mean, variance = numbers(3, seed=5), numbers(3, seed=6) ** 2
    scale, shift = numbers(3, seed=7), numbers(3, seed=8)
    known = F.batch_norm(x, mean, variance, scale, shift)
    yield "batch_norm", [x, mean, variance, scale, shift], known
    running = [mean.clone(), variance.clone()]
    batch = F.batch_norm(x, *running, scale, shift, training=True, momentum=0.25)
    yield "batch_norm_train", [x, scale, shift, mean, variance], [batch, *running]
    half = x.half()
    flat = F.batch_norm(half.float(), None, None, training=True).half()
    yield "batch_norm_train, halves", [half], flat
    leaf, factor = x.clone().requires_grad_(), scale.clone().requires_grad_()
    term = shift.clone().requires_grad_()
    y = F.batch_norm(leaf, None, None, factor, term, training=True)
    grad = numbers(*y.shape, seed=9)
    grads = torch.autograd.grad(y, [leaf, factor, term], grad)
    yield "batch_norm_backward", [grad, x, scale], grads
    bytes_ = wholes(4, 30, below=256).byte()
    yield "matmul of u8", [bytes_, bytes_.T.contiguous()], bytes_ @ bytes_.T
    signed = wholes(3, 9, below=256, seed=1).to(torch.int8)
    yield "matmul of i8", [signed, signed.T.contiguous()], signed @ signed.T


def slopes():
    """Gradients of the operands that are floats, for a given gradient of the result."""

    def case(name, operands, call):
        leaves = [
            x.clone().requires_grad_() if x.is_floating_point() else x for x in operands
        ]
        y = call(*leaves)
        grad = numbers(*y.shape, seed=20)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        return name, [*operands, grad], [y.detach(), *torch.autograd.grad(y, wanted, grad)]

    x, weight, bias = numbers(2, 4, 3, 4), numbers(4, 3, 2, 3, seed=1) / 8, numbers(6, seed=2)
    yield case(
        "conv_transpose2d", [x, weight, bias],
        lambda x, w, b: F.conv_transpose2d(x, w, b, (3, 2), (1, 2), (2, 0), 2, (2, 1)),
    )
    plain = numbers(4, 6, 2, 3, seed=1) / 8
    yield case(
        "conv_transpose2d, dilated", [x, plain],
        lambda x, w: F.conv_transpose2d(x, w, None, 1, 0, (1, 2), 1, (2, 3)),
    )
    line, taps = numbers(3, 5, seed=3), numbers(3, 2, 4, seed=4) / 8
    yield case(
        "conv_transpose1d", [line, taps, bias[:2]],
        lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1),
    )
    near = numbers(5, 4, 2, 3, seed=1) / 8
    yield case(
        "conv2d, same", [x, near],
        lambda x, w: F.conv2d(x, w, padding="same", dilation=(1, 2)),
    )
    taps = numbers(2, 3, 4, seed=4) / 8
    yield case("conv1d, same", [line, taps], lambda x, w: F.conv1d(x, w, padding="same"))
    scale, shift = numbers(4, seed=5), numbers(4, seed=6)
    yield case("instance_norm", [x, scale, shift], lambda x, w, b: F.instance_norm(
        x, weight=w, bias=b
    ))
    yield case("normalize", [x], lambda x: F.normalize(x, p=3.0, dim=1))
    zeros = torch.tensor([[0.0, 0.0], [3.0, -4.0]])
    yield case("normalize of zeros", [zeros], lambda x: F.normalize(x, dim=-1))
    far = numbers(3, 9) * torch.tensor([[1], [40], [0.01]])
    yield case("logcumsumexp", [far], lambda x: x.logcumsumexp(1))
    yield case("logcumsumexp, columns", [far], lambda x: x.logcumsumexp(0))
    tokens = ints([[1, 0, 2], [0, 1, 1]])
    table = numbers(3, 2, seed=7)
    yield case(
        "embedding_with", [table, tokens], lambda x, i: F.embedding(i.long(), x, padding_idx=1)
    )
    target = numbers(2, 4, 3, 4, seed=8)
    yield case("smooth_l1_loss", [x, target], lambda x, t: F.smooth_l1_loss(x, t, beta=2.0))
    yield case("l1_loss", [x, target], lambda x, t: F.l1_loss(x, t, reduction="sum"))
    mask = numbers(3, 9, seed=9) > 0
    source = numbers(4, 7, seed=10)
    yield case("masked_scatter", [far, mask, source], lambda x, m, s: x.masked_scatter(m, s))
    rows = torch.tensor([True, False, True])
    yield case("index, mask of rows", [far, rows], lambda x, m: x[m])
    counts = ints([2, 0, 3])
    yield case(
        "repeat_interleave_by", [far, counts], lambda x, c: x.repeat_interleave(c.long(), 0)
    )
    yield case("diag", [scale], lambda x: x.diag(2))
    yield case("max_with_indices_all", [far], lambda x: x.max())
    yield case("std, a fraction", [far], lambda x: x.std(1, correction=0.5))


def folds():
    x = numbers(3, 6)
    strange = x.clone()
    strange[1, 2] = math.nan
    strange[2, :3] = -math.inf
    yield "cummax", [strange], strange.cummax(1)
    yield "cummin", [strange], strange.cummin(0)
    steps = wholes(4, 9, below=3)
    yield "cummax, equal ones", [steps], steps.cummax(1)
    yield "cummin, equal ones", [steps], steps.cummin(1)
    number = torch.tensor(2.5)
    yield "cummax of a number", [number], number.cummax(0)
    places = wholes(3, 6, below=4)
    onto = numbers(3, 7, seed=1)
    ints_, onto_ints = wholes(3, 6, seed=2) - 5, wholes(3, 7, seed=3) - 5
    for reduce in ["sum", "prod", "mean", "amax", "amin"]:
        for include_self in [True, False]:
            to = {"reduce": reduce, "include_self": include_self}
            name = f"{reduce}, with self" if include_self else reduce
            made = onto.scatter_reduce(1, places.long(), strange, **to)
            yield name, [onto, places, strange], made
            made = onto_ints.scatter_reduce(1, places.long(), ints_, **to)
            yield f"{name}, of i32", [onto_ints, places, ints_], made
    truths, onto_truths = ints_ > 0, onto_ints > 0
    added = onto_truths.scatter_add(1, places.long(), truths)
    yield "scatter_add of bools", [onto_truths, places, truths], added


INF, NAN = math.inf, math.nan
LARGEST, LEAST = torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny
ULP = torch.finfo(torch.float32).eps
ODD = [
    *[0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.75, -7.25, 1e-3, -1e-6, 0.3333, 100.0],
    *[-100.0, 1e4, -1e4, 65504.0, 1e30, -1e30, LARGEST, LEAST, 1e-40, -1e-45, INF, -INF, NAN],
]
# Numbers around 0, large and small ones, those near 1, tails, and parts of waves.
OF_LINE = [
    *ODD,
    *[n * 0.4904 for n in range(-50, 51)],
    *[n * 611.7 for n in range(0, 50, 3)],
    *[base ** (n * n // step) * sign for n in range(1, 20) for base, step, sign in
      [(0.9, 2, 1), (0.8, 3, -1)]],
    *[value for n in range(1, 25) for value in [1 - 0.5**n, 0.5**n - 1, 0.5**n]],
    *[n * 0.155 for n in range(1, 60)],
    *[n * 0.25 + 1e-3 for n in range(40)],
    *[round(1.37**n) for n in range(1, 60, 4)],
]  # fmt: skip
PAIRED = [
    *[0.0, 1.0, 0.7, 2.5, 3.0, 7.0, 100.0, 1e4, 1e-3, 1e30, LARGEST, LEAST, INF, NAN],
    *[1 - ULP / 2, 1 + ULP, 0.46, 501.0, 1.7e7],
]  # fmt: skip
COUNTED = {
    torch.int32: [-(2**31), 2**31 - 1, -1001, -18, -3, -1, 0, 1, 2, 12, 31, 32, 97, 360],
    torch.uint8: [0, 1, 2, 3, 7, 8, 12, 97, 100, 128, 200, 255],
    torch.int8: [-128, -127, -18, -3, -1, 0, 1, 2, 7, 8, 60, 96, 127],
}
COMPOSED = {
    "clamp": [1, 2], "leaky_relu": [0.25], "elu": [1.5], "celu": [1.5], "hardtanh": [-2, 3],
    "threshold": [1.5, -2], "hardshrink": [0.5], "softshrink": [0.5],
}  # fmt: skip


def kept_nan(call):
    """NaN stays NaN in lapidary."""
    return lambda x, *others: torch.where(x.isnan(), x, call(x, *others))


OTHERWISE = {
    "sign": kept_nan(torch.sign),
    "softshrink": kept_nan(lambda x: F.softshrink(x, 0.5)),
    "heaviside": kept_nan(torch.heaviside),
    # The difference loses digits even in f64.
    "tanhshrink": lambda x: torch.where(
        x.abs() < 0.01, x**3 / 3 - x**5 * 2 / 15 + x**7 * 17 / 315, F.tanhshrink(x)
    ),
    # The quotient of infinity is infinite.
    "floor_divide": lambda a, b: torch.where(
        a.isinf(), a / b, torch.div(a, b, rounding_mode="floor")
    ),
}
VIEWS = ["squeeze", "t", "flatten", "contiguous", "cast and back"]
NOT_ELEMENTWISE = "matmul gelu_backward prelu masked_select embedding".split()
ASKED = {
    "is_nan": torch.isnan,
    "is_inf": torch.isinf,
    "is_finite": torch.isfinite,
    "signbit": torch.signbit,
    "logical_not": torch.logical_not,
}
COMPARED = {
    name: getattr(torch, name)
    for name in "eq ne lt le gt ge logical_and logical_or logical_xor".split()
}
OF_ONE_WHOLE = {
    **{name: getattr(torch, name) for name in "neg abs sign square relu bitwise_not".split()},
    **ASKED,
}
OF_WHOLE = {
    **{
        name: getattr(torch, name)
        for name in """add sub mul maximum minimum heaviside lcm remainder pow bitwise_and
        bitwise_or bitwise_xor""".split()
    },
    # In PyTorch the divisor of the least number has its sign.
    "gcd": lambda a, b: torch.gcd(a.long(), b.long()).to(a.dtype),
    **COMPARED,
    "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift,
    "div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "rem": torch.fmod,
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}


def exactly(call, *operands):
    """The results in f64 of operands in f32, as f32."""
    return call(*[operand.double() for operand in operands]).float()


def composed():
    """Operations on two or three elements, and on channels."""
    generator = torch.Generator().manual_seed(5)
    odd = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -0.3333, 100.0, 1e-3, INF, NAN])
    draw = lambda: torch.cat([odd[torch.randperm(10, generator=generator)], torch.randn(
        190, generator=generator)])  # fmt: skip
    a, b, c = draw(), draw(), draw()
    yield "lerp", [a, b, c], exactly(torch.lerp, a, b, c)
    yield "lerp of a number", [a, b], exactly(lambda a, b: torch.lerp(a, b, 0.25), a, b)
    yield "addcmul", [a, b, c], exactly(lambda a, b, c: torch.addcmul(a, b, c, value=-0.5), a, b, c)
    yield "addcdiv", [a, b, c], exactly(lambda a, b, c: torch.addcdiv(a, b, c, value=2), a, b, c)
    odd = torch.tensor([0.0, -0.0, 1.0, 1.001, 1.01, -1.0, 1e-9, 1e30, 1.0005e30, INF, -INF, NAN])
    a, b = [axis.flatten().contiguous() for axis in torch.meshgrid(odd, odd, indexing="ij")]
    for number, tolerances in enumerate([(1e-5, 1e-8), (2e-3, 0.0), (0.0, 0.5), (0.0, 0.0)]):
        for equal_nan in [False, True]:
            given = torch.tensor([*tolerances, equal_nan])
            made = torch.isclose(a, b, *tolerances, equal_nan)
            yield f"is_close of {number} {equal_nan}", [a, b, given], made
    x = torch.tensor(ODD[:24]).reshape(2, 3, 4)
    slopes = torch.tensor([0.25, 0.0, -2.0])
    for weight in [slopes, slopes[:1]]:
        yield f"prelu of {len(weight)}", [x, weight], exactly(F.prelu, x, weight)
    x = ((torch.arange(96) - 48) * 0.21).reshape(4, 6, 4)
    for axis in [0, 1, -1]:
        y = exactly(lambda x: F.glu(x, axis), x)
        yield f"glu of {axis}", [x, torch.tensor([axis], dtype=torch.int32)], y


def elementwise():
    x = torch.tensor(OF_LINE)
    calls = {name: call for name, call in OF_ONE.items() if name not in VIEWS}
    for name, options in COMPOSED.items():
        calls[name] = lambda x, name=name, options=options: WITH_OPTIONS[name]([x], options)
    for name, call in calls.items():
        yield name, [x], exactly(OTHERWISE.get(name, call), x)
    for name, call in ASKED.items():
        yield name, [x], call(x)
    line = torch.tensor([sign * value for value in PAIRED for sign in [1, -1]])
    a, b = [axis.flatten().contiguous() for axis in torch.meshgrid(line, line, indexing="ij")]
    calls = {name: call for name, call in OF_TWO.items() if name not in NOT_ELEMENTWISE}
    for name, call in {**calls, "heaviside": torch.heaviside}.items():
        yield name, [a, b], exactly(OTHERWISE.get(name, call), a, b)
    for name, call in COMPARED.items():
        yield name, [a, b], call(a, b)
    yield from composed()
    for dtype, values in COUNTED.items():
        line = torch.tensor(values, dtype=dtype)
        for name, call in OF_ONE_WHOLE.items():
            yield f"{name} of {NAMES[dtype]}", [line], call(line)
        a, b = [axis.flatten() for axis in torch.meshgrid(line, line, indexing="ij")]
        for name, call in OF_WHOLE.items():
            # PyTorch refuses 0, and the quotient of the least number and -1 ends its process.
            may = torch.ones_like(a, dtype=torch.bool)
            if name in ["div", "rem", "remainder", "floor_divide"]:
                may = (b != 0) & ((a > a.min()) | (b.int() != -1))
            if name == "lcm":
                may = (a > a.min()) | (a == 0)
            if name == "pow":
                may &= b >= 0
            yield f"{name} of {NAMES[dtype]}", [a[may], b[may]], call(a[may], b[may])


GROUPS = [elementwise, networks, rows, shapes, indexing, reductions, losses, layers, slopes, folds]

# Groups with large files.
PACKED = ["elementwise", "networks", "rows"]


def number(value):
    """A number, or its name if JSON does not have it."""
    if isinstance(value, int):
        return int(value)
    return value if math.isfinite(value) else str(value)


def tensor(x, digits):
    values = [number(value) for value in x.flatten().tolist()]
    if x.is_floating_point() and digits < 17:
        # The nearest f32 is the same.
        values = [v if isinstance(v, str) else float(f"{v:.{digits}g}") for v in values]
    return {"dtype": NAMES[x.dtype], "shape": list(x.shape), "values": values}


def main():
    folder = pathlib.Path(__file__).parent
    wanted = sys.argv[1:]
    for group in GROUPS:
        name = group.__name__
        if wanted and name not in wanted:
            continue
        lines, before = [], None
        for case, operands, results in group():
            results = [results] if isinstance(results, torch.Tensor) else list(results)
            digits = 9 if name in PACKED else 17
            # Enough for sums of f32.
            short = 7 if name == "rows" else digits
            line = {
                "case": case,
                "operands": [tensor(operand, digits) for operand in operands],
                "results": [tensor(result, short) for result in results],
            }
            if name in PACKED:
                # Nothing, if they are those of the line before.
                same, before = line["operands"] == before, line["operands"]
                line["operands"] = None if same else before
            lines.append(json.dumps(line) + "\n")
        if name in PACKED:
            packed = io.BytesIO()
            with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
                file.write("".join(lines).encode())
            (folder / f"{name}.jsonl.gz").write_bytes(packed.getvalue())
        else:
            (folder / f"{name}.jsonl").write_text("".join(lines))


main()
