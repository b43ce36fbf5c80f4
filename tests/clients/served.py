"""What tools of a provider's own say on its wire, and the pieces of Anthropic's that carry it."""

from __future__ import annotations

from typing import Any

from interlock.clients.conversation import ServerToolBlock
from interlock.clients.options import Tool

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea, grün \u2028"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "url": "https://tea.test", "title": "Tea", "encrypted_content": "EqgfC=="}
    ],
}
CITED = [
    {"type": "web_search_result_location", "url": "https://tea.test", "title": "Tea", "encrypted_index": "Eo8=",
     "cited_text": "Grün."},
]  # fmt: skip
RAN = {
    "type": "code_execution_tool_result",
    "tool_use_id": "srvtoolu_2",
    "content": {"type": "code_execution_result", "stdout": "4\n", "stderr": "", "return_code": 0, "content": []},
}
CODE = {"type": "server_tool_use", "id": "srvtoolu_2", "name": "code_execution", "input": {"code": "print(2 + 2)"}}
WEB_CALL = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "tea", "queries": ["tea"]},
}
CODE_CALL = {
    "id": "ci_1",
    "type": "code_interpreter_call",
    "status": "completed",
    "code": "print(4)",
    "container_id": "cntr_1",
    "outputs": [{"type": "logs", "logs": "4\n"}],
}
WRITTEN = {"executableCode": {"language": "PYTHON", "code": "print(2 + 2)", "id": "c1"}}
RESULT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4\n", "id": "c1"}}
#: A way of each wire that has such tools -> what it says of one that was used.
USED = {
    "anthropic-direct": (SEARCH, FOUND, CODE, RAN),
    "simulated": (SEARCH, FOUND),
    "anthropic-bedrock": (SEARCH, FOUND),
    "anthropic-bedrock-mantle": (SEARCH, FOUND),
    "openai": (WEB_CALL, CODE_CALL),
    "gemini": (WRITTEN, RESULT),
    "vertex": (WRITTEN, RESULT),
}
LOOK = Tool("look", "Look.", {"type": "object", "properties": {"word": {"type": "string"}}})


def sent_back(bench: Any) -> list[Any]:
    """What the last request says of the model's own turns: content blocks, items, parts."""
    body = bench.sent
    if "contents" in body:
        return [part for turn in body["contents"] if turn["role"] == "model" for part in turn["parts"]]
    if "input" in body:
        return [item for item in body["input"] if item.get("role") != "user"]
    turns = [turn["content"] for turn in body["messages"] if turn["role"] == "assistant"]
    return [part for turn in turns for part in ([turn] if isinstance(turn, str) else turn)]


def own(response: Any) -> list[ServerToolBlock]:
    return [block for block in response.blocks if isinstance(block, ServerToolBlock)]


def message(*content: Any, stop: str = "end_turn", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 9, "output_tokens": 3}
    return {"type": "message", "role": "assistant", "model": "m", "content": list(content), "stop_reason": stop,
            "usage": usage, **more}  # fmt: skip


def begun(**more: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": message(stop="", **more)}


def block(index: int, content: Any, *deltas: Any) -> list[dict[str, Any]]:
    start = {"type": "content_block_start", "index": index, "content_block": content}
    return [start, *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)]


def ended(stop: str = "end_turn", **more: Any) -> list[dict[str, Any]]:
    delta = {"type": "message_delta", "delta": {"stop_reason": stop, **more}, "usage": {"output_tokens": 3}}
    return [delta, {"type": "message_stop"}]


def json_delta(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}
