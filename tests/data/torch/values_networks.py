"""The group `networks` of values.py: convolutions, poolings, attention, and sums of products.

A case's name begins with the call in tests/torch/networks.rs. Its options are the last operand.
PyTorch computes in f64, and the results are rounded to the case's type.
"""

import torch
import torch.nn.functional as F

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


class Draw:
    """Numbers of few bits, which are exact in every type. Each tensor has others."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, shape, dtype=F32):
        return (torch.randint(-64, 64, shape, generator=self.generator) / 32).to(dtype)


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


# Shapes of input and weight, stride, padding, dilation, groups, and the type.
CONVOLUTIONS = [
    ((2, 3, 8, 9), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1, F32),
    ((1, 6, 9, 7), (6, 1, 3, 2), (2, 1), (0, 2), (1, 3), 6, F32),
    ((2, 4, 11, 5), (6, 2, 1, 4), (3, 2), (2, 1), (2, 1), 2, F16),
    # Computed with matmul: many channels, and kernels of one pixel.
    ((2, 3, 6, 6), (70, 3, 3, 3), (2, 2), (1, 1), (1, 1), 1, F32),
    ((2, 5, 4, 6), (9, 5, 1, 1), (1, 1), (0, 0), (1, 1), 1, F16),
    ((1, 4, 7, 5), (6, 2, 3, 2), (1, 2), (1, 1), (1, 1), 2, BF16),
    # No samples, no channels.
    ((0, 3, 4, 4), (2, 3, 2, 2), (1, 1), (0, 0), (1, 1), 1, F32),
    ((2, 0, 4, 4), (2, 0, 3, 3), (1, 1), (0, 0), (1, 1), 1, F32),
    ((2, 3, 4, 4), (0, 3, 3, 3), (1, 1), (0, 0), (1, 1), 1, F32),
]


def convolution(x, w, b, *options):
    if 0 not in w.shape:
        return F.conv2d(x, w, b, *options)
    # PyTorch has no convolution without channels.
    return b[:, None, None] + x.sum(1, True)[:, :, 2:, 2:] * 0


def convolutions():
    for number, (shape, weight, *options, dtype) in enumerate(CONVOLUTIONS):
        draw = Draw(number)
        operands = draw(shape, dtype), draw(weight, dtype), draw(weight[:1], dtype)
        leaves = [operand.double().requires_grad_() for operand in operands]
        y = convolution(*leaves, *options)
        grad = draw(y.shape, dtype)
        grads = torch.autograd.grad(y, leaves, grad.double(), allow_unused=True)
        grads = [torch.zeros_like(x) if g is None else g for g, x in zip(grads, leaves)]
        *pairs, groups = options
        given = ints([value for pair in pairs for value in pair] + [groups])
        results = [result.detach().to(dtype) for result in [y, y, *grads]]
        yield f"conv2d: {number}", [*operands, grad, given], results


# Shapes of input and weight, stride, padding, output padding, dilation, groups.
TRANSPOSED = [
    ((2, 3, 4, 5), (3, 2, 3, 2), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    ((1, 4, 3, 2), (4, 3, 2, 3), (3, 2), (1, 2), (2, 1), (1, 2), 2),
    # More rows in addition than the stride has, which the dilation allows.
    ((2, 2, 2, 3), (2, 1, 2, 2), (1, 2), (0, 1), (2, 0), (3, 1), 2),
    # The padding cuts off more than the kernel adds.
    ((1, 2, 5, 5), (2, 3, 2, 1), (2, 1), (3, 1), (0, 0), (1, 1), 1),
    # No samples, and channels for matmul.
    ((0, 2, 2, 2), (2, 3, 2, 2), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    ((1, 3, 3, 3), (3, 66, 2, 2), (2, 2), (0, 0), (1, 1), (1, 1), 1),
]


def transposed():
    for number, (shape, weight, *pairs, groups) in enumerate(TRANSPOSED):
        for dtype in [F32, F16]:
            draw = Draw(number)
            operands = [draw(s, dtype) for s in [shape, weight, (weight[1] * groups,)]]
            stride, padding, more, dilation = pairs
            wide = [operand.double() for operand in operands]
            y = F.conv_transpose2d(*wide, stride, padding, more, groups, dilation).to(dtype)
            given = ints([value for pair in pairs for value in pair] + [groups])
            yield f"conv_transpose2d: {number} {dtype}", [*operands, given], [y, y]


# Kernel, stride, padding, dilation, rounded up, with padding in means, divisor.
POOLS = [
    ((2, 2), (2, 2), (0, 0), (1, 1), False, True, None),
    ((3, 2), (2, 1), (1, 1), (1, 1), False, True, None),
    ((2, 2), (3, 4), (0, 0), (1, 1), False, True, None),
    ((3, 2), (2, 1), (1, 1), (1, 1), False, False, None),
    ((3, 2), (2, 3), (1, 1), (1, 1), True, True, None),
    ((3, 3), (2, 2), (0, 1), (1, 1), True, False, None),
    ((3, 2), (2, 1), (1, 1), (1, 1), True, True, 5),
    ((2, 2), (1, 2), (1, 0), (2, 1), False, True, None),
]
# Its windows have a gap where the plane begins.
GAP = ((2, 3), (1, 1), (2, 3), (4, 3), False, True, None)


def padded_max(x, kernel, stride, padding, dilation, ceil_mode):
    """The maxima and their places. PyTorch takes less padding than lapidary."""
    if ceil_mode:
        return F.max_pool2d(x, kernel, stride, padding, dilation, True, True)
    (rows, columns), width = padding, x.shape[-1]
    wide = F.pad(x, (columns, columns, rows, rows), value=-torch.inf)
    y, places = F.max_pool2d(wide, kernel, stride, 0, dilation, return_indices=True)
    row, column = places // wide.shape[-1] - rows, places % wide.shape[-1] - columns
    return y, row * width + column


def padded_mean(x, kernel, stride, padding, dilation, ceil_mode, counts, divisor):
    if dilation == (1, 1):
        return F.avg_pool2d(x, kernel, stride, padding, ceil_mode, counts, divisor)
    y = F.unfold(x.flatten(0, 1)[:, None], kernel, dilation, padding, stride).mean(1)
    sizes = [
        (x.shape[2 + at] + 2 * padding[at] - dilation[at] * (kernel[at] - 1) - 1) // stride[at] + 1
        for at in range(2)
    ]
    return y.reshape(*x.shape[:2], *sizes)


def pooled(name, x, given, maximum, mean):
    leaf = x.double().requires_grad_()
    y, places = maximum(leaf)
    means = mean(leaf)
    grad = (torch.arange(y.numel()) % 7 - 2.0).reshape(y.shape)
    grads = [torch.autograd.grad(made, leaf, grad.double())[0] for made in [y, means]]
    made = [y, y, means, *grads]
    y, again, means, by_max, by_mean = [result.detach().to(x.dtype) for result in made]
    yield name, [x, grad, ints(given)], [y, again, places, means, by_max, by_mean]


def strange(shape):
    """Numbers with a NaN and an infinity."""
    x = Draw(len(shape))(shape)
    if x.numel() > 40:
        x.view(-1)[33], x.view(-1)[7] = torch.nan, -torch.inf
    return x


def pools():
    shapes = [(2, 3, 8, 9), (1, 1, 3, 3), (0, 2, 4, 4)]
    cases = [(pool, shape) for pool in POOLS for shape in shapes] + [(GAP, (1, 2, 5, 6))]
    for number, (pool, shape) in enumerate(cases):
        *pairs, ceil_mode, counts, divisor = pool
        given = [value for pair in pairs for value in pair] + [ceil_mode, counts, divisor or 0]
        yield from pooled(
            f"pool: {number}", strange(shape), given,
            lambda x: padded_max(x, *pool[:5]), lambda x: padded_mean(x, *pool),
        )  # fmt: skip
    for size in [(3, 4), (4, 3), (1, 1), (5, 9), (8, 9), (11, 2)]:
        yield from pooled(
            f"adaptive: {size}", strange((2, 3, 8, 9)), size,
            lambda x: F.adaptive_max_pool2d(x, size, True),
            lambda x: F.adaptive_avg_pool2d(x, size),
        )  # fmt: skip


# Shapes of queries, keys and values, which keys are seen, the mask's shape and type, the type.
SEEN = [
    ((5, 4), (7, 4), (7, 4), "all", None, None, F32),
    ((2, 3, 40, 8), (2, 3, 40, 8), (2, 3, 40, 8), "from first", None, None, F32),
    # One query, sizes that are not multiples of 4, more columns than elements.
    ((3, 1, 5), (3, 9, 5), (3, 9, 7), "all", None, None, F32),
    # Groups of heads, and a padding mask that is read as vec4s.
    ((2, 4, 33, 8), (2, 2, 36, 8), (2, 2, 36, 8), "all", (2, 1, 1, 36), torch.bool, F32),
    # Outer dimensions that broadcast, and one head of keys for all.
    ((3, 1, 2, 9, 4), (1, 2, 1, 11, 4), (2, 1, 11, 4), "from first", (9, 11), F32, F32),
    # The last queries of a cache; more queries than keys; one query, with the heads of a group as
    # rows.
    ((2, 4, 37, 8), (2, 2, 70, 8), (2, 2, 70, 12), "from last", (1, 4, 1, 70), torch.bool, F32),
    ((2, 9, 4), (2, 5, 4), (2, 5, 4), "from last", (9, 5), F32, F32),
    ((2, 3, 4), (2, 0, 4), (2, 0, 4), "from last", None, None, F32),
    ((2, 8, 1, 8), (2, 4, 65, 8), (2, 4, 65, 8), "from last", None, None, F32),
    ((2, 8, 1, 8), (1, 4, 65, 8), (2, 4, 65, 8), "from first", None, None, F32),
    ((2, 8, 1, 6), (2, 4, 65, 6), (2, 4, 65, 7), "all", (8, 1, 65), F16, F16),
    ((8, 1, 8), (65, 8), (65, 8), "all", (65,), F32, F32),
    ((2, 8, 1, 8), (2, 2, 33, 8), (2, 2, 33, 8), "from first", (2, 8, 1, 1), torch.bool, F32),
    # A batch with too many dimensions for the kernel.
    ((2, 1, 2, 1, 2, 1, 3, 4), (1, 2, 1, 2, 1, 2, 5, 4), (1, 2, 1, 2, 1, 2, 5, 4), "all", None,
     None, F32),
    ((2, 20, 8), (2, 21, 8), (2, 21, 8), "all", (1, 20, 1), torch.bool, F16),
    ((3, 2, 9, 4), (3, 1, 11, 4), (3, 1, 11, 4), "all", (9, 11), BF16, BF16),
    # No keys, no queries, empty values, empty queries and keys.
    ((2, 3, 4), (2, 0, 4), (2, 0, 4), "all", None, None, F32),
    ((2, 0, 4), (2, 3, 4), (2, 3, 4), "all", None, None, F32),
    ((2, 3, 4), (2, 3, 4), (2, 3, 0), "all", None, None, F32),
    ((2, 3, 0), (2, 3, 0), (2, 3, 4), "all", None, None, F32),
]  # fmt: skip


def attended(q, k, v, mask, seen):
    """With half of the product as the score. Queries that see nothing get zeros."""
    q, k, v = q.double(), k.double(), v.double()
    heads = lambda x: x.shape[-3] if x.dim() > 2 else 1
    of_keys = max(heads(k), heads(v))
    if 1 < of_keys < heads(q):
        again = lambda x: x.repeat_interleave(heads(q) // of_keys, -3) if heads(x) > 1 else x
        k, v = again(k), again(v)
    scores = q @ k.mT * 0.5
    queries, keys = scores.shape[-2:]
    at, key = torch.arange(queries)[:, None], torch.arange(keys)
    if seen == "from first":
        scores = scores.masked_fill(key > at, -torch.inf)
    if seen == "from last":
        scores = scores.masked_fill(key + queries > at + keys, -torch.inf)
    if mask is not None:
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -torch.inf) if is_bool else scores + mask.double()
    return scores.softmax(-1).nan_to_num(0.0) @ v


def attention():
    for number, (*shapes, seen, mask_shape, mask_type, dtype) in enumerate(SEEN):
        draw = Draw(number)
        operands, mask = [draw(shape, dtype) for shape in shapes], None
        if mask_shape:
            at = torch.arange(torch.Size(mask_shape).numel()).reshape(mask_shape)
            # In masks of bools, some rows are all false.
            is_seen = (at % 3 != 0) & (at // mask_shape[-1] != 2)
            mask = is_seen if mask_type == torch.bool else (at % 7 / 4 - 1).to(mask_type)
        y = attended(*operands, mask, seen).to(dtype)
        operands += [] if mask is None else [mask]
        yield f"attention: {seen}: {number}", operands, [y, y]


EQUATIONS = [
    ("ij,jk->ik", (5, 7), (7, 4)), ("ij,jk", (5, 7), (7, 4)), ("ba", (3, 4)), ("ii", (4, 4)),
    ("ii->i", (4, 4)), ("ijk->j", (3, 4, 5)), ("i,j->ij", (3,), (4,)), ("i,i->", (9,), (9,)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 8), (2, 3, 5, 8)),
    ("bqhd,bkhd->bhqk", (2, 4, 3, 8), (2, 5, 3, 8)),
    ("...ij,...jk->...ik", (2, 3, 4, 5), (3, 5, 6)), ("...ij,jk", (2, 4, 5), (5, 6)),
    ("b...,b->...", (3, 4, 5), (3,)), ("aij,bjk->ik", (2, 3, 4), (5, 4, 6)),
    ("ijkl,klmn->ijmn", (2, 3, 4, 5), (4, 5, 2, 3)), ("ij,ij->ij", (4, 5), (4, 5)),
    ("ij,kj->ik", (4, 1), (3, 5)), ("iij,jk->ki", (3, 3, 4), (4, 2)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), (" i j , j k -> i k ", (2, 0), (0, 3)),
    ("ij,jk->ik", (0, 2), (2, 3)), (",i->i", (), (3,)),
]  # fmt: skip

# Rows, columns, and batches that broadcast.
MATMULS = [
    ((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((2, 3, 5), (5,)), ((3, 4), (4, 2)),
    ((3, 7, 5), (3, 5, 4)), ((3, 7, 5), (1, 5, 4)), ((1, 7, 5), (3, 5, 4)), ((5, 1, 6), (1, 6, 9)),
    ((2, 1, 3, 4), (1, 3, 4, 5)), ((6, 5), (2, 3, 5, 4)), ((33, 31), (31, 65)),
    ((2, 1, 2, 1, 2, 1, 3, 4), (1, 2, 1, 2, 1, 2, 4, 2)),
    ((3, 0), (0, 5)), ((0, 3), (3, 5)), ((5, 3), (3, 0)), ((0, 0), (0, 0)), ((2, 3, 0, 4), (2, 3, 4, 5)),
]  # fmt: skip


def products():
    for number, (equation, *shapes) in enumerate(EQUATIONS):
        draw = Draw(number)
        operands = [draw(shape) for shape in shapes]
        y = torch.einsum(equation, *[operand.double() for operand in operands])
        yield f"einsum: {equation}: {number}", operands, y.float()
        whole = [(operand * 4).round().int() for operand in operands]
        y = torch.einsum(equation, *[operand.double() for operand in whole])
        yield f"einsum: {equation}: {number} of i32", whole, y.int()
    for number, shapes in enumerate(MATMULS):
        draw = Draw(number)
        operands = [draw(shape) for shape in shapes]
        yield f"matmul: : {number}", operands, torch.matmul(*[x.double() for x in operands]).float()
    words = torch.tensor([[2**31 - 1, 2], [-3, -(2**31)]]).int()
    yield "matmul: : words", [words, words], words @ words


def networks():
    for group in [convolutions, transposed, pools, attention, products]:
        yield from group()
