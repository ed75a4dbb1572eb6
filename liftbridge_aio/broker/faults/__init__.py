"""Faults that tests inject into a broker.

- `fault`: A planned fault, which a test can await and cancel.
- `fault_injection`: Applies planned faults to messages: waits and raises.
- `fault_plan`: The planned faults, and the choice of the messages that they are applied to. Pure.
- `faults`: The faults that `broker.faults` can inject.
"""
