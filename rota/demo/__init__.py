"""The demo: it starts processes, lands files, causes faults and verifies the result.

Law: nothing here decides, consumes or commits. It imports neither Dagster nor `rota.run.consume`, and its verifier shares no
code with the data plane.
"""
