"""A simulated world: brokers, programs and faults in virtual time, from a seed."""
