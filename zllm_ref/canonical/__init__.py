"""The one form that every protocol is translated into, and every answer is made from.

Knows: messages, requests, events of an answer, usage, errors, JSON values that keep order and number text.
Must never know: an API's field names, a dialect's markers, a token id's meaning, a tensor.
Everything here is a frozen dataclass or a pure function; nothing here imports anything of the project.
"""
