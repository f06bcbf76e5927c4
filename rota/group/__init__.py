"""Decides which worker owns which partition: the workers' agents, and the rebalance of their group."""
