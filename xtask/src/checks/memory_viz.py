"""Runs PyTorch's own _memory_viz.py on pickles of snapshots and checks what its viewer assumes.

usage: memory_viz.py FOLDER-OF-_memory_viz FOLDER-OF-SNAPSHOTS

Beside each NAME.pickle is NAME.json, the snapshot itself. Both must have the same totals.
"""

import contextlib
import io
import json
import pathlib
import pickle
import pickletools
import sys

sys.path.insert(0, sys.argv[1])
import _memory_viz  # noqa: E402

# The opcodes of protocols 2 to 4 that the viewer's own unpickler knows.
KNOWN = set(
    """PROTO EMPTY_DICT EMPTY_LIST EMPTY_TUPLE MARK APPEND APPENDS SETITEM SETITEMS TUPLE TUPLE1 TUPLE2 TUPLE3
    LIST DICT NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINGET
    LONG_BINGET BINPUT LONG_BINPUT MEMOIZE FRAME STOP""".split()
)
PUSHES = set(
    """EMPTY_DICT EMPTY_LIST NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINUNICODE SHORT_BINUNICODE BINGET
    LONG_BINGET""".split()
)


def check_opcodes(data):
    items = [0]
    for opcode, value, _ in pickletools.genops(data):
        name = opcode.name
        assert name in KNOWN, f"the viewer does not know {name}"
        if name == "PROTO":
            assert 2 <= value <= 4, value
        if name in ("BININT", "LONG1"):
            assert 0 <= value <= 2**53, f"{value} is no number in JavaScript"
        if name == "MARK":
            items.append(0)
        elif name == "APPENDS":
            count = items.pop()
            assert count <= 1000, f"{count} arguments of one call"
        elif name == "SETITEMS":
            assert items.pop() % 2 == 0
        elif name == "TUPLE2":
            items[-1] -= 1
        elif name in PUSHES:
            items[-1] += 1
    assert items == [1], items


def within(address, size, segments):
    return any(a <= address and address + size <= a + s for a, s in segments)


def check_blocks(data):
    for segment in data["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address, (block, address)
            assert 0 <= block["requested_size"] <= block["size"]
            assert block["state"] in ("active_allocated", "active_pending_free", "inactive")
            address += block["size"]
        assert address == segment["address"] + segment["total_size"], segment["address"]


def check_backwards(data):
    """The viewer goes back from the current blocks, one event at a time."""
    segments = {(s["address"], s["total_size"]) for s in data["segments"]}
    live = {
        b["address"]: b["requested_size"]
        for s in data["segments"]
        for b in s["blocks"]
        if b["state"] == "active_allocated"
    }
    (events,) = data["device_traces"]
    completed = set()
    for event in reversed(events):
        action, size = event["action"], event["size"]
        if action == "oom":
            assert "device_free" in event
            continue
        address = event["addr"]
        if action == "segment_free":
            segments.add((address, size))
        elif action == "segment_alloc":
            segments.remove((address, size))
        elif action == "free_completed":
            assert address not in live, hex(address)
            live[address] = size
            completed.add(address)
        elif action == "free_requested":
            completed.remove(address)
        elif action == "alloc":
            assert live.pop(address) == size, hex(address)
        else:
            raise AssertionError(action)
        assert all(key in event for key in ("stream", "time_us", "frames"))
        if not action.startswith("segment"):
            assert within(address, size, segments), hex(address)
    assert not completed
    return sum(live.values())


def check_forwards(data, live_bytes):
    times = [event["time_us"] for event in data["device_traces"][0]]
    assert times == sorted(times)
    for event in data["device_traces"][0]:
        live_bytes += {"alloc": 1, "free_completed": -1}.get(event["action"], 0) * event["size"]
    return live_bytes


def sum_of(lines, part):
    found = [line for line in lines.splitlines() if part(line)]
    return sum(int(line.rsplit(" ", 1)[1]) for line in found)


def check(path):
    raw = path.read_bytes()
    check_opcodes(raw)
    data = pickle.loads(raw)
    stats = json.loads(path.with_suffix(".json").read_text())["stats"]
    requested, reserved = stats["requested_bytes"]["now"], stats["reserved_bytes"]["now"]
    check_blocks(data)
    began_with = check_backwards(data)
    assert check_forwards(data, began_with) == requested

    as_is = lambda lines: lines  # noqa: E731
    summary = _memory_viz.segsum(data)
    assert f"segments: {len(data['segments'])}\n" in summary
    assert f"total_reserved: {_memory_viz.Bytes(reserved)}\n" in summary, summary
    assert f"total_allocated: {_memory_viz.Bytes(requested)}\n" in summary, summary
    for flame in (_memory_viz.memory(data, as_is), _memory_viz.segments(data, as_is)):
        of_tensors = lambda line: ";active_allocated;" in line and "<gaps>" not in line  # noqa: E731
        assert sum_of(flame, of_tensors) == requested
        assert sum_of(flame, lambda _: True) == reserved
    told = _memory_viz.trace(data)
    allocs = [e for e in data["device_traces"][0] if e["action"] == "alloc"]
    assert told.count(" = ") - told.count("cudaMalloc") == len(allocs)
    with contextlib.redirect_stdout(io.StringIO()):
        gained = _memory_viz.compare([], data["segments"], as_is)
        same = _memory_viz.compare(data["segments"], data["segments"], as_is)
    assert sum_of(gained, lambda _: True) == reserved and same == ""
    for plot in (_memory_viz.trace_plot(data), _memory_viz.segment_plot(data)):
        assert "add_local_files" in plot
    print(f"{path.name}: {len(data['segments'])} segments, {len(allocs)} allocations, {requested} bytes")


def main():
    pickles = sorted(pathlib.Path(sys.argv[2]).glob("*.pickle"))
    assert len(pickles) >= 2, f"there are no snapshots in {sys.argv[2]}"
    for path in pickles:
        check(path)
    print(f"{len(pickles)} snapshots read")


main()
