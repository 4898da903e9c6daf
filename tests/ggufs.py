"""Model files made from others, and files of any shape without weights."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np


def copied(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, but: Collection[str] = ()) -> None:
    """Every field of one file in the other, those in `but` left out; a writer has its architecture already."""
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", *but):
            sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub)


def written(writer: gguf.GGUFWriter, tensors: Collection[gguf.ReaderTensor]) -> None:
    """The file, with these tensors."""
    for tensor in tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def with_template(path: Path, template: str | None, out: Path) -> Path:
    """The same model with another chat template, or none."""
    reader, writer = gguf.GGUFReader(path), gguf.GGUFWriter(out, "llama")
    copied(reader, writer, but=["tokenizer.chat_template"])
    if template:
        writer.add_chat_template(template)
    written(writer, reader.tensors)
    return out


@dataclass(frozen=True)
class Shape:
    """What decides how much an engine needs beside the weights."""

    architecture: str = "llama"
    width: int = 256
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    size: int = 64
    ffn: int = 768
    vocabulary: int = 1000

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Fastest dimension first. The embedding is the head, too."""
        queries, keys, width = self.heads * self.size, self.kv_heads * self.size, self.width
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm": (width,), "ffn_norm": (width,), "attn_q": (width, queries), "attn_k": (width, keys),
            "attn_v": (width, keys), "attn_output": (queries, width), "ffn_gate": (width, self.ffn),
            "ffn_up": (width, self.ffn), "ffn_down": (self.ffn, width),
        }  # fmt: skip
        if self.architecture in ("qwen3", "gemma3"):
            layer |= {"attn_q_norm": (self.size,), "attn_k_norm": (self.size,)}
        if self.architecture == "gemma3":
            layer |= {"post_attention_norm": (width,), "post_ffw_norm": (width,)}
        core = {"token_embd.weight": (width, self.vocabulary), "output_norm.weight": (width,)}
        return core | {f"blk.{i}.{name}.weight": shape for i in range(self.layers) for name, shape in layer.items()}


def hollow(path: Path, shape: Shape) -> Path:
    """A model of this shape with a hole where its weights, Q8_0 and F32, would be."""
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_context_length(1 << 15)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.size)
    writer.add_value_length(shape.size)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.size)
    if shape.architecture == "gemma3":
        writer.add_sliding_window(512)  # in five of six layers
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{token}" for token in range(shape.vocabulary)])
    writer.add_token_types([1] * shape.vocabulary)
    writer.add_token_merges(["t t"])
    size = 0
    for name, dimensions in shape.tensors.items():
        size += _add_hole(writer, name, dimensions)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout
    writer.fout[0].truncate(writer.fout[0].tell() + writer.data_alignment + size)
    writer.close()
    return path


def _add_hole(writer: gguf.GGUFWriter, name: str, dimensions: tuple[int, ...]) -> int:
    """The bytes it takes."""
    if len(dimensions) == 1:
        writer.add_tensor_info(name, dimensions, np.dtype(np.float32), 4 * dimensions[0])
        return int(-(-4 * dimensions[0] // writer.data_alignment) * writer.data_alignment)
    row = dimensions[0] // 32 * 34
    size = dimensions[1] * row
    writer.add_tensor_info(name, (dimensions[1], row), np.dtype(np.uint8), size, gguf.GGMLQuantizationType.Q8_0)
    return int(-(-size // writer.data_alignment) * writer.data_alignment)
