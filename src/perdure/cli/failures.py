"""What a command ends with when it does not end well: one line, and an exit code.

CommandFailed      nothing was done, or nothing more can be (1)
|- NoService       no service runs where one was looked for
|- OutputFailed    standard output cannot be written
|- Away            the connection broke; whoever can wait tries again
|- Refused         the service answered with an error
|- Unknown         whether the work was accepted, or how it ends, is not known here, or its id was not written (5)
"""

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_COMPLETED = 4
EXIT_UNKNOWN = 5
EXIT_DAMAGED = 6
EXIT_INTERRUPTED = 130
EXIT_OUTPUT_CLOSED = 141  # what a shell shows for a program that SIGPIPE ended


class CommandFailed(Exception):
    """The message is the line for standard error; it names the remedy."""

    exit_code = EXIT_FAILED


class NoService(CommandFailed):
    """No service runs where one was looked for."""


class OutputFailed(CommandFailed):
    """Standard output cannot be written, but for a reader who has left."""

    def __init__(self, how: str) -> None:
        super().__init__(f"The output cannot be written: {how}.")


class Away(CommandFailed):
    """The connection broke, or was silent for too long."""


class Broken(Away):
    """The connection broke."""

    def __init__(self, how: str) -> None:
        super().__init__(f"The connection to the service broke: {how}.")


class Silent(Away):
    """The connection stands, and nothing comes."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The service has not answered for {seconds:g} s.")


class Refused(CommandFailed):
    """The service answered with an error."""

    def __init__(self, status: int, message: str, code: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Unknown(CommandFailed):
    """Whether the work was accepted, or how it ends, is not known here, or its id could not be written."""

    exit_code = EXIT_UNKNOWN
