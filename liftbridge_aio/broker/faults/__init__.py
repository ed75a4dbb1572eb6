"""Faults that tests inject into a broker.

- `fault`: A fault that a test has planned: how often it was applied, waiting for it, cancelling it.
- `fault_injection`: Applies planned faults to messages: the part that waits and raises.
- `fault_plan`: Which faults are planned, and which message each is applied to. Pure: messages in,
  decisions out.
- `faults`: The faults that `broker.faults` can inject.
"""
