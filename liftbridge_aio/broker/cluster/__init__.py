"""The state and decisions of a cluster's nodes: no event loop, clock, randomness or I/O.

- `activity`: The activity stream: its creation, and the event that describes each operation.
- `bus`: The bus between nodes, in place of NATS: delivers messages on subjects to subscribers.
- `consumer_group`: One consumer group: its members, and the partitions assigned to each.
- `controller`: The metadata controller, in place of Raft: one list of operations that all nodes
  apply.
- `cursors`: Cursors, stored in the internal stream `__cursors` as real servers store them.
- `failover`: Counts reports of dead leaders and coordinators until a failover is due.
- `group_controller`: Decisions about consumer groups, taken by the node that leads the metadata.
- `group_liveness`: The heartbeat deadlines of group members, as their coordinator tracks them.
- `group_subscribers`: The one subscriber that each consumer group may have on a partition, fenced
  by epochs.
- `groups`: All consumer groups, as one node knows them.
- `incoming`: A message on its way from a publisher to the partitions subscribed to its subject.
- `messages`: Conversion between the broker's values and protocol messages.
- `node`: One broker's state: the streams and groups that it knows, and the operations on them.
- `partition`: One node's replica of a partition: its log, its role and its timers.
- `replication`: The progress of followers, as tracked by the leader of a partition.
- `requests`: Requests to create streams, and the checks that need no metadata.
- `stream`: Streams as one node knows them, and the number of their partitions on each node.
- `subjects`: NATS subjects: validation, matching, and the receivers of a message.
"""
