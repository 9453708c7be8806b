"""Proofs that the fast ways give the bits of the plain way: `test_<fast>_equals_<plain>.py`.

Each compares every logit of at least 256 rows and every bit of the state, and each has its negative control: the same
comparison, seen to differ with invariance off (`row_bound`) and against another prompt.
"""
