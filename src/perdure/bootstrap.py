"""The composition root: settings in, a running service out. The only module that names concrete adapters."""

import asyncio
import contextlib
import errno
import hashlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import uvicorn

from perdure import __version__
from perdure.ambient import file_system, log
from perdure.ambient.clock import SystemClock
from perdure.ambient.folder import DataFolder, warn_of_others, write_private
from perdure.ambient.folder_findings import warn_of_loss
from perdure.ambient.names import RandomNames
from perdure.api.app import build_app
from perdure.domain.errors import (
    ModelUnavailable,
    PerdureError,
    RefusedToStart,
    StorageDamaged,
    StorageFailed,
    StorageFull,
)
from perdure.domain.principal import ALL_SCOPES, OWNER
from perdure.engine.engine import Engine
from perdure.engine.wakeups import unless
from perdure.listener import Connection, Listener
from perdure.ports.ambient import Clock, Names
from perdure.ports.storage import Store
from perdure.runtime.llamacpp import bundled
from perdure.runtime.llamacpp.supervisor import LlamaRuntime, ModelFile
from perdure.settings import Settings
from perdure.storage.sqlite.faults import damaged_at_start
from perdure.storage.sqlite.store import SqliteStore

SWITCH_SECONDS = 0.0005
LAST_LINE_SECONDS = 1.0
EXIT_DRAINED = 0
EXIT_BUDGET_EXHAUSTED = 3

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Started:
    """What to tell whoever started the service."""

    url: str
    model: str
    token_file: Path
    left_over: int


