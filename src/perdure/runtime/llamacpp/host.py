"""One model of the service: its file, its two children, its card."""

import asyncio
import errno
import hashlib
import os
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from perdure.domain.errors import InvalidRequest, ModelUnavailable
from perdure.domain.model import Encoded, ModelCard, Prompt
from perdure.ports.runtime import Job, PromptTooLong, Statistics
from perdure.runtime.llamacpp import wire
from perdure.runtime.llamacpp.defaults import Recommended, default_sampling
from perdure.runtime.llamacpp.engine import Engine
from perdure.runtime.llamacpp.exactness import fingerprint, is_exact
from perdure.runtime.llamacpp.generation import LlamaGeneration
from perdure.runtime.llamacpp.keeper import Keeper
from perdure.runtime.llamacpp.library import LibraryUnusable, find_library
from perdure.runtime.llamacpp.plan import DoesNotFit, Plan, make_plan
from perdure.runtime.llamacpp.prompts import texts
from perdure.runtime.llamacpp.tokenizer import Tokenizer

_CHUNK_BYTES = 1 << 22


class ModelFile(NamedTuple):
    """A model under the name that requests use, and the GGUF file it is in. `recommended` is how its publisher wants
    it sampled, where the file does not say."""

    name: str
    path: Path
    recommended: Recommended = Recommended()


class HostSettings(NamedTuple):
    """What all models of a service have in common; see `LlamaRuntime`."""

    slots: int
    window: int
    threads: int
    memory_max_bytes: int
    models_memory_max_bytes: int
    library: Path | None
    log: Callable[[str], None]


class _Identity(NamedTuple):
    """What tells that a file is still the one whose digest was taken."""

    inode: int
    size_bytes: int
    mtime_ns: int


def sha256_of(path: Path, given_up: threading.Event) -> str:
    """The SHA-256 of a file in hex. Raises `OSError`, also when it is given up on the way.

    Reads it whole (0.15 s for 100 MB), but not again while it is the same file of the same size and time. The thread
    that does it would otherwise hold up the end of the process.
    """
    key = path, _identify(path)
    if key not in _digests:
        _digests[key] = _read_digest(path, given_up)
    return _digests[key]


_digests: dict[tuple[Path, _Identity], str] = {}


def _read_digest(path: Path, given_up: threading.Event) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            if given_up.is_set():
                raise OSError(errno.ECANCELED, "the service is stopping", str(path))
            digest.update(chunk)
    return digest.hexdigest()


def _identify(path: Path) -> _Identity:
    state = path.stat()
    return _Identity(state.st_ino, state.st_size, state.st_mtime_ns)


