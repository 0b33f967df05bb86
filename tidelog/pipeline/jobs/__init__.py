"""Jobs on Spark over topics. Each module has `build(spark, settings)`; `tidelog pipeline NAME` runs it."""
