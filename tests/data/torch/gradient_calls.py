"""What the steps of gradients.py do: PyTorch's functions under the names of lapidary's methods.

A function takes the tensors and the options of a step. A name that ends with `_` and is not here
is the function without `_`, whose result is written through the first tensor.
"""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

OF_ONE = {
    **{
        name: getattr(torch, name)
        for name in """neg abs sign square relu exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin
        cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv sinc logit deg2rad
        rad2deg floor ceil round trunc frac sigmoid selu squeeze""".split()
    },
    **{
        name: getattr(F, name)
        for name in """silu gelu softplus softsign mish hardsigmoid hardswish tanhshrink
        relu6""".split()
    },
    "recip": torch.reciprocal,
    "ndtr": torch.special.ndtr,
    "log_sigmoid": F.logsigmoid,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "t": lambda x: x.t(),
    "flatten": lambda x: x.flatten(),
    "contiguous": lambda x: x.contiguous(),
    "cast and back": lambda x: x.half().to(x.dtype),
}

OF_TWO = {
    **{
        name: getattr(torch, name)
        for name in """add sub mul div remainder atan2 hypot copysign maximum minimum fmax fmin
        logaddexp logaddexp2 xlogy pow matmul""".split()
    },
    "rem": torch.fmod,
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "xlog1py": torch.special.xlog1py,
    "gelu_backward": torch.ops.aten.gelu_backward,
    "prelu": F.prelu,
    "masked_select": torch.masked_select,
    "embedding": lambda x, indices: x[indices.long()],
}

# Where a function is defined, if not at all elements: lists of gradient_format.py.
DOMAINS = {
    **dict.fromkeys("log log2 log10 sqrt rsqrt recip".split(), "POSITIVE"),
    **dict.fromkeys("asin acos atanh erfinv tan".split(), "INNER"),
    **dict.fromkeys("exp exp2".split(), "SMALL"),
    "logit": "SHARES",
    "acosh": "ABOVE_ONE",
    "log1p": "ABOVE_MINUS_ONE",
}
# The same for the second operand of a function.
SECOND = {
    **dict.fromkeys("div rem remainder floor_divide".split(), "AWAY"),
    **dict.fromkeys("xlogy xlog1py".split(), "POSITIVE"),
    "pow": "SMALL",
}

WITH_NUMBER = """add sub mul div rem remainder floor_divide atan2 hypot copysign maximum minimum
fmax fmin logaddexp logaddexp2 xlogy xlog1py pow""".split()


def of_two(call):
    """The second operand may be an option: a number of the first one's type."""
    return lambda t, o: call(*t, *[torch.full_like(t[0], number).detach() for number in o])


WITH_OPTIONS = {
    "copy": lambda t, o: t[-1].clone(),
    "fill": lambda t, o: torch.full_like(t[0], o[0]),
    "number less": lambda t, o: o[0] - t[0],
    "number by": lambda t, o: o[0] / t[0],
    "clamp": lambda t, o: t[0].clamp(*o),
    "hardtanh": lambda t, o: F.hardtanh(t[0], *o),
    "threshold": lambda t, o: F.threshold(t[0], *o),
    "hardshrink": lambda t, o: F.hardshrink(t[0], *o),
    "softshrink": lambda t, o: F.softshrink(t[0], *o),
    "leaky_relu": lambda t, o: F.leaky_relu(t[0], *o),
    "elu": lambda t, o: F.elu(t[0], *o),
    "celu": lambda t, o: F.celu(t[0], *o),
    "nan_to_num": lambda t, o: t[0].nan_to_num(*o),
    "where": lambda t, o: torch.where(t[0], t[1], t[2]),
    "where, number first": lambda t, o: torch.where(t[0], o[0], t[1]),
    "where, number last": lambda t, o: torch.where(t[0], t[1], o[0]),
    "masked_fill": lambda t, o: t[0].masked_fill(t[1], o[0]),
    "lerp": lambda t, o: torch.lerp(*torch.broadcast_tensors(*t), *o),
    "addcmul": lambda t, o: torch.addcmul(*t, value=o[0]),
    "addcdiv": lambda t, o: torch.addcdiv(*t, value=o[0]),
    "tril": lambda t, o: t[0].tril(o[0]),
    "triu": lambda t, o: t[0].triu(o[0]),
    "glu": lambda t, o: F.glu(t[0], o[0]),
}


def product_over(x, axes, keep):
    """The product over several axes, of which PyTorch takes one at a time."""
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = x.prod(axis, keep)
    return x


