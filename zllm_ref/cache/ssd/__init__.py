"""The SSD tier: snapshots of saved states in one directory, written so that a crash leaves the old or the new, never a mix.

    LOCK                           held while a process owns the directory
    chunks/<key>.chunk             one block of rows, or one set of fixed tensors; shared by all snapshots with these tokens
    manifests/<generation>.manifest  one snapshot: names, token ids, the digest of each of its chunks
    temporary/                     whatever is being written; swept at start

A snapshot exists when its manifest is in place, and a manifest is put in place (rename) after everything it names is on disk
(data synced, directory synced). What is read back is untrusted: sizes are compared with what the model's own layout says
before a byte is allocated, every byte is checked before it is used, and whatever is wrong is a miss and a log line.

It knows ids, bytes and files. It must never know tensors, layers' meaning, protocols or text.
"""
