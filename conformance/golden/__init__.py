"""Streams that must pass (`accept`), streams that must fail (`reject`), whole exchanges (`exchange`).

    golden/<protocol>/{accept,reject,exchange}/<feature>/<case>.jsonl        the path is the case's id

`story` describes one generation without any protocol's words; `render_*` tell it in each protocol; `scenarios` lists the
stories; `build` writes the accept and reject files from them. README.md is for authors of runners in other languages.
"""
