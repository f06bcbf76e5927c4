"""A run of a worker without endpoint, in its own process: a process cannot have a local session and a thin client."""

import sys
from pathlib import Path

from tests.dataplane.world import World

if __name__ == "__main__":
    world = World(Path(sys.argv[1]))
    world.rows("a", "0", 7)
    world.give("a")
    (event,) = world.run("a", settings={"spark.sql.shuffle.partitions": "1"})
    sys.stdout.write(f"{type(event).__name__} {event.rows}\n")
