"""Drafts: guesses of the next tokens, cheaper than the model's own, proved by the model before they count.

Knows ids, hidden rows and draft state. Must never decide a token: `verify` accepts a draft token only where the model itself
samples the same one, so a drafter changes time and nothing else.
"""
