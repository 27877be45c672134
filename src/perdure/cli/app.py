"""The commands and their options.

What does the work of a command is imported when it runs, so that each starts as fast as its own part does.
"""

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from perdure import __version__
from perdure.cli.failures import EXIT_DONE, EXIT_USAGE
from perdure.cli.program import NAME, program
from perdure.domain import limits
from perdure.domain.lifecycle import Status
from perdure.domain.recovery import OnRestart

_MISSING = "the following arguments are required"
_DASHES = "; put `--` before a text that begins with a dash"
_OPTION = re.compile(r"-[^\s\d]\S*")
_IDENT = re.compile(r"(?:resp|task)_([0-9A-Za-z_-]{1,64})")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line that names the remedy."""

    words: Sequence[str] = ()  # of the whole command line: some errors are better told by them
    takes_text = False

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where the options are listed."""
        if message.startswith(_MISSING) and (dashed := self._dashed()):
            self.unknown(dashed, _DASHES if self.takes_text else "")
        name = self.prog.replace(program(), NAME, 1)
        self.exit(EXIT_USAGE, f"{name}: {message}; `{self.prog} --help` lists what there is.\n")

    def _dashed(self) -> str | None:
        """A word before `--` that looks like an option and is none."""
        before = self.words[: self.words.index("--")] if "--" in self.words else self.words
        known = self._option_string_actions
        return next((word for word in before if _OPTION.match(word) and word.partition("=")[0] not in known), None)

    def unknown(self, word: str, remedy: str = "") -> NoReturn:
        """Say that a word of the command line means nothing, and which one may have been meant."""
        import difflib  # not worth its time otherwise

        if word.partition("=")[0] in self._option_string_actions:
            where = "put options before `--`" if "--" in self.words else f"it goes after `{self.prog}`"
            self.error(f"{word!r} is out of place; {where}")
        if not word.startswith("-"):
            self.error(f"{word!r} is one argument too many (quote a text with blanks)")
        option = word.partition("=")[0]
        begun = [known for known in self._option_string_actions if known.startswith(option)]
        near = begun or difflib.get_close_matches(option, self._option_string_actions, n=1)
        self.error(f"there is no option {option}" + (f" (did you mean {near[0]}?)" if near else "") + remedy)


def whole_number(text: str) -> int:
    """The type of an option that takes a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def count(text: str) -> int:
    """The type of an option that says how many."""
    if (number := whole_number(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 1")
    return number


def event_number(text: str) -> int:
    """The type of an option that takes the number of an event."""
    if (number := whole_number(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 0, the number of the first event")
    return number


def number(text: str) -> float:
    """The type of an option that takes a number, with or without a fraction."""
    try:
        if math.isfinite(found := float(text)):
            return found
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a number")


def seconds(text: str) -> float:
    """The type of an option that takes a length of time."""
    if (found := number(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 0")
    return found


def words(text: str) -> str:
    """The type of a text; the shell passes any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("the text is not UTF-8") from None
    return text


def something(text: str) -> str:
    """The type of an option whose value must not be empty, as that of an unset variable of the shell is."""
    if not text:
        raise argparse.ArgumentTypeError("the value is empty")
    return words(text)


def ident(text: str) -> str:
    """The type of a response or of its task; returns what the two names have in common."""
    found = _IDENT.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not like resp_… or task_…; `{program()} tasks` lists them")
    return found[1]


class Commands:
    """The commands of a parser."""

    def __init__(self, parser: Parser) -> None:
        self._words = parser.words
        self._parsers = parser.add_subparsers(prog=parser.prog, title="commands", metavar="COMMAND", dest="command")

    def add(self, run: Callable[[argparse.Namespace], int], name: str, told: str, more: str = "") -> Parser:
        """Add a command and return its parser."""
        added = self._parsers.add_parser(name, help=told, description=f"{told}. {more}".strip(), allow_abbrev=False)
        added.set_defaults(run=run, parser=added)
        added.words = self._words
        return added


