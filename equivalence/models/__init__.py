"""The same bits, family by family: chunks, batches, forks, copies and returns of every state that the models declare.

Each comparison reads whole logits rows and every tensor of the state. Each has a control that must differ: the invariance
switched off, or one state tensor left out of the copy.
"""
