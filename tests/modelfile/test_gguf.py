import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import ModelError, ModelInvalid, ModelNotFound, PairMismatch
from edgespec.modelfile.gguf import read_header
from edgespec.modelfile.header import check_pair, read_model, unchanged
from edgespec.modelfile.quants import TYPES


def write_model(path: Path, *, tokens: int = 40, eos: int = 2, layers: int = 2, first: str = "t", **extra: int) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_block_count, layers), (writer.add_embedding_length, 32), (writer.add_head_count, 2),
        (writer.add_head_count_kv, 1), (writer.add_feed_forward_length, 64), (writer.add_context_length, 128),
    ):  # fmt: skip
        add(value)
    for name, value in extra.items():
        writer.add_uint32(f"llama.{name}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"{first}{i}" for i in range(tokens)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(eos)
    for layer in range(layers):
        writer.add_tensor(f"blk.{layer}.attn_q.weight", np.ones((32, 32), np.float32))
    writer.add_tensor("token_embd.weight", np.ones((tokens, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("gguf") / "m.gguf")


def test_type_table_is_the_engines() -> None:
    for number, (name, block, size) in TYPES.items():
        kind = gguf.GGMLQuantizationType(number)
        assert (kind.name, gguf.GGML_QUANT_SIZES[kind]) == (name, (block, size))


def test_reads_what_the_reference_writer_wrote(model: Path) -> None:
    header = read_model(model)
    reference = {t.name: (int(t.data_offset), int(t.n_bytes)) for t in gguf.GGUFReader(model).tensors}
    assert {t.name: (t.offset, t.size) for t in header.tensors} == reference
    assert (header.layers, header.width, header.kv_heads, header.key_size) == (2, 32, (1, 1), 16)
    assert header.vocabulary.tokens[3] == b"t3"
    assert unchanged(header.files[0])


def test_truncated_at_any_byte_is_refused(model: Path, tmp_path: Path) -> None:
    data = model.read_bytes()
    end = max(t.offset + t.size for t in read_model(model).tensors)
    path = tmp_path / "cut.gguf"
    for length in [*range(0, 1500), *range(1500, end, 97), end - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ModelInvalid):
            read_model(path)


@given(place=st.integers(0, 1400), value=st.binary(min_size=1, max_size=8))
def test_a_damaged_header_is_refused_or_read_never_a_crash(
    model: Path, tmp_path_factory: pytest.TempPathFactory, place: int, value: bytes
) -> None:
    data = bytearray(model.read_bytes())
    data[place : place + len(value)] = value
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(data)
    try:
        header = read_model(path)
    except ModelError:
        return
    assert all(t.offset + t.size <= len(data) for t in header.tensors)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git-LFS"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"GGUF" + struct.pack("<I", 1), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0), "absurd number of tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "absurd number of fields"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62) + b"x" * 64, "absurd number of characters"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"aI" + b"\0" * 64, "unknown field type"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 9, 5) + b"\0" * 64, "nested arrays"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 17) + b"general.alignment" + struct.pack("<II", 4, 3), "power of two"),
    ],
)  # fmt: skip
def test_strange_files_are_refused_with_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "strange.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelInvalid, match=reason):
        read_model(path)


def tensor_file(path: Path, *infos: tuple[str, tuple[int, ...], int, int], size: int = 4096) -> Path:
    data = b"GGUF" + struct.pack("<IQQ", 3, len(infos), 0)
    for name, shape, kind, offset in infos:
        data += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
        data += struct.pack(f"<{len(shape)}QIQ", *shape, kind, offset)
    path.write_bytes(data.ljust(size, b"\0"))
    return path


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (("w", (32, 2**46), 0, 0), "impossible dimensions"),
        (("w", (2**40, 2**40), 0, 0), "impossible dimensions"),
        (("w", (0,), 0, 0), "impossible dimensions"),
        (("w", (31,), 2, 0), "impossible dimensions"),
        (("w", (32,), 77, 0), "unknown type"),
        (("w", (32,), 0, 7), "not aligned"),
        (("w", (32,), 0, 2**40), "outside the file"),
        (("w", (1, 1, 1, 1, 1), 0, 0), "5 dimensions"),
    ],
)  # fmt: skip
def test_impossible_tensors_are_named(tmp_path: Path, info: tuple[str, tuple[int, ...], int, int], reason: str) -> None:
    with pytest.raises(ModelInvalid, match=reason):
        read_header(tensor_file(tmp_path / "t.gguf", info))