class Host:
    """Keeps the model of one file at work, or knows why it cannot be. `failed` is told the name of a model whose
    engine is given up."""

    def __init__(self, file: ModelFile, settings: HostSettings, *, failed: Callable[[str], None]) -> None:
        self.name = file.name
        self._path = file.path
        self._recommended = file.recommended
        self._settings = settings
        self._identity: _Identity | None = None
        self._own_fault: str | None = None
        self._card: ModelCard | None = None
        self._starting: asyncio.Task[None] | None = None
        self._given_up = threading.Event()
        self._text_max_bytes = 0
        self.memory_bytes: int | None = None
        log = self._log
        self.tokenizer = Tokenizer(file.name, opening=self._open_tokenizer, log=log)
        self.engine = Engine(file.name, opening=self._open_engine, log=log, failed=lambda: failed(file.name))

    def start(self, *, load: bool) -> None:
        """Begin; returns at once. To `load` the model right away saves the time until its card is known."""
        self._starting = asyncio.create_task(self._start(load=load), name=f"start of {self.name}")

    @property
    def fault(self) -> str | None:
        """Why the model cannot be asked, in one sentence."""
        reason = self._own_fault or self.tokenizer.keeper.fault or self.engine.keeper.fault
        return f"The model {self.name} cannot be used: {reason.rstrip('.')}." if reason else None

    @property
    def usable(self) -> bool:
        """Whether nothing speaks against the model, and what fits is known."""
        return self._card is not None and self.fault is None

    async def card(self) -> ModelCard:
        """The card; waits for the first start. Raises `ModelUnavailable`."""
        await self._started()
        await self.look_again()
        if self._card is None or self.fault is not None:
            raise ModelUnavailable(self.fault or f"The model {self.name} has not been started.")
        return self._card

    async def encode(self, prompt: Prompt) -> Encoded:
        """See the port."""
        card = await self.card()
        try:
            size = sum(len(text.encode(errors="replace")) for text in texts(prompt))
            if size > self._text_max_bytes:
                raise PromptTooLong(f"{size} bytes")
            with self._naming_the_fault():
                return await self.tokenizer.encode(prompt, card.context_length)
        except UnicodeEncodeError as error:
            raise InvalidRequest("A text holds half a surrogate pair.", param="input") from error
        except OverflowError as error:
            param = "tools" if prompt.tools else f"{prompt.places.format}.schema"
            raise InvalidRequest("A schema holds a whole number of more than 64 bits.", param=param) from error

    async def ready(self) -> None:
        """Wait until the model, which is being loaded, can draw. Raises `ModelUnavailable`."""
        with self._naming_the_fault():
            await self.engine.ready()

    def generate(self, job: Job) -> LlamaGeneration:
        """See the port."""
        return self.engine.generate(job)

    def statistics(self) -> Statistics:
        """See the port."""
        return msgspec.structs.replace(self.engine.statistics(), memory_bytes=self.memory_bytes, fault=self.fault)

    async def look_again(self) -> None:
        """Where its file is why the model cannot be used, see whether it is back as it was."""
        if self._card is None or not self._unopened():
            return
        trouble = await self._file_trouble()
        if self._given_up.is_set():
            return
        if trouble is None and self._unopened():
            self._log("its file is as it was; the model can be used again")
        for keeper in self._unopened():
            if trouble is not None:
                keeper.fault = trouble
            elif keeper is self.tokenizer.keeper:
                keeper.start()
            else:
                keeper.forgive()  # it starts when somebody needs it

    def _unopened(self) -> list[Keeper[Any]]:
        return [keeper for keeper in self.keepers() if keeper.unopened]

    def keepers(self) -> Sequence[Keeper[Any]]:
        """The keepers of both children."""
        return [self.tokenizer.keeper, self.engine.keeper]

    async def close(self) -> None:
        """End both children and return when they are gone. May be repeated."""
        self._given_up.set()
        if self._starting is not None:  # first: it starts children
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await asyncio.gather(self.tokenizer.keeper.close(), self.engine.keeper.close())

    @contextmanager
    def _naming_the_fault(self) -> Generator[None]:
        """What a keeper gives as the reason, in a sentence that names the model."""
        try:
            yield
        except ModelUnavailable as error:
            raise ModelUnavailable(self.fault or error.message) from error

    async def _started(self) -> None:
        """Wait for the first start, without ending it when the one who waits is cancelled."""
        if self._starting is not None and not self._starting.done():
            await asyncio.wait([self._starting])

    async def _start(self, *, load: bool) -> None:
        try:
            self._identity = await asyncio.to_thread(_identify, self._path)
            library = self._settings.library or find_library()
        except OSError as error:
            self._blame(f"its file cannot be read ({error.strerror})")
            return
        except LibraryUnusable as error:
            self._blame(str(error))
            return
        self.tokenizer.keeper.start()
        if load:
            self.engine.load()
        try:
            self._card = await self._make_card(library)
        except OSError as error:
            what = "the library" if error.filename == str(library) else "its file"
            self._blame(f"{what} cannot be read ({error.strerror})")
        except DoesNotFit as error:
            self._blame(str(error))
        except ModelUnavailable:
            return  # the keeper that raised it holds the fault

    async def _make_card(self, library: Path) -> ModelCard:
        """The card from the file's facts and digest: it is there before the weights are, which may take long."""
        assert self._identity is not None  # noqa: S101 - taken just before
        facts = await self.tokenizer.keeper.ready()  # first: a file that is refused need not be read whole
        digest, library_digest = await asyncio.gather(
            asyncio.to_thread(sha256_of, self._path, self._given_up),
            asyncio.to_thread(sha256_of, library, self._given_up),
        )
        threads = self._settings.threads
        plan = self._plan(facts)
        self.engine.slots = plan.slots
        self.memory_bytes = self._identity.size_bytes + plan.kv_bytes
        self._text_max_bytes = plan.window * facts.token_bytes_max
        temperature, top_p = default_sampling(facts, self._recommended, self._log)
        return ModelCard(
            name=self.name,
            digest=digest,
            size_bytes=self._identity.size_bytes,
            context_length=plan.window,
            exact=is_exact(facts, threads),
            fingerprint=fingerprint(facts, model_digest=digest, library_digest=library_digest, threads=threads),
            created_at=self._identity.mtime_ns // 1_000_000_000,
            temperature=temperature,
            top_p=top_p,
        )

    def _blame(self, reason: str) -> None:
        """Have a fault of our own. It is told to every caller, so it names no path; the log does."""
        self._own_fault = reason
        if not self._given_up.is_set():
            self._log(reason)

    def _log(self, line: str) -> None:
        self._settings.log(f"model {self.name} ({self._path}): {line}")

    def _kv_max_bytes(self) -> int:
        """What the key/value memory may take: its own bound, and what the file leaves of that of all models."""
        assert self._identity is not None  # noqa: S101 - nothing is loaded before the file was looked at
        left = self._settings.models_memory_max_bytes - self._identity.size_bytes
        return min(self._settings.memory_max_bytes, max(0, left))

    def _plan(self, facts: wire.TokenizerReady) -> Plan:
        """What fits. Raises `DoesNotFit`, which names the setting."""
        allowed = self._kv_max_bytes()
        try:
            return make_plan(
                bytes_per_token=facts.kv_bytes_per_token,
                context_train=facts.context_train,
                slots=self._settings.slots,
                window=self._settings.window,
                memory_max_bytes=allowed,
            )
        except DoesNotFit as error:
            if allowed == self._settings.memory_max_bytes:
                raise DoesNotFit(f"{error} by kv_memory_max_bytes") from error
            assert self._identity is not None  # noqa: S101 - as above
            raise DoesNotFit(
                f"{error}: models_memory_max_bytes is {self._settings.models_memory_max_bytes:,}, and its file takes "
                f"{self._identity.size_bytes:,}"
            ) from error

    async def _check_file(self) -> None:
        """Raise `ModelUnavailable` where the file is not the one whose digest the card shows."""
        trouble = await self._file_trouble()
        if trouble is not None:
            raise ModelUnavailable(trouble)

    async def _file_trouble(self) -> str | None:
        """What is wrong with the file. One that was copied, or touched, and holds the same is the same."""
        try:
            now = await asyncio.to_thread(_identify, self._path)
            if now == self._identity:
                return None
            if self._card is not None and now.size_bytes == self._card.size_bytes:
                digest = await asyncio.to_thread(sha256_of, self._path, self._given_up)
                if digest == self._card.digest and await asyncio.to_thread(_identify, self._path) == now:
                    self._identity = now
                    return None
        except OSError as error:
            return f"its file cannot be read ({error.strerror})"
        return "its file has changed since the service started; put the old one back, or restart the service"

    def _library(self) -> bytes | None:
        return os.fsencode(self._settings.library) if self._settings.library else None

    async def _open_tokenizer(self) -> wire.Order:
        await self._check_file()
        return wire.OpenTokenizer(
            path=os.fsencode(self._path), library=self._library(), calling=self._recommended.calling
        )

    async def _open_engine(self) -> wire.Order:
        await self._check_file()
        return wire.OpenEngine(
            path=os.fsencode(self._path),
            library=self._library(),
            slots=self._settings.slots,
            window=self._settings.window,
            threads=self._settings.threads,
            memory_max_bytes=self._kv_max_bytes(),
        )
