"""Model files made from others."""

from collections.abc import Collection

import gguf


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
