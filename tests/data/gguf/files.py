"""files.py: writes the files for tests/model/gguf.rs with llama.cpp's package.

`every.gguf` has a tensor of each type that lapidary loads, and metadata of each type.
`every.safetensors` has the same tensors as f32, which that package computed. `small.gguf`, where
fuzzing begins, has few of them.

The files are committed, so only this script needs: pip install gguf==0.19.0 safetensors numpy
"""

import pathlib

import gguf
import numpy
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent
CORPUS = FOLDER.parents[2] / "fuzz" / "corpus" / "model_file"
SHAPE = (2, 512)
PLAIN = {
    Type.F32: numpy.float32,
    Type.F16: numpy.float16,
    Type.F64: numpy.float64,
    Type.I8: numpy.int8,
    Type.I16: numpy.int16,
    Type.I32: numpy.int32,
    Type.I64: numpy.int64,
}
BLOCKS = [
    (Type.Q4_0, [0]),
    (Type.Q4_1, [0, 2]),
    (Type.Q5_0, [0]),
    (Type.Q5_1, [0, 2]),
    (Type.Q8_0, [0]),
    (Type.Q4_K, [0, 2]),
    (Type.Q5_K, [0, 2]),
    (Type.Q6_K, [208]),
]


def blocks(random, kind, scales, shape=SHAPE):
    """Random blocks. Their scales, halves at these places, are small finite numbers."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = shape[0] * shape[1] // elements
    made = random.integers(0, 256, (count, size), dtype=numpy.uint8)
    for at in scales:
        halves = random.uniform(-0.5, 0.5, (count, 1)).astype(numpy.float16)
        made[:, at : at + 2] = halves.view(numpy.uint8)
    return made.reshape(shape[0], -1)


def main():
    random = numpy.random.default_rng(7)
    writer = gguf.GGUFWriter(FOLDER / "every.gguf", "llama")
    writer.add_uint8("test.u8", 250)
    writer.add_int8("test.i8", -5)
    writer.add_uint16("test.u16", 65000)
    writer.add_int16("test.i16", -500)
    writer.add_uint32("test.u32", 4_000_000_000)
    writer.add_int32("test.i32", -2_000_000_000)
    writer.add_uint64("test.u64", 18_000_000_000_000_000_000)
    writer.add_int64("test.i64", -9_000_000_000_000_000_000)
    writer.add_float32("test.f32", 0.5)
    writer.add_float64("test.f64", 1e300)
    writer.add_bool("test.bool", True)
    writer.add_string("test.text", "straße\n")
    writer.add_array("test.words", ["a", "", "b c"])
    writer.add_array("test.numbers", [1, 2, 3])
    expected = {}
    for kind, dtype in PLAIN.items():
        values = random.integers(-100, 100, SHAPE).astype(dtype)
        writer.add_tensor(kind.name, values)
        expected[kind.name] = values.astype(numpy.float32)
    bits = random.integers(0, 0x7F00, SHAPE, dtype=numpy.uint16)
    writer.add_tensor("BF16", bits.view(numpy.uint8), raw_dtype=Type.BF16)
    expected["BF16"] = (bits.astype(numpy.uint32) << 16).view(numpy.float32)
    for kind, scales in BLOCKS:
        made = blocks(random, kind, scales)
        writer.add_tensor(kind.name, made, raw_dtype=kind)
        expected[kind.name] = gguf.quants.dequantize(made, kind).astype(numpy.float32)
    write(writer)
    save_file(expected, FOLDER / "every.safetensors")

    writer = gguf.GGUFWriter(CORPUS / "small.gguf", "llama")
    writer.add_array("words", ["a", "bc"])
    writer.add_array("numbers", [1, 2])
    writer.add_float32("float", 0.5)
    writer.add_tensor("F32", numpy.arange(6, dtype=numpy.float32).reshape(2, 3))
    for kind, scales in BLOCKS[:1] + BLOCKS[-1:]:
        made = blocks(random, kind, scales, (1, 256))
        writer.add_tensor(kind.name, made, raw_dtype=kind)
    write(writer)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
