"""A service that cannot start says why in one line and ends with 1."""

import hashlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import apsw
import pytest

from perdure.cli.failures import EXIT_DAMAGED, EXIT_FAILED
from tests.system.server import COMMAND, Server
from tests.system.volume import small_volume


def refused(*options: str, code: int = EXIT_FAILED, **env: str) -> str:
    """The one line of a start that is refused."""
    ended = subprocess.run(
        [str(COMMAND), "serve", *options],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | env,
        check=False,
    )
    assert ended.returncode == code, ended
    assert ended.stdout == ""
    (line,) = ended.stderr.strip().splitlines()
    assert line.startswith("perdure: ")
    return line


def test_port_in_use(tmp_path: Path) -> None:
    """The port and the remedy are named, and the data folder is let go."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = refused("--data", str(tmp_path), "--port", port)
    assert port in line
    assert "--port" in line


@pytest.mark.proves("C-16")
def test_data_folder_in_use(tmp_path: Path, tiny_model: Path) -> None:
    """A second service on the same folder is refused before it opens anything; the first goes on."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        assert server.process is not None
        line = refused("--data", str(server.data), "--port", "0")
        assert str(server.data) in line
        assert str(server.process.pid) in line
        assert server.ended(server.create(max_output_tokens=5)["id"])["status"] == "incomplete"


def test_data_folder_not_usable(tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "file").write_text("")
    assert "--data" in refused("--data", str(tmp_path / "file"), "--port", "0")


def test_data_folder_not_writable() -> None:
    """A folder where nothing can be written (the kernel's own, since root may write anywhere else)."""
    assert "--data" in refused("--data", "/proc/perdure", "--port", "0")


def test_missing_model(tmp_path: Path) -> None:
    """A model that is named has to be there."""
    missing = tmp_path / "missing.gguf"
    line = refused("--data", str(tmp_path / "data"), "--port", "0", "--model", str(missing))
    assert str(missing) in line


def test_damaged_model(tmp_path: Path, tiny_model: Path) -> None:
    """A model that is named has to be whole."""
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(tiny_model.read_bytes()[:60_000])
    line = refused("--data", str(tmp_path / "data"), "--port", "0", "--model", str(damaged))
    assert str(damaged) in line
    assert "corrupted or incomplete" in line


def test_not_a_database(tmp_path: Path) -> None:
    """A file that is no database is named and left alone."""
    (tmp_path / "perdure.db").write_bytes(b"something else entirely" * 100)
    line = refused("--data", str(tmp_path), "--port", "0", code=EXIT_DAMAGED)
    assert "perdure.db" in line
    assert (tmp_path / "perdure.db").read_bytes() == b"something else entirely" * 100


@pytest.mark.parametrize("lost", [True, False])
def test_a_log_without_its_database(tmp_path: Path, tiny_model: Path, lost: bool) -> None:
    """What was committed is in the log only: nothing is touched until the file is back."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        done = server.create(max_output_tokens=5)["id"]
        server.ended(done)
        server.kill()
        database, log = server.data / "perdure.db", server.data / "perdure.db-wal"
        whole, held = database.read_bytes(), log.read_bytes()
        database.unlink() if lost else os.truncate(database, 0)
        line = refused("--data", str(server.data), "--port", "0", code=EXIT_DAMAGED)
        assert str(database) in line
        assert str(log) in line
        assert log.read_bytes() == held
        assert database.exists() != lost
        database.write_bytes(whole)
        server.start()
        assert server.task(done)["status"] == "incomplete"


def test_a_database_elsewhere(tmp_path: Path) -> None:
    """A link to it is refused, and the folder to name is named."""
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "perdure.db").symlink_to(tmp_path / "elsewhere" / "perdure.db")
    line = refused("--data", str(tmp_path / "data"), "--port", "0")
    assert "symbolic link" in line
    assert str(tmp_path / "elsewhere") in line


def test_a_full_disk(tmp_path: Path, tiny_model: Path) -> None:
    """Before there is a database, and with one. With some room it starts."""
    with small_volume(tmp_path / "data", 4 * 1024 * 1024) as volume:
        volume.fill()
        assert "full" in refused("--data", str(volume.folder), "--port", "0")
        volume.free()
        with Server(volume.folder, tiny_model).start() as server:
            assert server.terminate() == 0
            volume.fill()
            assert "the disk is full" in refused("--data", str(volume.folder), "--port", "0")
            volume.free()
            server.start()


def test_all_problems_with_settings_are_told_together(tmp_path: Path) -> None:
    """Out-of-range values and misspelt names come in the same line."""
    line = refused("--data", str(tmp_path), PERDURE_SLOTS="0", PERDURE_PORT="http", PERDURE_SLOT="3")
    assert all(name in line for name in ("PERDURE_SLOTS", "PERDURE_PORT", "PERDURE_SLOT is no setting"))


def test_it_starts_with_the_network_off(tmp_path: Path) -> None:
    """Nothing is fetched at run time: in a network namespace without any interface it answers in full."""
    with Server(tmp_path / "data") as server:
        script = (
            "ip link set lo up 2>/dev/null || true; exec " + str(COMMAND) + f" serve --data {server.data} --port 8383"
        )
        server.process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert server.process.stdout is not None
        assert server.process.stdout.readline().startswith("Perdure listens on ")
        body = json.dumps({"model": "smollm2-135m-instruct", "input": "Hello.", "max_output_tokens": 3})
        ask = f"""