@contextmanager
def stage(name: str, seconds: float) -> Generator[None]:
    """Bound a stage of the stop: what is done inside may take so long.

    One that does not end in time ends the process, on a thread of its own since the event loop may be what hangs. The
    database is then left open on purpose: to close it under work that still runs would turn sound work into errors.
    Its log stays beside it, whole, and the next start reads it.
    """
    timer = threading.Timer(seconds, _give_up, (name,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _give_up(name: str) -> None:
    line = f"the time to stop ran out in the stage {name!r}; the database was not closed"
    # On a thread that nothing waits for: whoever should read standard error may be what hangs.
    telling = threading.Thread(target=_log.error, args=(line,), daemon=True)
    telling.start()
    telling.join(LAST_LINE_SECONDS)
    os._exit(EXIT_BUDGET_EXHAUSTED)


class Stop:
    """The wish to stop. The first signal asks for a drained stop, a second one for no more patience."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()

    def on_signal(self) -> None:
        """A signal came."""
        (self.hurry if self.asked.is_set() else self.asked).set()


async def serve(settings: Settings, announce: Callable[[Started], None]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. Raises `RefusedToStart`."""
    # The writer's thread needs the interpreter again after each statement, and by default waits 5 ms for it when the
    # event loop is busy: a tenth of the creates per second at 64 callers.
    sys.setswitchinterval(SWITCH_SECONDS)
    os.umask(0o077)  # prompts and answers are the owner's: whatever is written from here on is for nobody else
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.on_signal)
    clock, names = SystemClock(), RandomNames()
    files = _model_files(settings)
    file_system.refuse_unsafe(settings.folder, allow_network=settings.allow_network_folder)
    with DataFolder(settings.folder), _bind(settings) as listening:
        warn_of_others(settings.folder)
        warn_of_loss(settings.folder, settings.database.name)
        models_log = log.Held()
        async with _opened(settings, files, clock, stop, models_log) as (store, runtime):
            with _whole(settings.database):
                owner = _ensure_owner(settings.token_file, store, clock, names)
                await _to_its_end(owner, "start", settings.stop_database_seconds, stop)
                if settings.model_files:
                    await unless(stop.asked, _require(runtime, settings.model_files))
                models_log.release()
                engine = _engine(settings, store, runtime, clock, names)
                left = await unless(stop.asked, engine.start())
            if left is not None:
                started = Started(_url(listening), _first_name(files), settings.token_file, left)
                await _listen(settings, engine, names, listening, stop, lambda: _tell(settings, started, announce))
    log.event("stopped")
    return EXIT_DRAINED


async def _listen(
    settings: Settings,
    engine: Engine,
    names: Names,
    listening: socket.socket,
    stop: Stop,
    tell: Callable[[], None],
) -> None:
    """Answer until the wish to stop, then see the callers off and the work under way to a good place."""
    work_seconds = settings.drain_seconds + settings.stop_work_seconds
    config = uvicorn.Config(
        build_app(engine, settings, __version__, names),
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody's word for where a request came from
        timeout_graceful_shutdown=int(work_seconds + settings.stop_callers_seconds) + 1,
    )
    listener = Listener(config, tell)
    serving = asyncio.create_task(listener.serve([listening]), name="listen")
    asked = asyncio.create_task(stop.asked.wait(), name="stop")
    await asyncio.wait((serving, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    engine.drain()
    listener.should_exit = True
    log.event("stopping: work under way may end first; a second signal ends the wait", seconds=settings.drain_seconds)
    with stage("work under way", work_seconds):
        await _finish(engine, stop, settings.drain_seconds)
    with stage("callers", settings.stop_callers_seconds):
        await asyncio.wait((serving,), timeout=settings.stop_callers_seconds / 2)
        listener.force_exit = True  # whoever has not finished sending or reading by now is cut off
        await serving
    with contextlib.suppress(OSError):
        settings.server_file.unlink(missing_ok=True)


async def _finish(engine: Engine, stop: Stop, seconds: float) -> None:
    """Give the work its time, or less when somebody is in a hurry."""
    await unless(stop.hurry, engine.settle(seconds))
    await engine.finish()


@asynccontextmanager
async def _opened(
    settings: Settings, files: Sequence[ModelFile], clock: Clock, stop: Stop, models_log: log.Held
) -> AsyncGenerator[tuple[Store, LlamaRuntime]]:
    """The store and the runtime; on the way out the runtime goes first, the store's writing connection last."""
    opening = SqliteStore.open(settings.database, clock=clock, bytes_max=settings.database_max_bytes)
    store = await _to_its_end(opening, "opening of the database", settings.stop_database_seconds, stop)
    try:
        async with _running(settings, files, store, models_log) as runtime:
            yield store, runtime
    finally:
        with stage("database", settings.stop_database_seconds):
            await store.close()


@asynccontextmanager
async def _running(
    settings: Settings, files: Sequence[ModelFile], store: Store, models_log: log.Held
) -> AsyncGenerator[LlamaRuntime]:
    """The runtime, and what is known of its models kept."""
    runtime = LlamaRuntime(
        files,
        slots=settings.slots,
        window=settings.window_tokens,
        threads=settings.threads,
        memory_max_bytes=settings.kv_memory_max_bytes,
        models_memory_max_bytes=settings.models_memory_max_bytes or _machine_memory_bytes(),
        idle_seconds=settings.idle_seconds,
        log=models_log.event,
    )
    runtime.start()
    keeping = asyncio.create_task(_keep_models(files, store, runtime), name="keep models")
    try:
        yield runtime
    finally:
        with stage("model processes", settings.stop_models_seconds):
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await runtime.close()


async def _to_its_end(work: Coroutine[Any, Any, T], name: str, seconds: float, stop: Stop) -> T:
    """The result of a part of the start that is not given up half way. Whoever wishes to stop meanwhile waits for it,
    but no longer than for a stage of the stop."""
    begun, asked = asyncio.ensure_future(work), asyncio.ensure_future(stop.asked.wait())
    try:
        await asyncio.wait((begun, asked), return_when=asyncio.FIRST_COMPLETED)
        with contextlib.nullcontext() if begun.done() else stage(name, seconds):
            return await begun
    finally:
        asked.cancel()


async def _keep_models(files: Sequence[ModelFile], store: Store, runtime: LlamaRuntime) -> None:
    """Keep what is known of the models, their digests above all; the files stay where they are."""
    paths = {file.name: str(file.path.absolute()) for file in files}
    try:
        for card in await runtime.models():
            await store.keep_model(card, paths[card.name])
    except PerdureError as error:  # nothing depends on it today; the next start keeps it
        log.fault("keep models", error)


def _first_name(files: Sequence[ModelFile]) -> str:
    return files[0].name if files else bundled.NAME


def _machine_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _engine(settings: Settings, store: Store, runtime: LlamaRuntime, clock: Clock, names: Names) -> Engine:
    return Engine(
        store,
        runtime,
        clock,
        names,
        _fault,
        boot=names.ident(clock.now()),
        queue_max=settings.queue_max_tasks,
        crashes_max=settings.crashes_max,
        retention_seconds=settings.retention_seconds,
    )


def _fault(doing: str, error: BaseException) -> None:
    """Tell of what went wrong, but for trouble with the disk: the store tells of that itself, once."""
    if not isinstance(error, StorageFull | StorageFailed):
        log.fault(doing, error)


@contextmanager
def _whole(database: Path) -> Generator[None]:
    """Name the file when damage is met before anybody could be answered."""
    try:
        yield
    except StorageDamaged as error:
        raise damaged_at_start(database, str(error.__cause__ or "the log says more")) from error


def _model_files(settings: Settings) -> list[ModelFile]:
    named = [ModelFile(path.stem, path) for path in settings.model_files]
    for file in named:
        if not file.path.is_file():
            raise RefusedToStart(f"The model file {file.path} does not exist; name a GGUF file with --model.")
    names = [file.name for file in named]
    for name in names:
        if names.count(name) > 1:
            raise RefusedToStart(f"Two model files are called {name}; a model is known by its file's name.")
    if named:
        return named
    found = bundled.find_bundled()
    if found is None:  # stored work stays readable; /readyz says that there is nothing to ask
        log.event(bundled.MISSING)
        return []
    return [ModelFile(bundled.NAME, found, bundled.RECOMMENDED)]


async def _require(runtime: LlamaRuntime, files: Sequence[Path]) -> None:
    """Models named on the command line have to work: whoever named them is there to read why one does not."""
    try:
        await runtime.warm()
    except ModelUnavailable as error:
        told = "The file is" if len(files) == 1 else "The files are"
        raise RefusedToStart(f"{error.message} {told} {', '.join(map(str, files))}.") from error


async def _ensure_owner(path: Path, store: Store, clock: Clock, names: Names) -> None:
    """Keep this true: the owner's file holds a token that works. A new token is in the file before it counts."""
    kept = await asyncio.to_thread(_read, path)
    if kept and await store.principal(_digest(kept), clock.now()) is not None:
        return
    token = names.token()
    try:
        write_private(path, token + "\n")
    except OSError as error:
        raise RefusedToStart(f"The token file {path} cannot be written: {error.strerror}.") from None
    await store.add_client(OWNER, _digest(token), token[:12], ALL_SCOPES, clock.now())


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _bind(settings: Settings) -> socket.socket:
    """Take the address early, so that a port in use is told before anything is touched; nobody is let in yet."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise RefusedToStart(
                f"The port {settings.port} on {settings.host} is in use; choose another with --port or PERDURE_PORT."
            ) from None
        raise RefusedToStart(
            f"The address {settings.host}:{settings.port} cannot be used: {error.strerror}."
        ) from None
    return bound


def _url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _tell(settings: Settings, started: Started, announce: Callable[[Started], None]) -> None:
    facts = msgspec.json.encode({"pid": os.getpid(), "address": started.url, "version": __version__})
    try:
        write_private(settings.server_file, facts.decode() + "\n")
    except OSError as error:  # it only helps commands to find the service
        log.fault("write of server.json", error)
    announce(started)
