"""gradients.py: computes with PyTorch the gradients for tests/torch/gradients.rs.

It writes gradients.jsonl.gz in this folder, a case a line. A case is a program: operands, a view
of each, steps that call operations, and the gradient of the last result to begin with. The
results are the gradients of the operands. `Program` in gradient_format.py describes it, and the
functions of gradient_cases.py, gradient_layers.py, gradient_indices.py and gradient_programs.py
are the groups of cases. gradient_calls.py has PyTorch's function for each operation; the tables
in tests/torch/gradients have lapidary's.

PyTorch computes in f64. A case whose gradients in f32 differ by more than half of what the test
allows is refused, since it would test rounding. Elements are sixteenths, and drawn by the case's
name: a case that did not change is the same again.

The file is committed, so only this script needs PyTorch: pip install torch==2.5.1 numpy.
"""

import collections
import gzip
import io
import pathlib
import sys

import torch

# No folder of compiled modules beside the data.
sys.dont_write_bytecode = True

import gradient_cases as cases
import gradient_indices as places
import gradient_layers as layers
from gradient_format import Unsound, line
from gradient_programs import programs

GROUPS = [
    cases.unary, cases.scalars, cases.edges, cases.binary, cases.ternary, cases.reductions,
    cases.scans, cases.norms, cases.losses, layers.products, layers.convolutions, layers.pools,
    layers.attention, layers.larger, places.indices, places.shapes, places.in_place, programs,
]  # fmt: skip


def main():
    torch.set_num_threads(1)
    lines, refused, counts = {}, [], collections.Counter()
    for group in GROUPS:
        for program in group():
            try:
                made = line(group.__name__, program)
            except Unsound as error:
                refused.append(str(error))
                continue
            # Views that a shape does not have repeat a case.
            if made not in lines:
                counts[group.__name__] += 1
            lines[made] = None
    assert not refused, "\n".join(refused)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0, compresslevel=9) as file:
        file.write("".join(made + "\n" for made in lines).encode())
    path = pathlib.Path(__file__).with_name("gradients.jsonl.gz")
    path.write_bytes(packed.getvalue())
    for group, count in counts.items():
        print(f"{count:5} {group}")
    print(f"{len(lines):5} cases, {path.stat().st_size} bytes")


main()