REDUCTIONS = {
    "sum": lambda x, o, axes, keep: x.sum(axes, keep),
    "mean": lambda x, o, axes, keep: x.mean(axes, keep),
    "prod": lambda x, o, axes, keep: product_over(x, axes, keep),
    "max": lambda x, o, axes, keep: x.amax(axes, keep),
    "min": lambda x, o, axes, keep: x.amin(axes, keep),
    "logsumexp": lambda x, o, axes, keep: x.logsumexp(axes, keep),
    "var": lambda x, o, axes, keep: x.var(axes, correction=o[0], keepdim=keep),
    "std": lambda x, o, axes, keep: x.std(axes, correction=o[0], keepdim=keep),
    "norm": lambda x, o, axes, keep: torch.linalg.vector_norm(x, float(o[0]), axes, keep),
}


def reductions():
    """Each in three forms. The axes are the last option."""
    for name, call in REDUCTIONS.items():
        yield name, lambda t, o, call=call: call(t[0], o, o[-1], False)
        yield f"{name}_keepdim", lambda t, o, call=call: call(t[0], o, o[-1], True)
        every = lambda x: list(range(x.dim()))
        yield f"{name}_all", lambda t, o, call=call: call(t[0], o, every(t[0]), False)


def affine(t, first):
    """The optional weight and bias of a norm."""
    return (list(t[first:]) + [None, None])[:2]


def batch_norm(t, o):
    """PyTorch gives no gradients of the statistics, so this is its formula."""
    x, *others = t
    own = lambda value: value.reshape([1, -1] + [1] * (x.dim() - 2))
    mean, variance, *weights = [own(other) for other in others]
    y = (x - mean) / (variance + o[0]).sqrt()
    if weights:
        y = y * weights[0]
    return y + weights[1] if weights[1:] else y


def batch_norm_train(t, o):
    # PyTorch's backward reads a weight as if it were contiguous.
    weights = affine([t[0], *(weight.contiguous() for weight in t[1:])], 1)
    return F.batch_norm(t[0], None, None, *weights, training=True, eps=o[0])


AXES = {
    **dict(reductions()),
    "max_with_indices": lambda t, o: t[0].max(o[0]).values,
    "min_with_indices": lambda t, o: t[0].min(o[0]).values,
    "cumsum": lambda t, o: t[0].cumsum(o[0]),
    "cumprod": lambda t, o: t[0].cumprod(o[0]),
    "cummax": lambda t, o: t[0].cummax(o[0]).values,
    "cummin": lambda t, o: t[0].cummin(o[0]).values,
    "sort": lambda t, o: t[0].sort(stable=True, dim=o[0], descending=o[1]).values,
    "top_k": lambda t, o: t[0].topk(*o).values,
    "softmax": lambda t, o: t[0].softmax(o[0]),
    "log_softmax": lambda t, o: t[0].log_softmax(o[0]),
    "layer_norm": lambda t, o: F.layer_norm(t[0], o[0], *affine(t, 1), eps=o[1]),
    "rms_norm": lambda t, o: F.rms_norm(t[0], o[0], *t[1:], eps=o[1]),
    "group_norm": lambda t, o: F.group_norm(t[0], o[0], *affine(t, 1), eps=o[1]),
    "batch_norm": batch_norm,
    "batch_norm_train": batch_norm_train,
}


def class_targets(t):
    return t[1] if t[1].is_floating_point() else t[1].long()


def class_loss(loss, t, reduction, ignore, **options):
    weight = t[2] if len(t) > 2 else None
    ignore = {} if ignore is None else {"ignore_index": ignore}
    return loss(t[0], class_targets(t), weight, reduction=reduction, **ignore, **options)


def logits_loss(t, o):
    weight = t[2] if len(t) > 2 else None
    loss = F.binary_cross_entropy_with_logits
    return loss(t[0], t[1], pos_weight=weight, reduction=o[0])


def two(t):
    return torch.broadcast_tensors(*t)


LOSSES = {
    "mse_loss": lambda t, o: F.mse_loss(*two(t), reduction=o[0]),
    "binary_cross_entropy": lambda t, o: F.binary_cross_entropy(*two(t), reduction=o[0]),
    "binary_cross_entropy_with_logits": logits_loss,
    "nll_loss": lambda t, o: class_loss(F.nll_loss, t, o[0], o[1]),
    "cross_entropy": lambda t, o: class_loss(F.cross_entropy, t, o[0], o[1], label_smoothing=o[2]),
}


def epilogue(t, o):
    """Options: which of columns, bias and residual there are, a factor, an activation."""
    given, factor, activation = o
    rest = iter(t[2:])
    columns, bias, residual = [next(rest) if has else None for has in given]
    y = t[0] @ t[1] * factor
    y = y if columns is None else y * columns
    y = y if bias is None else y + bias
    y = OF_ONE.get(activation, lambda y: y)(y)
    return y if residual is None else y + residual


