"""What a consuming run does, from its right to a partition to what it tells."""
