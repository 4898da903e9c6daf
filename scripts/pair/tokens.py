"""The shared tokenizer: byte-level BPE with single digits, and the chat frame as special tokens."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .corpus import Document

VOCAB_SIZE = 3072
BOS, END, PAD = "<|bos|>", "<|end|>", "<|pad|>"
ROLES = {"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|>"}
SPECIALS = [PAD, BOS, END, *ROLES.values()]
# The split that llama.cpp calls "qwen2": letters with one leading mark, digits one by one, runs of signs, line ends.
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE,
            special_tokens=SPECIALS,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    return tokenizer


def encode(tokenizer: Tokenizer, document: Document) -> tuple[list[int], list[bool]]:
    """Token ids and, for each, whether the model is asked to predict it (a user's words are only context)."""
    ids, learn = [tokenizer.token_to_id(BOS)], [False]
    for role, text in document:
        frame = [] if role == "text" else [tokenizer.token_to_id(ROLES[role])]
        body = [*tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.token_to_id(END)]
        ids += frame + body
        learn += [False] * len(frame) + [role in ("assistant", "text") or len(body) > 60] * len(body)
    return ids, learn
