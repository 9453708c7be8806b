"""What may be generated next: the machine between the model's logits and the sampler.

Knows: a grammar that a dialect wrote (`grammar`), a vocabulary's ids and bytes, JSON Schema, and what repetition looks like.
Must never know: an API's field names, a dialect's markers by heart, a tensor, where the logits came from.
"""
