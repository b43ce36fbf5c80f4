"""Who takes part, each in an environment of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PINS = Path(__file__).parent / "constraints.txt"
_SDKS = ("anthropic", "openai")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """`way` is the file in `ways/` that speaks for it. The first of the packages is the one whose version is told."""

    name: str
    title: str
    way: str
    packages: tuple[str, ...]

    @property
    def environment(self) -> str:
        return f"clients-{self.name}"


CONTENDERS = (
    Contender(name="sdk", title="the bare SDK", way="bare_sdk", packages=_SDKS),
    Contender(name="interlock", title="Interlock", way="interlock_way", packages=("interlock", *_SDKS)),
    Contender(
        name="pydantic-ai", title="pydantic-ai, `direct`", way="pydantic_ai_way",
        packages=("pydantic-ai-slim[anthropic,openai]",),
    ),
    Contender(name="litellm", title="litellm", way="litellm_way", packages=("litellm",)),
    Contender(
        name="langchain", title="langchain", way="langchain_way", packages=("langchain-anthropic", "langchain-openai")
    ),
)  # fmt: skip