def build_parser(words: Sequence[str] = ()) -> Parser:
    """The parser of the whole command line; the words are for its errors."""
    parser = Parser(prog=program(), description="A local-first, durable AI response service.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__, help="print the version and exit")
    parser.words = words
    commands = Commands(parser)
    _add_serve(commands)
    _add_ask(commands)
    _add_follow(commands)
    _add_tasks(commands)
    _add_cancel(commands)
    _add_care(commands)
    commands.add(_version, "version", "Print the version")
    return parser


def run(command_line: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code. One that is not understood ends in `SystemExit`."""
    words = sys.argv[1:] if command_line is None else command_line
    parser = build_parser(words)
    args, unknown = parser.parse_known_args(words)
    if args.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    if unknown:
        args.parser.unknown(unknown[0])
    if "data" in args and args.run is not _serve:  # the service refuses what these only tell
        _tell_passed_over(args.data)
    return args.run(args)


def _add_serve(commands: Commands) -> None:
    serve = commands.add(
        _serve,
        "serve",
        "Serve the Responses API until Ctrl-C or SIGTERM",
        "Every option can also be given in the environment, as can settings that have no option: PERDURE_PORT=8390. "
        "They are listed in docs/reference/settings.md.",
    )
    _add_data(serve, "folder for the database and the owner's token")
    add = serve.add_argument
    add("--host", metavar="ADDRESS", type=something, help="address to listen on (default 127.0.0.1)")
    add("--port", metavar="NUMBER", type=whole_number, help="port to listen on (default 8383; 0: any free one)")
    told = "a GGUF file to serve in place of the bundled model; may be given several times"
    add("--model", metavar="FILE", type=something, action="append", help=told)


def _add_ask(commands: Commands) -> None:
    ask = commands.add(
        _ask,
        "ask",
        "Ask the running service and show the answer as it is written",
        "Once it is accepted, the answer is written whether or not somebody reads it, and after a restart of the "
        "service as well: Ctrl-C only ends the reading.",
    )
    add = ask.add_argument
    add("text", metavar="TEXT", type=words, help="the question; - takes it from standard input")
    ask.takes_text = True
    add("--background", action="store_true", help="print the id and leave; the command `follow ID` shows the answer")
    add("--model", metavar="NAME", type=something, help="model to ask (default: the first one of the service)")
    add("--instructions", metavar="TEXT", type=words, help="goes before the question as a system message")
    add(
        "--max-output-tokens",
        metavar="N",
        type=whole_number,
        help="most tokens of the answer (default: up to the model's window)",
    )
    add(
        "--temperature",
        metavar="X",
        type=number,
        help="0 takes the likeliest token each time (default: the model's own)",
    )
    add("--seed", metavar="N", type=whole_number, help="the same seed draws the same answer (default: a new one)")
    add(
        "--on-restart",
        metavar="POLICY",
        choices=[str(each) for each in OnRestart],
        help=f"what a restart of the service does: {', '.join(OnRestart)} (default by setting: resume)",
    )
    _add_reading(ask, "print each event as a line of JSON; with --background the response object")
    _add_data(ask)


def _add_follow(commands: Commands) -> None:
    follow = commands.add(
        _follow,
        "follow",
        "Show an answer from its beginning, then live to its end",
        "Disconnects and restarts of the service leave no seam.",
    )
    add = follow.add_argument
    add("id", metavar="ID", type=ident, help="resp_… or task_…")
    add("--after", metavar="N", type=event_number, default=-1, help="begin with the event after number N")
    _add_reading(follow, "print each event as a line of JSON")
    _add_data(follow)


def _add_tasks(commands: Commands) -> None:
    tasks = commands.add(_tasks, "tasks", "List what the service works on and has worked on, the newest first")
    add = tasks.add_argument
    states = [str(each) for each in Status]
    add("--status", metavar="STATUS", choices=states, help=f"only those that stand there: {', '.join(states)}")
    add(
        "--limit",
        metavar="N",
        type=count,
        default=limits.TASKS_PAGE_DEFAULT,
        help=f"how many (default {limits.TASKS_PAGE_DEFAULT})",
    )
    add("--json", action="store_true", help="print the list object of the API")
    _add_data(tasks)


def _add_cancel(commands: Commands) -> None:
    cancel = commands.add(_cancel, "cancel", "End responses; one that has ended stays as it is")
    cancel.add_argument("ids", metavar="ID", type=ident, nargs="+", help="resp_… or task_…")
    cancel.add_argument("--json", action="store_true", help="print each task object as a line of JSON")
    _add_data(cancel)


def _add_care(commands: Commands) -> None:
    told = "Copy everything into one new file, checked, while the service runs or not"
    backup = commands.add(_backup, "backup", told, "The service goes on meanwhile.")
    backup.add_argument("file", metavar="FILE", type=something, help="the file to make; it must not exist")
    told = "Make a backup the database of an empty data folder"
    restore = commands.add(_restore, "restore", told, "What is unfinished in it goes on when it is served.")
    restore.add_argument("file", metavar="FILE", type=something, help="a file that the command `backup` has made")
    told = "Look for what is wrong with the data folder and its database; change nothing"
    doctor = commands.add(_doctor, "doctor", told, "Ends with 1 if there are problems.")
    told = "Give the free pages of the database back to the disk, while no service runs"
    compact = commands.add(_compact, "compact", told, "The service never needs it: it fills free pages again.")
    for parser in (backup, restore, doctor, compact):
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        _add_data(parser, "folder of the database")


def _add_data(parser: Parser, meaning: str = "data folder of the service") -> None:
    told = f"{meaning} (default: the user's data folder)"
    parser.add_argument("--data", metavar="FOLDER", type=something, help=told)


def _add_reading(parser: Parser, json: str) -> None:
    parser.add_argument("--json", action="store_true", help=json)
    told = "how long to wait for a service that goes away (default: until it is back)"
    parser.add_argument("--wait", metavar="SECONDS", type=seconds, help=told)


def _tell_passed_over(data: str | None) -> None:
    from perdure.cli.output import note
    from perdure.settings import passed_over

    for line in passed_over({"data": data}):
        note(line)


def _serve(args: argparse.Namespace) -> int:
    from perdure.cli.serve import serve

    model = None if args.model is None else os.pathsep.join(args.model)
    return serve({"model": model} | {name: getattr(args, name) for name in ("data", "host", "port")})


def _ask(args: argparse.Namespace) -> int:
    from perdure.cli.ask import ask
    from perdure.cli.contact import Folder

    names = ("model", "instructions", "max_output_tokens", "temperature", "seed", "on_restart")
    fields = {name: getattr(args, name) for name in names}
    return ask(Folder(args.data), args.text, fields, leave=args.background, as_json=args.json, wait=args.wait)


def _follow(args: argparse.Namespace) -> int:
    from perdure.cli.contact import Folder
    from perdure.cli.follow import follow

    return follow(Folder(args.data), f"resp_{args.id}", after=args.after, as_json=args.json, wait_seconds=args.wait)


def _tasks(args: argparse.Namespace) -> int:
    from perdure.cli.contact import Folder
    from perdure.cli.tasks import tasks

    return tasks(Folder(args.data), status=args.status, limit=args.limit, as_json=args.json)


def _cancel(args: argparse.Namespace) -> int:
    from perdure.cli.contact import Folder
    from perdure.cli.tasks import cancel

    return cancel(Folder(args.data), args.ids, as_json=args.json)


def _backup(args: argparse.Namespace) -> int:
    from perdure.cli.backup import backup

    return backup(args.data, args.file, as_json=args.json)


def _restore(args: argparse.Namespace) -> int:
    from perdure.cli.backup import restore

    return restore(args.data, args.file, as_json=args.json)


def _doctor(args: argparse.Namespace) -> int:
    from perdure.cli.doctor import doctor

    return doctor(args.data, as_json=args.json)


def _compact(args: argparse.Namespace) -> int:
    from perdure.cli.compact import compact

    return compact(args.data, as_json=args.json)


def _version(_args: argparse.Namespace) -> int:
    print(__version__)
    return EXIT_DONE
