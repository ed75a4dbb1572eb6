"""The pure part of transactions: no event loop, clock, chance or I/O."""
