"""The history of a run and its judge.

- `check`: Judges a history: what was lost, repeated, reordered or invented.
- `file`: Histories in files: one JSON object a line, so that processes that are killed leave
  theirs.
- `findings`: Counts defects and describes the first of them, in words and with what happened
  around them.
- `history`: What happened to messages, event by event, as a test saw it from outside.
- `order`: How far a sequence is from being in order.
- `readings`: The deliveries of a history by reader and partition, in their order.
- `report`: What a check of a history found, in numbers and in words.
- `sends`: What was sent, by partition and value, and how it ended.
- `timeline`: What happened in a partition around some events.
"""
