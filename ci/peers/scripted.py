"""The reference server on the `scripted` model, which emits what a script or the request's tools dictate."""

from __future__ import annotations

from peer import Settings, finish
from reference import judge_reference

TARGET = "zllm_ref scripted"


def main(settings: Settings) -> int:
    served = "no weights: a model that says what a scenario needs"
    return judge_reference(settings, TARGET, ("--model", "scripted"), "scripted", served)


if __name__ == "__main__":
    finish(TARGET, main)