def attention(t, o):
    """Options: 0 for all keys, 1 for the first key, 2 for the last key; the scale."""
    q, k, v, *masks = t
    causal, scale = o
    groups = q.shape[-3] // k.shape[-3] if q.dim() > 2 else 1
    if groups > 1:
        k, v = (x.repeat_interleave(groups, -3) for x in (k, v))
    queries, keys = q.shape[-2], k.shape[-2]
    mask = masks[0] if masks else None
    if causal:
        shift = 0 if causal == 1 else keys - queries
        sees = torch.ones(queries, keys, dtype=torch.bool).tril(shift)
        if mask is None:
            mask = sees
        elif mask.dtype == torch.bool:
            mask = mask & sees
        else:
            mask = mask.masked_fill(~sees, -torch.inf)
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def rotary(t, o):
    x, cos, sin = t
    pairs = cos.shape[1]
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if o[0]:
        a, b = turned[..., ::2], turned[..., 1::2]
    else:
        a, b = turned[..., :pairs], turned[..., pairs:]
    parts = [a * cos - b * sin, a * sin + b * cos]
    turned = torch.stack(parts, -1).flatten(-2) if o[0] else torch.cat(parts, -1)
    return torch.cat([turned, rest], -1)


def convolution(call):
    """Options: stride, padding, dilation, groups."""
    return lambda t, o: call(t[0], t[1], t[2] if len(t) > 2 else None, *o)


def max_pool(call):
    """Options of pools: kernel, stride, padding, dilation, rounded up, padding counts, divisor."""
    return lambda t, o: call(t[0], *o[:5])


def avg_pool(call):
    def pool(t, o):
        kernel, stride, padding, _, ceil, counts, divisor = o
        last = () if divisor is None else (divisor,)
        return call(t[0], kernel, stride, padding, ceil, counts, *last)

    return pool


def quantized(t, o):
    return t[0] @ (t[1].to(t[2].dtype) * t[2][:, None]).T


LAYERS = {
    "linear": lambda t, o: F.linear(*t),
    "matmul_with": epilogue,
    "matmul_quantized": quantized,
    "einsum": lambda t, o: torch.einsum(o[0], *t),
    "scaled_dot_product_attention": attention,
    "rotary": rotary,
    "conv1d": convolution(F.conv1d),
    "conv2d": convolution(F.conv2d),
    "max_pool1d": max_pool(F.max_pool1d),
    "max_pool2d": max_pool(F.max_pool2d),
    "avg_pool1d": avg_pool(F.avg_pool1d),
    "avg_pool2d": avg_pool(F.avg_pool2d),
    "adaptive_max_pool1d": lambda t, o: F.adaptive_max_pool1d(t[0], o),
    "adaptive_max_pool2d": lambda t, o: F.adaptive_max_pool2d(t[0], o),
    "adaptive_avg_pool1d": lambda t, o: F.adaptive_avg_pool1d(t[0], o),
    "adaptive_avg_pool2d": lambda t, o: F.adaptive_avg_pool2d(t[0], o),
}


def picked(t, given):
    """The index tensors of `x[i, :, j]`: the option says at which axes they are."""
    rest = iter(t)
    return tuple(next(rest).long() if has else slice(None) for has in given)


def index_put(t, o):
    indices = [index if isinstance(index, torch.Tensor) else None for index in picked(t[1:], o[0])]
    return torch.ops.aten.index_put(t[0], indices, t[-1], o[1])


def first_selected(t, o):
    x, mask = two(t)
    chosen = x.masked_select(mask)
    return torch.cat([chosen, torch.zeros(o[0], dtype=x.dtype)])[: o[0]]


def take_along(t, o):
    """As `gather`, but other axes broadcast."""
    x, indices = t
    axis = o[0] % x.dim()
    common = list(torch.broadcast_shapes(
        [1 if at == axis else size for at, size in enumerate(x.shape)],
        [1 if at == axis else size for at, size in enumerate(indices.shape)],
    ))
    of = lambda y: y.broadcast_to(common[:axis] + [y.shape[axis]] + common[axis + 1 :])
    return of(x).gather(axis, of(indices).long())


INDICES = {
    "gather": lambda t, o: t[0].gather(o[0], t[1].long()),
    "take_along": take_along,
    "index_select": lambda t, o: t[0].index_select(o[0], t[1].long()),
    "scatter": lambda t, o: t[0].scatter(o[0], t[1].long(), t[2]),
    "scatter_add": lambda t, o: t[0].scatter_add(o[0], t[1].long(), t[2]),
    "index_add": lambda t, o: t[0].index_add(o[0], t[1].long(), t[2]),
    "scatter_reduce": lambda t, o: t[0].scatter_reduce(
        o[0], t[1].long(), t[2], o[1], include_self=o[2]
    ),
    "index": lambda t, o: t[0][picked(t[1:], o[0])],
    "index_put": index_put,
    "masked_select_first": first_selected,
}


