import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgespec.errors import PagingError
from edgespec.memory.layout import PAGE
from edgespec.memory.pagefile import Entry, find, intact, name_of, stored, write
from edgespec.types import FileIdentity, ModelHeader, TensorExtent, Vocabulary

VOCABULARY = Vocabulary("gpt2", "x", (b"a",), None, None)


def model(path: str = "/m.gguf", size: int = 9000) -> ModelHeader:
    tensors = tuple(TensorExtent(f"blk.{i}.attn_q.weight", (10 + i, 5), "I8", 0, 4096 * i, 5 * (10 + i)) for i in range(4))
    return ModelHeader(
        (FileIdentity(path, 1, 1, size, 1),), (4096,), "llama", "toy", 4, 64, 128, 2, (1,) * 4, 32, 32, 4096, 0, 0, False,
        VOCABULARY, None, tensors,
    )  # fmt: skip


def entries(header: ModelHeader) -> list[Entry]:
    rng = np.random.default_rng(0)
    return [(tensor, index % 2 == 0, memoryview(rng.bytes(tensor.size))) for index, tensor in enumerate(header.tensors)]


Made = tuple[Path, ModelHeader, list[Entry]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    header = model()
    given = entries(header)
    write(tmp_path, "toy.pages", header, given)
    return tmp_path, header, given


def test_what_was_written_is_found_where_the_index_says(made: Made) -> None:
    folder, header, given = made
    found = find(folder, "toy.pages", header)
    assert found is not None
    weights = found.weights(header)
    content = (folder / "toy.pages").read_bytes()
    for (tensor, repacked, data), there in zip(given, weights.tensors, strict=True):
        assert there.offset % PAGE == 0
        assert content[there.offset : there.offset + there.size] == bytes(data)
        assert (tensor.name in found.repacked) == repacked
    assert weights.files[0].path == str(folder / "toy.pages")
    assert intact(folder / "toy.pages")
    assert [path.name for path in stored(folder)] == ["toy.pages"]


def test_a_damaged_index_or_a_cut_off_file_is_no_page_file(made: Made) -> None:
    folder, header, _ = made
    path = folder / "toy.pages"
    whole = path.read_bytes()
    end = whole.index(b"}", 28)
    for place in (*range(28), 40, end - 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        assert find(folder, "toy.pages", header) is None
    for length in (0, 10, 27, 100, len(whole) - PAGE - 1):
        path.write_bytes(whole[:length])
        assert find(folder, "toy.pages", header) is None
    path.write_bytes(whole)
    assert find(folder, "toy.pages", header) is not None


def test_a_flipped_weight_is_found_by_the_check(made: Made) -> None:
    folder, header, _ = made
    found = find(folder, "toy.pages", header)
    assert found is not None
    path = folder / "toy.pages"
    content = bytearray(path.read_bytes())
    content[found.tensors[2].offset + 3] ^= 1
    path.write_bytes(content)
    assert not intact(path)


def test_another_model_engine_or_cpu_has_another_name() -> None:
    names = {name_of(model(), "e 1", "avx"), name_of(model(), "e 2", "avx"), name_of(model(), "e 1", "neon"),
             name_of(model("/n.gguf"), "e 1", "avx"), name_of(model(size=1), "e 1", "avx")}  # fmt: skip
    assert len(names) == 5
    assert all("/" not in name for name in names)


def test_an_interrupted_write_publishes_nothing(tmp_path: Path) -> None:
    header = model()

    def breaking() -> Iterator[Entry]:
        yield entries(header)[0]
        raise PagingError("the disk broke")

    with pytest.raises(PagingError, match="the disk broke"):
        write(tmp_path, "toy.pages", header, breaking())
    assert stored(tmp_path) == []


def test_without_room_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10))
    with pytest.raises(PagingError, match="free some"):
        write(tmp_path, "toy.pages", model(), entries(model()))
    assert stored(tmp_path) == []
