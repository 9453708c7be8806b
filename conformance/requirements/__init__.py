"""Every rule: id, level, sentence, source, how it is checked, whom it hurts. Data only.

`rules.json` holds the requirements; each is tested or excluded with a reason. `consequences.json` holds what was measured
with real clients. Knows no stream and no server.
"""

from conformance.requirements.catalogue import PROFILES, Requirement, consequence_of, levels_for, load_requirements

__all__ = ["PROFILES", "Requirement", "consequence_of", "levels_for", "load_requirements"]
