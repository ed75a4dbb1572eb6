"""Pure parts of bridges: no event loop, clock, chance or I/O.

- `known_ids`: Remembers which messages of a source are in the target.
- `rate`: Measures the rate of copying.
"""
