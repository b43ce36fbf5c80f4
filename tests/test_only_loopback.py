"""The kill switch of tests/conftest.py works."""

import asyncio
import socket

import pytest


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80, 0, 0), ("example.invalid", 80)])
def test_another_machine_cannot_be_reached(address):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as reaching, pytest.raises(AssertionError, match="only loopback"):
        reaching.connect(address)


async def test_nor_from_an_event_loop():
    with pytest.raises(AssertionError, match="only loopback"):
        await asyncio.open_connection("192.0.2.1", 80)