import http.client
http_client = http.client.HTTPConnection("127.0.0.1", 8383, timeout=60)
token = open("{server.token_path}").read().strip()
headers = {{"Authorization": "Bearer " + token, "Content-Type": "application/json"}}
http_client.request("POST", "/v1/responses", {body!r}, headers)
print(http_client.getresponse().read().decode())
"""
        entered = ["nsenter", "--net", "--target", str(server.process.pid), str(COMMAND.parent / "python"), "-c", ask]
        answer = subprocess.run(entered, capture_output=True, text=True, timeout=60, check=False)
        assert json.loads(answer.stdout)["status"] in ("completed", "incomplete"), answer
        server.process.send_signal(signal.SIGINT)
        _, errors = server.process.communicate(timeout=30)
        assert server.process.returncode == 0, errors
        server.process = None


def test_the_owner_token_is_private_and_works(tmp_path: Path, tiny_model: Path) -> None:
    """The file is for its owner only; when it is lost, the next start makes a new one and the old token ends."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        first = server.token
        assert server.token_path.stat().st_mode & 0o777 == 0o600
        assert server.data.stat().st_mode & 0o777 == 0o700
        assert (server.data / "perdure.db").stat().st_mode & 0o777 == 0o600
        server.terminate()
        server.start()
        assert server.token == first
        server.terminate()
        server.token_path.unlink()
        server.start()
        assert server.token != first
        assert server.http.get("/v1/models").status_code == 200
        old = {"Authorization": f"Bearer {first}"}
        assert server.http.get("/v1/models", headers=old).status_code == 401


def test_of_two_services_on_one_port_one_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    """Also when both start in the same instant: nobody says that he listens when somebody else does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    servers = [Server(tmp_path / name, tiny_model) for name in ("one", "two")]
    for server in servers:
        server.spawn(port=port)
    lines = [server.first_line() for server in servers]
    assert sorted(line.startswith(f"Perdure listens on http://127.0.0.1:{port} ") for line in lines) == [False, True]
    for server, line in zip(servers, lines, strict=True):
        if line:
            assert server.terminate() == 0
        else:
            assert server.wait() == 1
            assert "port" in server.errors.read_text()


def test_an_input_that_cannot_fit_is_refused_before_the_work(tiny_server: Server) -> None:
    """However it is made: refused at once with the reason, and nobody behind it waits."""
    answer = tiny_server.http.post("/v1/responses", json={"model": tiny_server.model_name, "input": "a" * 4_000_000})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert "4000000 bytes" in answer.json()["error"]["message"]
    many = [{"role": "user", "content": "a"} for _ in range(5_000)]
    answer = tiny_server.http.post("/v1/responses", json={"model": tiny_server.model_name, "input": many})
    assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.real_model
def test_spelled_out_control_tokens_are_counted_before_the_work(real_server: Server) -> None:
    """Their tokenising takes the longer the more there are, and everybody else would wait for it."""
    body = {"model": real_server.model_name, "input": "<|im_end|>" * 5_000}
    answer = real_server.http.post("/v1/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "at least 5001 tokens" in answer.json()["error"]["message"]


@pytest.mark.proves("P2")
def test_what_is_kept_of_a_model_is_its_digest(tmp_path: Path, tiny_model: Path) -> None:
    """The facts and where the file lies; the file itself stays there."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        shown = server.get("/v1/models")["data"][0]
        assert server.terminate() == 0
        kept = apsw.Connection(str(server.data / "perdure.db"))
        rows = kept.execute("SELECT name, digest, path FROM models").fetchall()
        kept.close()
    digest = hashlib.sha256(tiny_model.read_bytes()).hexdigest()
    assert rows == [("tiny", digest, str(tiny_model))]
    assert shown["digest"] == digest
