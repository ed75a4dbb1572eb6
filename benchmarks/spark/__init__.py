"""What Spark costs with the source and the sink `liftbridge`, beside what neither can do without.

Spark runs in a process of its own (`program`), which does one job at a time (`jobs`) and says what
each took. Only `program`, `jobs` and `nothing` import pyspark.
"""
