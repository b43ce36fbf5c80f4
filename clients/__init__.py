"""Chat: what is said, what is answered, and the one path a call takes.

    conversation   Conversation, Message and the blocks
    response       LLMResponse, StopReason, Piece
    options        CallOptions, Tool: what stands beside the conversation
    client         LLMClient: what a job is given
    abstract       AbstractLLMClient: the template a provider subclasses
    stream         ResponseStream: a streamed answer that owns its connection
    lifecycle      CallAttempt: permit, sent, outcome, close, record; exactly once (embeddings and decisions use it too)
    environment    ClientEnvironment: what every client is built with
    outcomes       what an error means to admission and to the record
    failures       how providers say no: status, phrases, retry hints, limit headers
    structured     typed answers: schema, strict parsing, the words of a correction
    registry       provider class by key, through entry points
    providers/     one file a provider
    simulator/     SimulatedProvider: a loopback provider with limits that bind

`runtime`, `embeddings` and `decisions` import it; it imports `admission`, `catalog` and `credentials`. No provider SDK
is imported before a provider's first call.
"""
