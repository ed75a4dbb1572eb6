"""Everything that touches the network: the only client room that imports grpclib.

grpclib's hazards (cancellation counts left behind, calls that wait for ever on exit, silent
redials) end here: what leaves this room is `CallFailure`, a plain value, or bytes.
"""