def sides(widths):
    """PyTorch wants the widths of the last axis first."""
    return [side for width in reversed(widths) for side in width]


def pad_with(t, o):
    """PyTorch pads the last axes of a tensor with one or two more."""
    widths, mode = o
    x, first = t[0], next(at for at, width in enumerate(widths) if any(width))
    lead = x.shape[:first]
    made = F.pad(x.reshape(1, -1, *x.shape[first:]), sides(widths[first:]), mode)
    return made.reshape(*lead, *made.shape[2:])


SHAPES = {
    "transpose": lambda t, o: t[0].transpose(*o),
    "permute": lambda t, o: t[0].permute(o[0]),
    "slice": lambda t, o: t[0].transpose(0, o[0])[o[1] : o[2] : o[3]].transpose(0, o[0]),
    "narrow": lambda t, o: t[0].narrow(*o),
    "select": lambda t, o: t[0].select(*o),
    "squeeze_axis": lambda t, o: t[0].squeeze(o[0]),
    "unsqueeze": lambda t, o: t[0].unsqueeze(o[0]),
    "flip": lambda t, o: t[0].flip(o[0]),
    "broadcast_to": lambda t, o: t[0].broadcast_to(o[0]),
    "view_as": lambda t, o: t[0].view(o[0]),
    "reshape": lambda t, o: t[0].reshape(o[0]),
    "reshape_infer": lambda t, o: t[0].reshape(o[0]),
    "flatten_axes": lambda t, o: t[0].flatten(*o),
    "movedim": lambda t, o: t[0].movedim(*o),
    "diagonal": lambda t, o: t[0].diagonal(*o),
    "unfold": lambda t, o: t[0].unfold(*o),
    "unflatten": lambda t, o: t[0].unflatten(*o),
    "unbind": lambda t, o: t[0].unbind(o[0])[o[1]],
    "split": lambda t, o: t[0].split(o[0], o[1])[o[2]],
    "split_sizes": lambda t, o: t[0].split(o[0], o[1])[o[2]],
    "chunk": lambda t, o: t[0].chunk(o[0], o[1])[o[2]],
    "concat": lambda t, o: torch.cat(t, o[0]),
    "stack": lambda t, o: torch.stack(t, o[0]),
    "pad": lambda t, o: F.pad(t[0], sides(o[0]), value=o[1]),
    "pad_with": pad_with,
    "repeat": lambda t, o: t[0].repeat(o[0]),
    "repeat_interleave": lambda t, o: t[0].repeat_interleave(*o),
    "roll": lambda t, o: t[0].roll(*o),
}


def backward_of(call, is_only=False):
    """The gradient of `call`, as an operation on the result's gradient and the inputs. The last
    option says with respect to which input, unless there is only one."""

    def gradient(t, o):
        options, number = (o, 0) if is_only else (o[:-1], o[-1])
        y = call(t[1:], options)
        return torch.autograd.grad(y, t[1 + number], t[0], create_graph=True)[0]

    return gradient


BACKWARDS = {
    "softmax_backward": lambda t, o: t[1] * (t[0] - (t[0] * t[1]).sum(o[0], True)),
    "log_softmax_backward": lambda t, o: t[0] - t[1].exp() * t[0].sum(o[0], True),
    "layer_norm_backward": backward_of(AXES["layer_norm"]),
    "batch_norm_backward": backward_of(batch_norm_train),
    "conv1d_backward": backward_of(LAYERS["conv1d"]),
    "conv2d_backward": backward_of(LAYERS["conv2d"]),
    **{
        f"{name}_backward": backward_of(LAYERS[name], is_only=True)
        for name in LAYERS
        if "pool" in name
    },
}

CALLS = {
    **{name: lambda t, o, call=call: call(t[0]) for name, call in OF_ONE.items()},
    **{name: of_two(call) for name, call in OF_TWO.items()},
    **WITH_OPTIONS,
    **AXES,
    **LOSSES,
    **LAYERS,
    **INDICES,
    **SHAPES,
    **BACKWARDS,
}


def call(name, tensors, options):
    """The result of a step."""
    if name in CALLS:
        made = CALLS[name](tensors, options)
        if name == "flip":
            # PyTorch copies here. A write goes to what was copied too.
            made.flipped = tensors[0], options[0]
        return made
    target = tensors[0]
    made = CALLS[name.removesuffix("_")]([target.clone(), *tensors[1:]], options)
    if hasattr(target, "flipped"):
        original, axes = target.flipped
        original.copy_(torch.broadcast_to(made, target.shape).flip(axes))
    return target.copy_(made)
