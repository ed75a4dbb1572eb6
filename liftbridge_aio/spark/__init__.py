"""The data source `liftbridge` of Spark, through PySpark."""
