"""The demo: it starts processes, lands files, causes faults and verifies the result.

Law: the package decides, consumes and commits nothing. It imports neither Dagster nor `rota.run.consume`, and its verifier
shares no code with the data plane.
"""
