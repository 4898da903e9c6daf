from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgespec.errors import ModelChanged
from edgespec.modelfile.header import read_model
from edgespec.modelfile.layers import original_name, some_layers, write_some_layers
from edgespec.types import ModelHeader

layers = st.sets(st.integers(0, 3), min_size=1).map(sorted)


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> ModelHeader:
    """Four layers with different numbers of key heads."""
    path = tmp_path_factory.mktemp("gguf") / "four.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(4)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv([1, 2, 4, 1])
    writer.add_array("llama.rope.sections", ["a", "b", "c", "d"])  # as many, but no numbers of layers
    writer.add_uint16("split.count", 1)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(40)])
    writer.add_tensor_info("token_embd.weight", (40, 64), np.dtype(np.float32), 40 * 64 * 4)
    for layer in range(4):
        writer.add_tensor_info(f"blk.{layer}.attn_q.weight", (64, 64), np.dtype(np.float32), 64 * 64 * 4)
        writer.add_tensor_info(f"blk.{layer}.attn_norm.weight", (64,), np.dtype(np.float32), 64 * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("ab") as file:
        file.write(bytes(40 * 64 * 4 + 4 * (64 * 64 + 64) * 4 + 64))
    return read_model(path)


@given(kept=layers)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_written_header_is_that_of_the_kept_layers(header: ModelHeader, kept: list[int], tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    write_some_layers(header, kept, path)
    wanted, have = some_layers(header, kept), read_model(path)
    assert [(t.name, t.shape, t.kind, t.size) for t in have.tensors] == [
        (t.name, t.shape, t.kind, t.size) for t in wanted.tensors
    ]
    assert (have.layers, have.kv_heads, have.vocabulary) == (len(kept), wanted.kv_heads, header.vocabulary)
    assert gguf.GGUFReader(path).fields["llama.rope.sections"].contents() == ["a", "b", "c", "d"]


@given(kept=layers)
def test_every_weight_lies_where_the_original_does(header: ModelHeader, kept: list[int]) -> None:
    originals = {tensor.name: tensor for tensor in header.tensors}
    for tensor in some_layers(header, kept).tensors:
        original = originals[original_name(tensor.name, kept)]
        assert (tensor.file, tensor.offset, tensor.size) == (original.file, original.offset, original.size)


def test_a_model_that_was_exchanged_is_refused(header: ModelHeader, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(Path(header.path).read_bytes())
    known = read_model(copy)
    copy.write_bytes(Path(header.path).read_bytes() + b"\0")
    with pytest.raises(ModelChanged):
        write_some_layers(known, [0], tmp_path / "some.gguf")
