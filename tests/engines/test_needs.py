"""What is planned for an engine's own buffers against what the engine says it reserves, over shapes of all kinds."""

import ctypes
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ggufs import Shape, hollow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.params import context_params
from edgespec.memory.needs import compute_bytes, output_bytes
from edgespec.modelfile.header import read_model

MIB = 1 << 20


@contextmanager
def hollow_model(path: Path) -> Iterator[Any]:
    """The engine's model of a header: it reserves for it, but allocates nothing and reads no weight."""
    params = llama().llama_model_default_params()
    params.n_gpu_layers, params.load_mode, params.no_alloc = 0, 0, True
    no_devices = (ctypes.c_void_p * 1)(None)
    params.devices = ctypes.addressof(no_devices)
    model = llama().llama_model_load_from_file(str(path).encode(), params)
    assert model
    yield model
    llama().llama_model_free(model)


def reserved(model: Any, caplog: pytest.LogCaptureFixture, context: int, chunk: int, rows: int, *, flash: bool = False) -> Any:
    """The compute buffer and that of outputs, by the engine's own word, in bytes."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "edgespec.engine"):
        params = context_params(context=context, chunk=chunk, lanes=rows, outputs=rows, threads=2, flash=flash)
        made = llama().llama_init_from_model(model, params)
        assert made
        llama().llama_free(made)
    said = [re.search(rf"CPU +{kind} buffer size = +([\d.]+) MiB", caplog.text) for kind in ("compute", "output")]
    return [float(each[1]) * MIB for each in said if each]


def check(
    path: Path, caplog: pytest.LogCaptureFixture, context: int, chunk: int, rows: int, *, flash: bool = False, above: float = 0.2
) -> None:  # fmt: skip
    header = read_model(path)
    with hollow_model(path) as model:
        compute, output = reserved(model, caplog, context, chunk, rows, flash=flash)
    planned = compute_bytes(header, context, chunk, rows, flash=flash)
    assert compute <= 1.002 * planned + 0.01 * MIB  # as it is rounded in the log
    assert planned <= (1 + above) * compute + 0.5 * MIB
    assert output <= output_bytes(header, rows) + 0.01 * MIB


@pytest.mark.parametrize("rows", [1, 8, 33])
@pytest.mark.parametrize(("context", "chunk"), [(256, 64), (1024, 512), (4096, 128)])
def test_of_the_models_at_hand(
    context: int, chunk: int, rows: int, target_path: Path, drafter_path: Path, inflated_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    for path in (target_path, drafter_path, inflated_path):
        check(path, caplog, context, chunk, rows)


shapes = st.builds(
    Shape, st.sampled_from(["llama", "qwen3", "gemma3"]), st.sampled_from([256, 512, 1024, 2048]), st.just(8),
    st.sampled_from([4, 8, 16]), st.sampled_from([1, 2, 4]), st.sampled_from([64, 128]), st.sampled_from([512, 2048, 8192]),
    st.sampled_from([300, 32000]),
)  # fmt: skip


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=shapes, context=st.sampled_from([256, 1024, 4096, 16384]), chunk=st.sampled_from([64, 256, 512]),
    rows=st.integers(1, 33), flash=st.booleans(),
)  # fmt: skip
def test_of_any_shape(
    shape: Shape, context: int, chunk: int, rows: int, flash: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check(hollow(tmp_path / "hollow.gguf", shape), caplog, context, chunk, rows, flash=flash, above=0.6)


@pytest.mark.real_model
def test_of_a_real_model_with_a_large_vocabulary(real_model_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for context, chunk, rows in ((1024, 64, 1), (1024, 512, 16), (4096, 512, 1), (4096, 64, 33)):
        check(real_model_path, caplog, context, chunk, rows)
