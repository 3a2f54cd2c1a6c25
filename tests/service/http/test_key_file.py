import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.stub_engine import SAMPLE_RATE
from cli import main
from service.http.keys.access import Access
from service.http.keys.key_file import KeyFile, parse_keys
from service.keys import Key, KeyLimits, digest
from service.metrics import Metrics
from tests.service.serving import form, serving, tone, wait_for, wav

KEY, OTHER = "sk-steno-one", "sk-steno-two"
ALICE, BOB = f"alice:{digest(KEY)}", f"bob:{digest(OTHER)}"
RECORDING = wav(tone(SAMPLE_RATE))
DEFAULT = KeyLimits(max_requests=5, audio_seconds_per_minute=90)


def replace(path, text: str) -> None:
    """Replace a file by another of its name, as editors and mounted secrets do."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


def status(service, key: str) -> int:
    return service.client.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code


def test_a_line_is_a_key_and_may_limit_it():
    text = f"# of the team\n\n{ALICE}  # laptop\n{BOB} requests_per_minute=60 audio_seconds_per_minute=1.5\n"

    assert parse_keys(text, DEFAULT) == [
        Key("alice", digest(KEY), None),
        Key("bob", digest(OTHER), KeyLimits(5, 60, 1.5)),
    ]


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "keys"
    path.write_text(ALICE, encoding="utf-8-sig")

    assert KeyFile(path, [], DEFAULT).read() == [Key("alice", digest(KEY), None)]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (f"alice:{KEY}", "line 2 is not name:sha256"),
        (f"{BOB} 60", "line 2 has something that is not option=value"),
        (f"{BOB} requests=60", "line 2 has an unknown option; there are max_requests, requests_per_minute, audio_"),
        (f"{BOB} max_requests=0", "line 2 has a wrong max_requests: it must be a number above 0"),
        (f"{BOB} audio_seconds_per_minute=inf", "line 2 has a wrong audio_seconds_per_minute"),
        (f"{BOB} requests_per_minute=many", "line 2 has a wrong requests_per_minute"),
    ],
)
def test_an_error_has_the_number_of_the_line_not_its_text(line, fault):
    with pytest.raises(ValueError, match=fault) as refusal:
        parse_keys(f"{ALICE}\n{line}\n", DEFAULT)

    assert KEY not in str(refusal.value)


def test_a_replaced_file_is_read_again(tmp_path):
    path = tmp_path / "keys"
    path.write_text(ALICE)
    file = KeyFile(path, [Key("always", digest("x"))], DEFAULT)

    assert [key.name for key in file.read()] == ["always", "alice"]
    assert file.refresh() is None
    replace(path, BOB)
    assert file.refresh() is None
    assert [key.name for key in file.refresh()] == ["always", "bob"]
    path.unlink()
    with pytest.raises(ValueError, match="it is gone"):
        file.refresh()
    assert file.refresh() is None
    replace(path, ALICE)
    assert file.refresh() is None
    assert [key.name for key in file.refresh()] == ["always", "alice"]


def test_a_file_that_is_being_rewritten_is_read_when_it_is_whole(tmp_path):
    path = tmp_path / "keys"
    path.write_text(ALICE)
    file = KeyFile(path, [], DEFAULT)
    file.read()

    with path.open("w") as rewritten:  # empty from here on
        assert file.refresh() is None
        rewritten.write(BOB)
        rewritten.flush()
        assert file.refresh() is None
    assert [key.name for key in file.refresh()] == ["bob"]


def test_a_replaced_file_is_read_when_no_thread_can_be_started(tmp_path):
    path = tmp_path / "keys"
    path.write_text(ALICE)
    file, access = KeyFile(path, [], DEFAULT), Access([], is_open=False)
    file.read()

    async def scenario():
        threads = ThreadPoolExecutor()
        threads.shutdown()
        asyncio.get_running_loop().set_default_executor(threads)
        changed = asyncio.Event()
        watching = asyncio.create_task(file.watch(access, Metrics(), lambda _: changed.set()))
        replace(path, BOB)
        await asyncio.wait({watching, waiting := asyncio.create_task(changed.wait())}, return_when="FIRST_COMPLETED")
        watching.cancel()
        waiting.cancel()

    asyncio.run(scenario())

    assert access.names == ["bob"]


@pytest.mark.slow
def test_keys_come_and_go_while_the_service_runs_and_a_wrong_file_changes_nothing(tmp_path, caplog):
    path = tmp_path / "keys"
    path.write_text(ALICE)
    caplog.set_level("INFO", "steno.keys")
    with serving(api_keys_file=path) as service:
        assert (status(service, KEY), status(service, OTHER)) == (200, 401)
        assert service.metric('steno_key_requests_total{key="alice"}') == 0

        replace(path, f"{BOB} requests_per_minute=1")
        wait_for(lambda: caplog.messages.count("keys read") == 1)
        assert (status(service, KEY), status(service, OTHER)) == (401, 200)
        bob = {"authorization": f"Bearer {OTHER}"}
        answers = [service.post(**form(RECORDING), headers=bob).status_code for _ in range(2)]
        assert answers == [200, 429]

        replace(path, f"{BOB} requests_per_minute=1\n{ALICE} oops")
        wait_for(lambda: caplog.messages.count("keys stay as they are") == 1)
        assert (status(service, KEY), status(service, OTHER)) == (401, 200)

        replace(path, f"{BOB}\n{ALICE} max_requests=1\n{ALICE}")
        wait_for(lambda: caplog.messages.count("keys stay as they are") == 2)
        assert (status(service, KEY), status(service, OTHER)) == (401, 200)


def test_with_an_empty_file_no_key_opens_the_api(tmp_path):
    path = tmp_path / "keys"
    path.touch()
    with serving(api_keys_file=path) as service:
        assert status(service, KEY) == 401


@pytest.mark.parametrize("text", [None, f"alice:{KEY}\n", b"\xff\xfe"])
def test_a_wrong_file_is_named_and_the_service_does_not_start(tmp_path, capsys, text):
    path = tmp_path / "keys"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    assert main(["serve", "--port", "0", "--api-keys-file", str(path)]) == 2
    assert f"STENO_API_KEYS_FILE (--api-keys-file): {path}: " in capsys.readouterr().err
