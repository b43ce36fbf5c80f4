"""One file a contender: `opened(terms)` is an async context manager that gives `ask(call)`.

`ask` returns when the call was served and raises when the contender gave it up.
"""
