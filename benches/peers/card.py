"""card.py: the cases of benches/card in PyTorch on the same card, whose library is cuBLAS.

The sizes, the rounds and the counts of operations and bytes are those of benches/card. f32 is f32:
TF32 stays off. The best of the rounds counts; a round ends with a wait for the card.
"""

import time

import torch
from torch import nn
from torch.nn import functional as F

ROUNDS, SIZE, SIDE, ROWS, COLUMNS = 8, 4096, 8192, 16384, 4096


def best_of(call, calls):
    call()
    best = float("inf")
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def rate(name, amount, unit, call, calls=8):
    divisor = {"TFLOP/s": 1e12, "GB/s": 1e9}[unit]
    print(f"| {name} | {amount / best_of(call, calls) / divisor:.2f} {unit} |", flush=True)


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_default_device("cuda")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for dtype in (torch.float32, torch.float16):
        a, b = (torch.randn(SIZE, SIZE, dtype=dtype) for _ in range(2))
        rate(f"matmul {SIZE}, {dtype}", 2 * SIZE**3, "TFLOP/s", lambda: a @ b, 4)
    a, b, c, d = (torch.rand(SIDE, SIDE) for _ in range(4))
    half, size = a.half(), 4 * SIDE * SIDE
    chain = lambda a, b, c, d: torch.relu(a * b + c) * d
    rate("copy", 2 * size, "GB/s", lambda: a.clone())
    rate("transpose", 2 * size, "GB/s", lambda: a.t().contiguous())
    rate("add", 3 * size, "GB/s", lambda: a + b)
    rate("add a number, f16", size, "GB/s", lambda: half + 1.0)
    rate("relu(a*b+c)*d", 5 * size, "GB/s", lambda: chain(a, b, c, d))
    rate("gelu", 2 * size, "GB/s", lambda: F.gelu(a))
    rate("sum", size, "GB/s", lambda: a.sum())
    x, weight, size = torch.rand(ROWS, COLUMNS), torch.ones(COLUMNS), 8 * ROWS * COLUMNS
    rate("softmax", size, "GB/s", lambda: x.softmax(-1))
    rate("layer norm", size, "GB/s", lambda: F.layer_norm(x, (COLUMNS,), weight, weight))
    rate("rms norm", size, "GB/s", lambda: F.rms_norm(x, (COLUMNS,), weight, 1e-5))
    transfers()
    tiny = torch.arange(256.0)
    steps = 10_000

    def ones():
        y = tiny
        for _ in range(steps):
            y = y + 1.0
        return y.cpu()

    print(f"{steps} times x + 1, and a read: {1e6 * best_of(ones, 1) / steps:.2f} us each")
    for rows, inputs, hidden, classes in ((64, 784, 128, 10), (256, 784, 512, 10)):
        perceptron(rows, inputs, hidden, classes)


def transfers():
    for size in (1 << 20, 64 << 20):
        pageable, card = torch.rand(size // 4, device="cpu"), torch.rand(size // 4)
        pinned = pageable.pin_memory()
        for name, host in (("pageable", pageable), ("pinned", pinned)):
            rate(f"upload {size >> 20} MiB, {name}", size, "GB/s", lambda: card.copy_(host))
            rate(f"download {size >> 20} MiB, {name}", size, "GB/s", lambda: host.copy_(card))


def perceptron(rows, inputs, hidden, classes):
    """The step of benches/gradients."""
    x, labels = torch.randn(rows, inputs), torch.arange(rows) % classes
    model = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)

    def step():
        F.cross_entropy(model(x), labels).backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)

    seconds = best_of(step, 20)
    print(f"perceptron {rows} x {inputs}-{hidden}-{classes}: {1 / seconds:.0f} steps/s", flush=True)


main()
