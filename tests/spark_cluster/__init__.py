"""A standalone cluster of Spark with an S3 store, whose executors and drivers are killed."""
