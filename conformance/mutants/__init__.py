"""Planted faults, and the proof that each is seen.

    faults      one hundred single faults in streams, named, each with the rules that must fall
    systematic  drop, repeat, swap, cut every event; rename, retype every field, of every golden
    server      a small right server for all three protocols, which can be told to do one thing wrong
    score       runs them all, prints killed / planted for each rule

A mutant that nothing could see (the stream means the same) is listed in `equivalent.json` with its reason.
"""
