"""What ships, in virtual time: worlds, faults, judges. Law: nothing of rota imports it, and the wheel has none of it."""
