"""What Dagster connects to: ZooKeeper and Spark."""
