"""training.py LAYERS WIDTH HEADS LENGTH BATCH WORDS [cpu|cuda]: a step of benches/training in PyTorch.

Prints the peak of a step in bytes, and the seconds of the best step. The peak is that of all bytes
that PyTorch's allocator has given out: parameters, AdamW's state, gradients, activations, and
temporaries within operations. On the CPU its profiler records each allocation and release of a
step; to them are added the tensors that were there before. The allocator of CUDA counts by itself,
also what it has reserved. A warm-up has made the state of AdamW.
"""

import json
import pathlib
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

LAYERS, WIDTH, HEADS, LENGTH, BATCH, WORDS = map(int, sys.argv[1:7])
DEVICE = sys.argv[7] if len(sys.argv) > 7 else "cpu"
STEPS = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        qkv = self.qkv(self.norm(x)).view(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(BATCH * LENGTH, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        x = self.words(words).view(BATCH, LENGTH, WIDTH) + self.positions
        x = x.view(BATCH * LENGTH, WIDTH)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def peak_of(step, before):
    """The most bytes alive during a step, if `before` bytes are alive when it begins."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    memory = [event for event in events if event.get("name") == "[memory]"]
    memory.sort(key=lambda event: event["ts"])
    now = most = before
    for event in memory:
        now += event["args"]["Bytes"]
        most = max(most, now)
    assert abs(now - before) < 1e6, f"{now - before} bytes more after the step"
    return most


def finish():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def main():
    torch.manual_seed(1)
    torch.set_num_threads(2)
    torch.set_default_device(DEVICE)
    model = Model()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = [(at * at // 3 + at) % WORDS for at in range(BATCH * LENGTH + 1)]
    words, following = torch.tensor(text[:-1]), torch.tensor(text[1:])

    def step():
        loss = F.cross_entropy(model(words), following)
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)

    best = float("inf")
    for _ in range(STEPS):
        finish()
        start = time.perf_counter()
        step()
        finish()
        best = min(best, time.perf_counter() - start)
    state = [value for values in adam.state.values() for value in values.values()]
    there = [*model.parameters(), *state, words, following]
    before = sum(tensor.untyped_storage().nbytes() for tensor in there)
    print(f"PyTorch {torch.__version__} ({DEVICE}): base_bytes {before}", end=" ")
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
        step()
        peak = torch.cuda.max_memory_allocated()
        print(f"reserved_bytes {torch.cuda.max_memory_reserved()}", end=" ")
    else:
        peak = peak_of(step, before)
    print(f"peak_bytes {peak} seconds_per_step {best:.5f}")


main()
