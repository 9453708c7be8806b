"""What a question to the inspector can meet."""

from __future__ import annotations


class InspectProblem(Exception):
    """Cannot be answered: `status` and `code` as `docs/inspector.md` lists them."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def not_found(what: str) -> InspectProblem:
    return InspectProblem(404, "not_found", f"{what} is not here, or not any more")


def invalid(message: str) -> InspectProblem:
    return InspectProblem(400, "invalid", message)
