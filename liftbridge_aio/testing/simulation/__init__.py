"""A simulated world for tests: brokers, programs and outages in virtual time, from a seed."""
