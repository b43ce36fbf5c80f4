"""How many tokens a text is taken for. An invention, but a steady one: one token for 4 bytes of UTF-8, rounded up."""

from __future__ import annotations

IMAGE_TOKENS = 1_500
DOCUMENT_TOKENS = 3_000


def count_tokens(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return (size + 3) // 4


def cut_to(text: str, tokens: int) -> str:
    """The start of `text` that is at most `tokens` long."""
    if count_tokens(text) <= tokens:
        return text
    return text.encode("utf-8", "surrogatepass")[: tokens * 4].decode("utf-8", "ignore")