def test_overlapping_and_twin_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelInvalid, match="overlaps"):
        read_header(tensor_file(tmp_path / "o.gguf", ("a", (64,), 0, 0), ("b", (64,), 0, 128)))
    with pytest.raises(ModelInvalid, match="share a name"):
        read_header(tensor_file(tmp_path / "n.gguf", ("a", (8,), 0, 0), ("a", (8,), 0, 128)))


def test_missing_file_and_folder() -> None:
    with pytest.raises(ModelNotFound, match="no such file"):
        read_model("/nowhere/model.gguf")
    with pytest.raises(ModelError):
        read_model("/")


def split(model: Path, folder: Path) -> list[Path]:
    """A two-shard model: the layers' tensors in one, the embedding in the other."""
    paths = []
    for number in range(2):
        writer = gguf.GGUFWriter(folder / f"m-0000{number + 1}-of-00002.gguf", "llama")
        writer.add_key_value("split.no", number, gguf.GGUFValueType.UINT16)
        writer.add_key_value("split.count", 2, gguf.GGUFValueType.UINT16)
        writer.add_key_value("split.tensors.count", 3, gguf.GGUFValueType.INT32)
        if number == 0:
            for name, item in gguf.GGUFReader(model).fields.items():
                if not name.startswith(("GGUF.", "general.architecture")):
                    sub = item.types[1] if item.types[0] == gguf.GGUFValueType.ARRAY else None
                    writer.add_key_value(name, item.contents(), item.types[0], sub_type=sub)
        for tensor in gguf.GGUFReader(model).tensors:
            if tensor.name.startswith("blk.") == (number == 0):
                writer.add_tensor(tensor.name, np.array(tensor.data))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        paths.append(folder / f"m-0000{number + 1}-of-00002.gguf")
    return paths


def test_split_models_are_joined_and_bad_shards_named(model: Path, tmp_path: Path) -> None:
    first, second = split(model, tmp_path)
    header = read_model(first)
    assert len(header.files) == 2
    assert {t.file for t in header.tensors} == {0, 1}
    with pytest.raises(ModelInvalid, match="not the first shard"):
        read_model(second)
    kept = second.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(ModelInvalid, match="m-00002-of-00002"):
        read_model(first)
    second.unlink()
    with pytest.raises(ModelNotFound, match="m-00002-of-00002"):
        read_model(first)
    second.write_bytes(kept)
    assert read_model(first).layers == 2


def test_pairs_that_differ_are_refused_naming_the_difference(model: Path, tmp_path: Path) -> None:
    target = read_model(model)
    check_pair(target, read_model(write_model(tmp_path / "same.gguf", tokens=100)))  # trailing padding is allowed
    for name, options, reason in (
        ("eos", {"eos": 3}, "EOS"),
        ("text", {"first": "u"}, "token 0"),
        ("size", {"tokens": 400}, "vocabulary size"),
    ):
        with pytest.raises(PairMismatch, match=reason):
            check_pair(target, read_model(write_model(tmp_path / f"{name}.gguf", **options)))


def test_special_architectures_are_detected(tmp_path: Path) -> None:
    special: dict[str, Any] = {"expert_count": 8, "attention.sliding_window": 512, "ssm.state_size": 16}
    header = read_model(write_model(tmp_path / "x.gguf", **special))
    assert (header.experts, header.sliding_window, header.recurrent) == (8, 512, True)
    with pytest.raises(ModelInvalid, match="not sensible"):
        read_model(write_model(tmp_path / "deep.gguf", layers=0))


def test_a_replaced_file_is_another_file(model: Path, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf")
    identity = read_model(path).files[0]
    path.write_bytes(path.read_bytes() + b"x")
    assert not unchanged(identity)
    path.unlink()
    assert not unchanged(identity)
