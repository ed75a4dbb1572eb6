"""Recorded histories of a run and the check for delivery defects.

- `check`: Checks a history for lost, repeated, reordered and invented messages.
- `file`: Histories in files, one JSON object per line, which survive the death of their process.
- `findings`: Counts defects and describes the first of each kind with a timeline.
- `history`: The events of a test run: sends, their outcomes and deliveries.
- `order`: Finds the elements of a sequence that are out of order.
- `readings`: The deliveries of a history by reader and partition, in delivery order.
- `report`: The report of a check: counts, findings and timelines.
- `sends`: Sends and their outcomes by partition and value.
- `timeline`: Timelines: the events of a partition around a defect.
"""
