"""ZooKeeper: who is alive, who owns what, and how far they got. The only room that imports kazoo."""
