"""What decides who works: the workers' agents, and the rebalance of their group."""
