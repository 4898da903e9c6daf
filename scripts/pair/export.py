"""Write a trained checkpoint as a quantized GGUF file that any llama.cpp can read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from gguf.quants import quantize
from numpy.typing import NDArray
from tokenizers import Tokenizer

from . import tokens
from .model import Shape


def add_architecture(writer: GGUFWriter, shape: Shape, context: int) -> None:
    writer.add_context_length(context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_vocab_size(shape.vocab)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)


def add_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer) -> None:
    texts = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    merges = tokenizer_merges(tokenizer)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(texts)
    writer.add_token_types([TokenType.CONTROL if t in tokens.SPECIALS else TokenType.NORMAL for t in texts])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(texts.index(tokens.BOS))
    writer.add_eos_token_id(texts.index(tokens.END))
    writer.add_pad_token_id(texts.index(tokens.PAD))
    writer.add_add_bos_token(True)
    writer.add_chat_template(tokens.CHAT_TEMPLATE)


def tokenizer_merges(tokenizer: Tokenizer) -> list[str]:
    import json

    pairs = json.loads(tokenizer.to_str())["model"]["merges"]
    return [pair if isinstance(pair, str) else " ".join(pair) for pair in pairs]


def write(
    path: Path, name: str, shape: Shape, weights: dict[str, NDArray[np.float32]], tokenizer: Tokenizer, context: int
) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_license("Apache-2.0")
    writer.add_description("Trained from scratch by the edgespec project; see the model card beside it.")
    add_architecture(writer, shape, context)
    add_tokenizer(writer, tokenizer)
    for key, value in weights.items():
        if value.ndim == 1:
            writer.add_tensor(key, value)
        else:
            data = quantize(value, GGMLQuantizationType.Q8_0)
            writer.add_tensor(key, data, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
