"""The demo: it starts processes, lands files, sends signals and reads what came of it.

Law: nothing here decides, consumes or commits; it imports neither Dagster nor `rota.consume`, and its verifier shares no
code with the data plane.
"""
