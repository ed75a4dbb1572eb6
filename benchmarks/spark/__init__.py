"""Cost of the source and the sink `liftbridge` on Spark, beside the least that is possible.

Spark runs in a process of its own (`program`), which does one job at a time (`jobs`) and says what
each took. Only `program`, `jobs` and `nothing` import pyspark.
"""
