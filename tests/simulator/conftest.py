"""A provider on loopback, and the real SDKs pointed at it with their own retries off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from interlock.clients.simulator import SimulatedProvider


class VirtualTime:
    """A clock that only a test moves, and the sleeps that wait on it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.slept: list[float] = []
        self.holds = False

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Time jumps to the end of a sleep; while `holds`, a sleep never ends."""
        self.slept.append(seconds)
        if self.holds:
            await asyncio.Event().wait()
        self.now_s += seconds


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
async def provider(time: VirtualTime) -> AsyncIterator[SimulatedProvider]:
    async with SimulatedProvider(now=time.now, sleep=time.sleep) as provider:
        yield provider


@pytest.fixture
async def anthropic(provider: SimulatedProvider) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(api_key="sk-test", base_url=provider.anthropic_url, max_retries=0, timeout=5) as client:
        yield client


@pytest.fixture
async def openai(provider: SimulatedProvider) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="sk-test", base_url=provider.openai_url, max_retries=0, timeout=5) as client:
        yield client


@pytest.fixture
async def http(provider: SimulatedProvider) -> AsyncIterator[httpx2.AsyncClient]:
    """Raw HTTP, for what the SDKs hide."""
    headers = {"authorization": "Bearer sk-test", "anthropic-version": "2026-10-21"}
    async with httpx2.AsyncClient(base_url=provider.base_url, headers=headers, timeout=5) as client:
        yield client
