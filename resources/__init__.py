"""The resources: ZooKeeper and Spark."""
