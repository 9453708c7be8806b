"""What the suite asks a server, one module a theme. A scenario is a function of a `Probe`; the table knows the rest.

A scenario says what it needs from the model (`need`: else inconclusive) and what it demands from the server (`expect`: else
the rule is broken). The structure of each answer is judged anyway, on every capture of every scenario.
"""

from conformance.checker.scenarios.table import Scenario, all_scenarios

__all__ = ["Scenario", "all_scenarios"]
