"""The name of the program that uses this package, as commits and errors state it, and the next steps in errors.

No other module of the package names the engine or its commands. `tests/core/test_architecture.py` checks this rule.
"""

WRITER = "rota"  # in `engineInfo` of each commit, and in errors
AFTER_COPY = "then: rota adopt"  # once an operator brought a log back from a copy
AFTER_CHANGE = "then: rota check"  # once an operator changed a setting of the table
OTHER_PATH = f"Give the pipeline another path; {WRITER} makes a table there"
