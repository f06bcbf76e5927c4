"""The same decisions in virtual time: worlds, scenarios, comparison, report."""
