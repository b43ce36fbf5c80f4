"""What a client costs: beside the bare SDK and beside others, how much a thousand streams hold, how well tokens are
estimated. `python -m benchmarks.clients`; the processes of the contenders are `python -m clients.child`."""
