"""Each way an answer ends, on every wire, whole and streamed: in the wire's own words, in one form for the caller."""

from __future__ import annotations

import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.clients.options import CallOptions, Tool
from interlock.clients.response import StopReason
from interlock.clients.simulator import Step, ToolCall
from interlock.errors import OutputTruncatedError, ProviderRefusalError

from .conftest import asked

LOOK = Tool("look", "Look.", {"type": "object", "properties": {}})
#: What each wire says of an answer that a stop sequence ended. The others have no word of their own for it.
STOPPED = {
    "anthropic": "stop_sequence", "invoke": "stop_sequence", "mantle": "stop_sequence", "converse": "stop_sequence",
}  # fmt: skip
#: A reason that nobody has heard of yet.
NEW = "quite_new"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_each_stop_reason(bench, wire, streamed):
    client, seat = bench.client(wire, output_tokens=64)
    said = STOPPED.get(wire.speaks)
    bench.script(
        Step.answer("Fine."), Step.answer("", tool_calls=[ToolCall(name="look", input={})]),
        Step.answer("Fine.", stop_reason=said) if said else Step.answer("Fine."),
    )  # fmt: skip
    found = [
        (await asked(client, "Hello.", streamed=streamed, options=CallOptions(tools=(LOOK,)))).stop_reason
        for _ in range(3)
    ]
    stopped = StopReason.STOP_SEQUENCE if said and wire.key != "litellm" else StopReason.END_TURN
    assert found == [StopReason.END_TURN, StopReason.TOOL_USE, stopped]
    assert [record.stop_reason for record in seat.records] == [str(reason) for reason in found]

    bench.script(Step.truncated("Half an an"), Step.refusal("bio", "No."))
    with pytest.raises(OutputTruncatedError) as cut:
        await asked(client, "Hello.", streamed=streamed)
    assert (cut.value.partial, cut.value.usage.output_tokens) == ("Half an an", 64)
    with pytest.raises(ProviderRefusalError):
        await asked(client, "Hello.", streamed=streamed)
    assert [record.stop_reason for record in seat.records[3:]] == ["max_tokens", "refusal"]
    assert seat.kinds == [OutcomeKind.COMPLETED] * 5
    assert bench.provider.count == len(seat.records)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_stop_reason_that_is_new_ends_the_turn(bench, wire, streamed):
    client, _ = bench.client(wire)
    bench.script(Step.answer("Fine.", stop_reason=NEW))
    response = await asked(client, "Hello.", streamed=streamed)
    assert (response.text, response.stop_reason) == ("Fine.", StopReason.END_TURN)
