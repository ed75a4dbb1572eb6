"""Pure parts of consumer groups: no event loop, clock, chance or I/O.

- `group_plan`: What a member is asked to do: the checked arguments of `Client.group`, and an
  assignment.
- `group_state`: The states of a member of a consumer group, and which may follow which.
- `membership`: The life of a member of a consumer group: which call is next, and what its reply
  means.
- `ownership`: Which partitions a member holds, and the steps to take one or give one up.
- `steps`: The calls that a membership asks for, and their outcomes. Pure values.
"""
