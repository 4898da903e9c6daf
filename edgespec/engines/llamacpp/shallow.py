"""A second graph over a paged model's own bytes: the layers that stay in memory, and none of the others.

The engine cannot leave layers out, but it builds what a header names: it is given a file whose header names the resident
layers, with a hole where the weights would be, and then its tensors are pointed at the bytes of the paged model.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from edgespec.cache import cache_folder
from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.paging import PagedWeights, learn
from edgespec.engines.llamacpp.params import load_file
from edgespec.engines.llamacpp.pointers import adopt, point
from edgespec.engines.llamacpp.standin import seal, unpopulated
from edgespec.modelfile.header import read_model
from edgespec.modelfile.layers import original_name, write_some_layers
from edgespec.types import ModelHeader

__all__ = ["load_shallow"]


def load_shallow(header: ModelHeader, kept: tuple[int, ...], paged: PagedWeights) -> Any:
    """The engine's model of the layers `kept` of `header`, which `paged` has and must outlive it. Reads no weight.

    Raises Refusal where a layer is streamed or the engine lays tensors out in another way than expected.
    """
    with tempfile.TemporaryDirectory(prefix="edgespec-load-", dir=cache_folder()) as folder:
        path = str(Path(folder) / "layers.gguf")
        write_some_layers(header, kept, Path(path))
        shallow = read_model(path)
        with unpopulated([path], shallow):
            model = load_file(path, mapped=True, repack=False)
        try:
            learned = learn(shallow, model, [path])
            seal(learned.regions)
            for name, addresses in learned.weights.items():
                loan = paged.lend(original_name(name, kept))
                if loan.mark:
                    adopt(addresses, loan.mark)
                point(addresses, loan.address)
        except BaseException:
            llama().llama_model_free(model)
            raise
    return model
