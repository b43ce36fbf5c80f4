"""Chat: what is said, what is answered, and the one path a call takes.

    conversation   Conversation, Message and the blocks
    response       LLMResponse, StopReason, Piece
    options        CallOptions, Tool: what stands beside the conversation
    client         LLMClient: what a job is given
    abstract       AbstractLLMClient: the template a provider fills in
    bound          BoundLLMClient: the template on one job's reservation
    stream         ResponseStream: a streamed answer that owns its connection
    turns          a conversation made ready for a wire, or refused
    asking, schema what is asked: options, the way to a typed answer, schemas in a provider's dialect
    answer, gates  what came back, read piece by piece, and what stands between it and the caller
    structured, extract   typed answers: strict parsing, the words of a correction
    lifecycle      CallAttempt: permit, sent, outcome, close, record; exactly once (embeddings and decisions use it too)
    delivery       the two ends of a call: the permit is drawn, the answer settled and given out
    exchange       one request and its answer, for clients that do not stream
    watch          the two clocks of an attempt: its whole time, and silence
    outcomes       what an error means to admission and to the record
    failures, hints  how providers say no, and what their headers say of time and limits
    measure        how large a call is, estimated
    environment    ClientEnvironment: what every client is built with
    record         CallRecord, CallSeat: what the template needs from whoever reserved
    registry       provider class by key, through entry points
    providers/     one file a provider
    simulator/     SimulatedProvider: a loopback provider with limits that bind

`runtime`, `embeddings` and `decisions` import it; it imports `admission`, `catalog` and `credentials`. No provider SDK
is imported before a provider's first call.
"""
