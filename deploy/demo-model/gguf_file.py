"""The part of GGUF v3 that the demo model needs: writing and reading metadata, F32 and Q8_0 tensors.

Layout: magic, version, counts; metadata; tensor table (name, shape with the fastest dimension first, type, offset);
tensor data, each tensor aligned. See the GGUF specification of the ggml project.
"""
import struct

import numpy as np

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
TENSOR_F32, TENSOR_Q8_0 = 0, 8
BLOCK = 32
KEPT_WHOLE = ("position_embd.weight", "token_types.weight", "ffn_gate_inp.weight")  # small, and routing needs all bits
SCALARS = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q"}


def padded(size):
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def pack_value(kind, value):
    if kind == STRING:
        data = value.encode("utf-8")
        return struct.pack("<Q", len(data)) + data
    if kind == ARRAY:
        item_kind, items = value
        return struct.pack("<IQ", item_kind, len(items)) + b"".join(pack_value(item_kind, i) for i in items)
    return struct.pack(SCALARS[kind], value)


def quantise_q8_0(matrix):
    """[rows, columns] f32 -> bytes: per 32 columns a half-precision scale and 32 signed bytes."""
    blocks = matrix.astype(np.float32).reshape(-1, BLOCK)
    scale = np.abs(blocks).max(axis=1) / np.float32(127)
    inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0).astype(np.float32)
    scaled = blocks * inverse[:, None]
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    packed = np.zeros(len(blocks), dtype=[("scale", "<f2"), ("values", "i1", BLOCK)])
    packed["scale"], packed["values"] = scale, rounded
    return packed.tobytes()


def dequantise_q8_0(data, shape):
    blocks = np.frombuffer(data, dtype=[("scale", "<f2"), ("values", "i1", BLOCK)])
    return (blocks["scale"].astype(np.float64)[:, None] * blocks["values"]).reshape(shape)


def tensor_bytes(name, array):
    if array.ndim == 1 or array.shape[-1] % BLOCK != 0 or name.endswith(KEPT_WHOLE):
        return TENSOR_F32, array.astype("<f4").tobytes()
    return TENSOR_Q8_0, quantise_q8_0(array)


def write(path, metadata, tensors):
    """metadata: [(key, kind, value)]; tensors: {name: array}; vectors and a few small matrices stay F32, the others become Q8_0."""
    table, body, offset = b"", [], 0
    for name, array in tensors.items():
        kind, data = tensor_bytes(name, array)
        dims = array.shape[::-1]
        table += pack_value(STRING, name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        body.append(data.ljust(padded(len(data)), b"\0"))
        offset += padded(len(data))
    head = MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(metadata))
    head += b"".join(pack_value(STRING, key) + struct.pack("<I", kind) + pack_value(kind, value) for key, kind, value in metadata)
    head += table
    with open(path, "wb") as file:
        file.write(head.ljust(padded(len(head)), b"\0"))
        file.writelines(body)


class Reader:
    """Metadata in `metadata`, tensors as float64 arrays in `tensors`."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0
        if self.data[:4] != MAGIC:
            raise ValueError(f"{path} is not a GGUF file")
        self.at = 4
        version, num_tensors, num_keys = self.take("<IQQ")
        if version != VERSION:
            raise ValueError(f"{path} has GGUF version {version}, this reads {VERSION}")
        self.metadata = {}
        for _ in range(num_keys):
            key = self.value(STRING)
            self.metadata[key] = self.value(self.take("<I")[0])
        table = [self.tensor_entry() for _ in range(num_tensors)]
        start = padded(self.at)
        self.tensors = {name: self.load(shape, kind, start + offset) for name, shape, kind, offset in table}

    def take(self, layout):
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values

    def value(self, kind):
        if kind == STRING:
            size, = self.take("<Q")
            self.at += size
            return self.data[self.at - size:self.at].decode("utf-8")
        if kind == ARRAY:
            item_kind, count = self.take("<IQ")
            return [self.value(item_kind) for _ in range(count)]
        return self.take(SCALARS[kind])[0]

    def tensor_entry(self):
        name = self.value(STRING)
        num_dims, = self.take("<I")
        dims = self.take(f"<{num_dims}Q")
        kind, offset = self.take("<IQ")
        return name, dims[::-1], kind, offset

    def load(self, shape, kind, at):
        count = int(np.prod(shape))
        if kind == TENSOR_F32:
            return np.frombuffer(self.data, "<f4", count, at).astype(np.float64).reshape(shape)
        if kind == TENSOR_Q8_0:
            return dequantise_q8_0(self.data[at:at + count // BLOCK * (BLOCK + 2)], shape)
        raise ValueError(f"tensor type {kind} is not read here")
