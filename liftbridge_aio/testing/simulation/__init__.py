"""A simulated world: brokers, programs and faults in virtual time, from a seed.

`faults`, `processes`, `shrink`, `simulation` and this package are imported on any Python; the
others need simloop.

- `drift`: Clocks of hosts that run too fast or too slowly.
- `faults`: The catalogue of faults, and the plan of a seed: each begins, lasts, and is undone.
- `loop`: The event loop in virtual time.
- `processes`: Processes that are started again when they end.
- `shrink`: The fewest of the parts of a failing run that still fail.
- `simulation`: The world as the pytest fixture offers it.
- `stand_ins`: What programs get in place of clocks, chance and threads.
- `world`: Hosts, a network, brokers and clients in virtual time.
"""
