"""ZooKeeper: live workers, ownership, and progress. The only package that imports kazoo."""
