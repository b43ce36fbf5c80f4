"""The text of a request that counts as input, in the order a cache sees it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Prompt:
    parts: list[str] = field(default_factory=list)
    extra_tokens: int = 0  # images and documents
    _marks: dict[int, float] = field(default_factory=dict)  # parts so far -> lifetime in seconds

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def add(self, text: str) -> None:
        self.parts.append(text)

    def mark(self, lifetime_s: float) -> None:
        """Cache what was added so far."""
        self._marks[len(self.parts)] = lifetime_s

    def mark_all(self, lifetime_s: float) -> None:
        """Cache at the end of every part: what a provider that caches by itself finds again."""
        for end in range(1, len(self.parts) + 1):
            self._marks.setdefault(end, lifetime_s)

    @property
    def marks(self) -> tuple[tuple[str, float], ...]:
        return tuple(("".join(self.parts[:end]), lifetime_s) for end, lifetime_s in sorted(self._marks.items()))
