"""Pure parts of consumer groups: no event loop, clock, randomness or I/O.

- `group_plan`: The validated arguments of `Client.group`, and the type of an assignment.
- `group_state`: The states of a member of a consumer group and their transitions.
- `membership`: The state machine of a member: the next call to make, and the effect of its answer.
- `ownership`: The partitions that a member holds, and the steps to acquire or release them.
- `steps`: The calls that a membership requests, and their outcomes. Pure values.
"""
