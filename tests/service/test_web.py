"""The page at / in a real browser, before a real server."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import av
import httpx
import numpy as np
import pytest
import soundfile

from audio.segment.cuts import CutBlock
from audio.segment.segmenter import Segment
from service.dispatch import cut_recording
from service.keys import digest
from tests.service.browser import ENTER, LEFT, RIGHT, TAB, chromium
from tests.service.serving import PATIENCE, form, serving, tone, wait_for, wav

pytestmark = [pytest.mark.slow, pytest.mark.program("chromium"), pytest.mark.program("chromedriver")]

AXE = Path(__file__).parents[1] / "clients" / "node_modules" / "axe-core" / "axe.min.js"
SAMPLE = Path(__file__).parents[2] / "samples" / "austen.flac"
SAMPLES = tone(32_000)  # two seconds: the stub hears its length in the first one and its sum in the second
IN_FLIGHT = 'steno_http_requests_in_flight{endpoint="transcriptions"}'


@pytest.fixture(scope="module")
def service():
    with serving(hosts=("localhost", "127.0.0.1", "steno.test")) as service:
        yield service


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def page(browser, service):
    """The browser, before the page of the service."""
    visit(browser, service)
    return browser


@pytest.fixture
def clip(tmp_path):
    return recorded(tmp_path / "clip.wav", SAMPLES)


def recorded(path, samples):
    """A recording in a file."""
    path.write_bytes(wav(samples))
    return path


def visit(browser, service, host="127.0.0.1"):
    browser.screen(1000, 900)
    browser.open(f"http://{host}:{service.server.port}/")
    browser.wait_text("[data-number=state]", "ready")


def choose(browser, path):
    browser.run("document.getElementById('file').value = ''")  # as a click does, which would open a dialogue
    browser.type("#file", str(path))


def transcribe(browser, path):
    choose(browser, path)
    browser.wait_text("#status", "transcribed in")


def send_by_swagger_ui(browser, path):
    wait_for(lambda: browser.shows("#operations-default-transcribe_v1_audio_transcriptions_post"))
    browser.click("#operations-default-transcribe_v1_audio_transcriptions_post .opblock-summary-control")
    wait_for(lambda: browser.shows(".opblock input[type=file]"))
    browser.type(".opblock input[type=file]", str(path))
    browser.click(".opblock .execute")
    wait_for(lambda: browser.shows(".live-responses-table"))
    browser.wait_text(".live-responses-table", f"32000 {SAMPLES.sum():.3f}")


@contextmanager
def prefixed(port, prefix, *, loses_the_last_event=False):
    """Yield the port of a proxy that serves the service at ``port`` below a path, and nothing elsewhere."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self):
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() != "accept-encoding"}
            url = f"http://127.0.0.1:{port}{self.path.removeprefix(prefix)}"
            answer = httpx.request(self.command, url, headers=headers, content=body)
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name != "transfer-encoding":
                    self.send_header(name, value)
            self.end_headers()  # the end of the connection is that of the body
            last = answer.content.rfind(b"data: ") if loses_the_last_event and self.command == "POST" else None
            self.wfile.write(answer.content[:last])

        def do_POST(self):
            self.do_GET()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        Thread(target=proxy.serve_forever).start()
        try:
            yield proxy.server_port
        finally:
            proxy.shutdown()


def rows(browser):
    """What is shown of each recording of the list."""
    return browser.run("return [...document.querySelectorAll('#recordings li')].map((row) => row.innerText)")


def spoken(browser):
    """The words that are lit."""
    return browser.run("return [...document.querySelectorAll('.spoken')].map((word) => word.textContent)")


def test_phrases_go_with_the_recording_and_with_the_one_that_is_shown(page, clip):
    page.click("#options summary")
    page.type("#phrases", "Ada Lovelace" + ENTER + "Steno")
    transcribe(page, clip)
    page.wait_text("#words", f"{SAMPLES.sum():.3f}Ada Lovelace|Steno")

    page.type("#phrases", ENTER + "Hopper" + TAB)

    page.wait_text("#words", f"{SAMPLES.sum():.3f}Ada Lovelace|Steno|Hopper")


def test_the_two_sides_of_a_call_are_shown_separately(browser, service, tmp_path):
    other = tone(32_000, 0.2)
    path = recorded(tmp_path / "call.wav", np.stack([SAMPLES, other], axis=1))
    visit(browser, service)
    browser.click("#options summary")
    browser.click("label[for=multichannel]")

    transcribe(browser, path)

    paragraphs = browser.run("return [...document.querySelectorAll('#words p')].map((p) => p.textContent.trim())")
    assert paragraphs == [
        f"0:00 Channel 1: 32000 {SAMPLES.sum():.3f}",
        f"0:00 Channel 2: 32000 {other.sum():.3f}",
    ]


def test_the_languages_and_decoders_of_the_model_are_offered(browser, clip):
    offered = (
        "return ['language', 'target', 'decoder'].map((id) => document.getElementById(id))"
        ".map((select) => select.closest('.row').hidden ? null : [...select.options].map((one) => one.text))"
    )
    with serving(model="plain.nemo,second=polyglot-ctc.nemo") as service:
        visit(browser, service)
        browser.click("#options summary")
        wait_for(lambda: browser.run("return document.getElementById('model').options.length") == 2)
        assert browser.run(offered) == [None, None, None]

        browser.type("#model", "second")
        assert browser.run(offered) == [["Automatic", "English", "French", "German"], None, ["Default", "tdt", "ctc"]]
        browser.type("#decoder", "ctc")
        transcribe(browser, clip)

        assert "today?" in browser.run("return document.getElementById('words').textContent").replace(
            "aujourd'hui", "today"
        )


def test_the_language_that_automatic_found_is_shown_and_where_it_changes(browser, tmp_path, monkeypatch):
    german, french = 63_999, 64_001  # samples that the stub identifies as these
    segments = [Segment(0, german), Segment(german, german + french)]
    block = CutBlock(segments, np.empty(0, np.float32))
    monkeypatch.setattr(cut_recording, "cuts", lambda recording, detector, rule: iter([block]))
    for name, samples in {"german.wav": german, "both.wav": german + french}.items():
        recorded(tmp_path / name, tone(samples))
    with serving(model="prompted.nemo", language_identifier="finder.nemo", max_utterance_seconds=5.0) as service:
        visit(browser, service)
        browser.click("#options summary")
        wait_for(lambda: "Automatic" in browser.text("#language"))
        transcribe(browser, tmp_path / "german.wav")
        assert browser.text("#spoken") == "Language: German (identified in the audio, 90 %)"
        assert browser.run("return document.getElementById('words').lang") == "de"

        choose(browser, tmp_path / "both.wav")
        wait_for(lambda: browser.run("return document.querySelectorAll('#words p').length") == 2)
        browser.wait_text("#status", "8.0 s of audio")
        assert browser.text("#words p:last-child").startswith("0:04[French] Bonjour")

        browser.type("#language", "French")
        wait_for(lambda: browser.run("return document.getElementById('words').textContent").startswith("0:00 Bonjour"))
        assert not browser.shows("#spoken")  # it was chosen


@pytest.mark.parametrize(
    ("model", "unset", "shown"),
    [
        ("polyglot.nemo", "Automatic", "Language: French (detected in the text, 100 %)"),
        ("prompted.nemo", "Default (assumed)", "Language: English (assumed; see Options)"),
    ],
)
def test_without_an_identifier_it_is_shown_what_became_of_automatic(browser, tmp_path, model, unset, shown):
    path = recorded(tmp_path / "french.wav", tone(64_001))
    with serving(model=model) as service:
        visit(browser, service)
        browser.click("#options summary")
        wait_for(lambda: browser.text("#language").startswith(unset))

        transcribe(browser, path)

        assert browser.text("#spoken") == shown


def offered_models(browser):
    script = "return [...document.getElementById('model').options].map((one) => [one.text, one.disabled])"
    wait_for(lambda: browser.run(script) != [])
    return browser.run(script)


def test_a_model_can_be_chosen_if_it_can_answer(browser, clip):
    on_demand = {"models_on_demand": "rare=hub/polyglot", "model": "plain.nemo,endless"}
    with serving(wait_ready=False, **on_demand) as service:
        wait_for(lambda: service.client.get("/readyz").json()["models"].get("plain") == "ready")
        browser.open(f"http://127.0.0.1:{service.server.port}/")

        assert offered_models(browser) == [
            ["plain", False],
            ["endless (still loading)", True],
            ["rare (loaded when it is used)", False],
        ]
        transcribe(browser, clip)
        browser.run("const [_, other] = model.options; other.selected = true; model.dispatchEvent(new Event('change'))")
        browser.wait_text("#error", "model_loading")


# The next time that the page asks for the models, it gets no answer.
LOSE_A_LIST = (
    "const ask = window.fetch;"
    "window.looks = 0;"
    "window.fetch = (path, ...rest) => path === 'v1/models' && !looks++ ? Promise.reject(new TypeError('lost'))"
    " : ask(path, ...rest)"
)


def test_a_lost_list_of_models_changes_nothing_and_is_asked_for_again(browser):
    models = {"model": "first.nemo,second.nemo,endless"}
    with serving(wait_ready=False, **models) as service:
        wait_for(lambda: service.client.get("/readyz").json()["models"].get("second") == "ready")
        browser.open(f"http://127.0.0.1:{service.server.port}/")
        before = offered_models(browser)
        browser.run(LOSE_A_LIST)
        browser.type("#model", "second")

        wait_for(lambda: browser.run("return looks") > 0)
        assert browser.shows("#model")
        wait_for(lambda: browser.run("return looks") > 2)
        assert offered_models(browser) == before
        assert browser.run("return document.getElementById('model').value") == "second"


def test_a_model_that_a_request_loaded_shows_what_it_can_do(browser, clip):
    with serving(models_on_demand="rare=hub/polyglot") as service:
        visit(browser, service)
        browser.click("#options summary")
        assert offered_models(browser)[1] == ["rare (loaded when it is used)", False]
        browser.type("#model", "rare")
        transcribe(browser, clip)

        wait_for(lambda: offered_models(browser)[1] == ["rare", False])
        assert browser.run("return document.getElementById('language').options.length") == 4


def test_an_upload_becomes_words_with_times_and_shades(page, clip):
    transcribe(page, clip)

    words = page.run(
        "return [...document.querySelectorAll('#words .word')].map((word) => [word.textContent, word.dataset.start,"
        " word.dataset.end, Number(word.style.getPropertyValue('--doubt')).toFixed(2), word.title])"
    )
    assert words == [
        ["32000", "0", "1", "0.10", "0.00 to 1.00 s, confidence 90 %"],
        [f"{SAMPLES.sum():.3f}", "1", "2", "0.20", "1.00 to 2.00 s, confidence 80 %"],
    ]
    assert page.text("#status").startswith("2.0 s of audio")


def test_steps_are_announced_and_the_progress_of_the_upload_is_shown(browser, service, tmp_path):
    path = recorded(tmp_path / "clip.wav", tone(160_000))
    visit(browser, service)
    browser.run(
        "window.announced = []; window.shares = [];"
        "new MutationObserver(() => announced.push(document.getElementById('status').textContent))"
        ".observe(document.getElementById('status'), { childList: true });"
        "new MutationObserver(() => shares.push(sent.hidden ? null : sent.value)).observe(sent, { attributes: true })"
    )
    speed = {"offline": False, "latency": 0, "downloadThroughput": -1}
    browser.devtools("Network.emulateNetworkConditions", uploadThroughput=1_000_000, **speed)
    try:
        transcribe(browser, path)
    finally:
        browser.devtools("Network.emulateNetworkConditions", uploadThroughput=-1, **speed)

    announced, shares = browser.run("return [announced, shares]")
    assert announced[:-1] == ["Sending clip.wav …", "Transcribing clip.wav …"]
    assert announced[-1].startswith("10.0 s of audio")
    assert len({share for share in shares if share}) > 1
    assert not browser.shows("#sent")


def test_a_file_may_be_dropped_anywhere(page, clip):
    opened_by_the_browser = page.run(
        "const dataTransfer = new DataTransfer();"
        "dataTransfer.items.add(new File([new Uint8Array(arguments[0])], 'clip.wav'));"
        "const drop = { dataTransfer, bubbles: true, cancelable: true };"
        "return document.querySelector('h1').dispatchEvent(new DragEvent('drop', drop))",
        list(clip.read_bytes()),
    )

    page.wait_text("#status", "transcribed in")
    assert page.text("#words .word") == "32000"
    assert not opened_by_the_browser


def test_text_is_not_dropped_on_the_page_but_into_the_field_for_the_key(page):
    page.click("#access summary")
    text = {"items": [{"mimeType": "text/plain", "data": "sesame"}], "dragOperationsMask": 1}
    place = page.run("const { x, y } = key.getBoundingClientRect(); return [x + 9, y + 9]")

    for kind, (x, y) in [("dragEnter", (30, 30)), ("dragOver", (30, 30)), ("dragEnter", place), ("dragOver", place)]:
        page.devtools("Input.dispatchDragEvent", type=kind, x=x, y=y, data=text)
        assert page.run("return document.body.className") == ""
    page.devtools("Input.dispatchDragEvent", type="drop", x=place[0], y=place[1], data=text)

    wait_for(lambda: page.run("return document.getElementById('key').value") == "sesame")


def test_several_recordings_are_listed_and_each_is_shown_when_it_is_chosen(browser, service, tmp_path):
    texts = {}
    for number in range(6):
        samples = tone(16_000 * (number + 1))
        (tmp_path / f"clip-{number}.wav").write_bytes(wav(samples))
        texts[f"clip-{number}.wav"] = f"0:00 {samples.size} {samples.sum():.3f}"
    noise = tmp_path / "noise.wav"
    noise.write_bytes(b"no sound" * 100)
    visit(browser, service)

    choose(browser, "\n".join(str(tmp_path / name) for name in (*texts, "noise.wav")))
    wait_for(lambda: sum("transcribed in" in row for row in rows(browser)) == len(texts))
    wait_for(lambda: "unsupported_format" in rows(browser)[-1])
    shown = {}
    for place, name in enumerate(texts, 1):
        browser.click(f"#recordings li:nth-child({place}) button")
        shown[name] = browser.run("return document.querySelector('#words p').textContent.trim()")
    browser.click("#recordings li:last-child button")

    assert shown == texts
    assert "(unsupported_format)" in browser.text("#error")
    assert not browser.shows("#result")


def test_a_recording_whose_options_change_waits_while_others_are_under_way(browser, tmp_path):
    paths = [recorded(tmp_path / f"clip-{number}.wav", tone(16_000 * (number + 1))) for number in range(5)]
    with serving(engine_timeout_seconds=600) as service:
        visit(browser, service)
        browser.click("#options summary")
        with service.held():
            choose(browser, "\n".join(map(str, paths)))
            wait_for(lambda: "Transcribing" in rows(browser)[3])

            browser.click("label[for=multichannel]")

            wait_for(lambda: "Transcribing" in rows(browser)[4])  # it was sent when the first was taken back
            assert browser.text("#status") == "clip-0.wav waits for the others."
        wait_for(lambda: all("transcribed in" in row for row in rows(browser)))


def test_the_parts_of_a_long_recording_are_paragraphs_in_order(browser, tmp_path):
    speech, rate = soundfile.read(SAMPLE, dtype="float32")
    path = tmp_path / "long.wav"
    path.write_bytes(wav(np.concatenate([speech, np.zeros(2 * rate, np.float32)] * 3), rate))
    with serving(max_utterance_seconds=10) as service:
        visit(browser, service)

        transcribe(browser, path)

        times = browser.run("return [...document.querySelectorAll('#words .time')].map((time) => time.textContent)")
        assert len(times) >= 3
        assert times == sorted(times)


def test_words_that_have_arrived_keep_the_focus_and_go_when_the_recording_is_sent_again(browser, tmp_path, monkeypatch):
    rest = Event()

    def blocks(recording, detector, rule):
        yield CutBlock([Segment(0, 48_000)], np.empty(0, np.float32))
        assert rest.wait(PATIENCE)
        yield CutBlock([Segment(48_000, 96_000)], np.empty(0, np.float32))

    path = recorded(tmp_path / "long.wav", tone(96_000))
    words = "return document.querySelectorAll('#words .word').length"
    with serving(max_utterance_seconds=5.0) as service:
        monkeypatch.setattr(cut_recording, "cuts", blocks)
        visit(browser, service)
        choose(browser, path)
        wait_for(lambda: browser.run(words) == 2)
        browser.run("document.querySelector('#words .word').focus()")
        rest.set()
        browser.wait_text("#status", "transcribed in")
        assert browser.run(words) == 4
        assert browser.run("return document.activeElement.className") == "word"

        rest.clear()
        browser.run("document.getElementById('model').dispatchEvent(new Event('change'))")
        browser.wait_text("#progress", "so far")
        assert browser.run(words) == 2
        rest.set()
        browser.wait_text("#status", "transcribed in")


def test_a_player_that_is_hidden_does_not_play(page, service, clip):
    transcribe(page, clip)
    page.run("document.getElementById('audio').loop = true; return document.getElementById('audio').play()")
    with service.held():
        choose(page, clip)

        wait_for(lambda: not page.shows("#result"))
        assert page.run("return document.getElementById('audio').paused")
    page.wait_text("#status", "transcribed in")


def test_text_runs_as_its_language_does_and_words_without_confidence_have_no_shade(page):
    directions, title = page.run(
        "const { Transcript } = await import('/web/transcript.js');"
        "const place = document.getElementById('words');"
        "const word = (word) => ({ word, start: 0, end: 1, confidence: null });"
        "new Transcript(place, null).show(["
        " { start: 0, language: 'english', words: [word('peace')] },"
        " { start: 1, language: 'hebrew', words: [word('שלום')] },"
        " { start: 2, channel: 1, text: 'שלום' }]);"
        "const { title, style } = place.querySelector('.word');"
        "const directions = [...place.children].map((paragraph) => getComputedStyle(paragraph).direction);"
        "return [directions, title + style.cssText]"
    )

    assert directions == ["ltr", "rtl", "rtl"]
    assert title == "0.00 to 1.00 s, confidence unknown"


def test_words_light_up_while_the_recording_plays(page, clip):
    transcribe(page, clip)

    page.run("document.getElementById('audio').play()")

    wait_for(lambda: spoken(page) == ["32000"])
    wait_for(lambda: spoken(page) == [f"{SAMPLES.sum():.3f}"])


COLOUR = (  # at these shares of the width and the height of the waveform
    "const canvas = document.getElementById('waveform');"
    "const [x, y] = [Math.floor(canvas.width * arguments[0]), canvas.height * arguments[1]];"
    "return canvas.getContext('2d').getImageData(x, y, 1, 1).data.join()"
)
PLAYED, NOT_PLAYED = "11,110,153,255", "182,191,202,255"  # in the light scheme


def test_the_waveform_shows_the_loudest_channel_and_what_has_been_played(page, tmp_path):
    both = np.stack([np.zeros_like(SAMPLES), SAMPLES], axis=1)
    transcribe(page, recorded(tmp_path / "right.wav", both))
    wait_for(lambda: page.shows("#waveform"))
    assert page.run(COLOUR, 0, 0.25) == NOT_PLAYED

    page.click("#words .word:last-child")

    wait_for(lambda: page.run(COLOUR, 0, 0.5) == PLAYED)
    assert page.run(COLOUR, 0.75, 0.5) == NOT_PLAYED


def test_the_keyboard_reaches_everything(page, clip):
    transcribe(page, clip)
    page.click("h1")
    reached = set()

    for _ in range(30):
        page.press(TAB)
        reached.add(page.run("const at = document.activeElement; return at.id || at.innerText"))

    assert reached >= {"API", "file", "record", "API key", "audio", "32000", "SRT", "VTT", "TXT"}


def test_arrow_keys_walk_the_words_and_enter_goes_there(page, clip):
    transcribe(page, clip)
    wait_for(lambda: page.run("return document.getElementById('audio').duration") == 2)
    page.run("document.querySelector('#words [tabindex=\"0\"]').focus()")

    page.press(RIGHT, RIGHT, ENTER)
    wait_for(lambda: page.run("return document.getElementById('audio').currentTime") == 1)
    page.press(LEFT, ENTER)

    wait_for(lambda: spoken(page) == ["32000"])
    goes_back = "{ key: 'ArrowLeft', altKey: true, bubbles: true, cancelable: true }"
    assert page.run(f"return document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {goes_back}))")


@pytest.mark.parametrize(
    ("label", "ending", "response_format"), [("SRT", "srt", "srt"), ("VTT", "vtt", "vtt"), ("TXT", "txt", "text")]
)
def test_downloads_are_what_the_server_answers(page, service, clip, label, ending, response_format):
    transcribe(page, clip)
    expected = service.post(**form(clip.read_bytes(), response_format=response_format)).text

    page.click(f"[data-format={response_format}]")

    saved = page.downloads / f"clip.{ending}"
    wait_for(saved.exists)
    assert page.text(f"[data-format={response_format}]") == label
    assert saved.read_text() == expected


def test_what_is_said_of_a_download_stays_with_its_recording(browser, service, clip, tmp_path):
    other = recorded(tmp_path / "other.wav", tone(16_000))
    visit(browser, service)
    choose(browser, f"{clip}\n{other}")
    wait_for(lambda: sum("transcribed in" in row for row in rows(browser)) == 2)
    with service.held():
        browser.click("[data-format=srt]")
        wait_for(lambda: "Preparing clip.srt" in rows(browser)[0])
        browser.click("#recordings li:last-child button")
        browser.click("[data-format=vtt]")
        browser.wait_text("#status", "Preparing other.vtt")
        assert "Preparing clip.srt" in rows(browser)[0]

    browser.wait_text("#status", "other.vtt is downloaded.")
    wait_for(lambda: "clip.srt is downloaded." in rows(browser)[0])
    assert browser.text("#status") == "other.vtt is downloaded."
    assert not browser.shows("#cancel")


def test_a_file_that_is_no_audio_shows_the_error_and_its_code(page, service, tmp_path):
    path = tmp_path / "notes.wav"
    path.write_text("nothing that sounds, and long enough to be looked at" * 10)
    expected = service.post(**form(path.read_bytes())).json()["error"]

    choose(page, path)

    page.wait_text("#error", f"{expected['message']} ({expected['code']})")
    assert not page.shows("#result")


def test_an_upload_can_be_cancelled(page, service, clip):
    with service.held():
        choose(page, clip)
        wait_for(lambda: service.metric(IN_FLIGHT) == 1)

        page.click("#cancel")

        page.wait_text("#status", "Cancelled.")
        wait_for(lambda: service.metric(IN_FLIGHT) == 0)
        assert not page.shows("#cancel")


FOCUSED = "const at = document.activeElement; return at.ariaLabel || at.innerText"


def test_a_cancelled_recording_can_be_tried_again_from_the_keyboard(page, service, clip):
    with service.held():
        choose(page, clip)
        wait_for(lambda: service.metric(IN_FLIGHT) == 1)
        page.run("document.getElementById('cancel').focus()")
        page.press(ENTER)
        page.wait_text("#status", "Cancelled.")
        wait_for(lambda: not page.shows("#cancel"))
        assert page.run(FOCUSED) == "Try again: clip.wav"

        page.press(ENTER)

        page.wait_text("#status", "Transcribing clip.wav")
        assert page.run(FOCUSED) == "clip.wav"
        assert not page.shows("[aria-label^='Try again']")
        page.run("document.getElementById('cancel').focus()")

    page.wait_text("#status", "transcribed in")
    wait_for(lambda: not page.shows("#cancel"))
    assert page.run(FOCUSED) == "Transcript"


def test_a_recording_that_was_refused_says_when_to_try_again_and_then_succeeds(browser, clip):
    with serving(max_requests=1) as service, ThreadPoolExecutor() as pool:
        visit(browser, service)
        with service.held():
            pool.submit(service.post, **form(wav(SAMPLES)))
            wait_for(lambda: service.metric(IN_FLIGHT) == 1)
            choose(browser, clip)
            browser.wait_text("#error", "(overloaded) Try again in 1 s.")
        wait_for(lambda: service.metric(IN_FLIGHT) == 0)

        browser.click("[aria-label='Try again: clip.wav']")

        browser.wait_text("#status", "transcribed in")
        assert browser.text("#error") == ""


def test_a_key_is_asked_for_and_used(browser, clip):
    with serving(api_keys=f"me:{digest('sesame')}") as service:
        visit(browser, service)
        choose(browser, clip)
        browser.wait_text("#error", "is missing (Authorization: Bearer KEY). (invalid_api_key)")

        browser.type("#key", f"sesam{ENTER}")
        browser.wait_text("#error", "is not known. (invalid_api_key)")
        browser.run("document.getElementById('key').value = ''")
        browser.type("#key", f"sesame{ENTER}")
        browser.wait_text("#status", "transcribed in")

        assert browser.text("#words .word") == "32000"
        assert browser.text("#error") == ""


def test_an_answer_that_breaks_off_is_an_error(browser, service, clip):
    with prefixed(service.server.port, "/cut", loses_the_last_event=True) as port:
        browser.open(f"http://127.0.0.1:{port}/cut/")
        choose(browser, clip)

        browser.wait_text("#error", "The server could not be asked: the answer broke off.")


def test_a_file_that_is_too_large_shows_the_limit(browser, tmp_path):
    path = recorded(tmp_path / "large.wav", tone(16_000 * 60))
    with serving(max_upload_bytes=1_000_000) as service:
        visit(browser, service)

        choose(browser, path)

        browser.wait_text("#error", "larger than the 1000000 bytes allowed")


def test_a_recording_of_the_microphone_is_transcribed_and_can_be_played(page, service):
    assert not page.shows("#microphone")
    assert page.run("return document.getElementById('record').getAttribute('aria-describedby')") is None

    page.click("#record")
    wait_for(lambda: re.search("[1-9]", page.text("#record")))  # a second at least; a busy page may skip 0:01
    page.click("#record")

    page.wait_text("#status", "transcribed in")
    wait_for(lambda: page.shows("#waveform"))
    length = page.run("return document.getElementById('audio').duration")
    assert 0.5 < length < 60

    page.click("#recordings a[download]")
    saved = page.downloads / page.run("return document.querySelector('#recordings a').download")
    wait_for(saved.exists)
    assert service.post(**form(saved.read_bytes())).status_code == 200


@pytest.mark.parametrize(
    "fault",
    [
        "MediaRecorder = class { constructor() { throw new Error('no encoder'); } }",
        "MediaRecorder.prototype.start = () => { throw new Error('no encoder'); }",
    ],
    ids=["unmade", "unstarted"],
)
def test_a_microphone_that_cannot_be_recorded_is_let_go(page, fault):
    page.run(
        "const { mediaDevices } = navigator;"
        "const ask = mediaDevices.getUserMedia.bind(mediaDevices);"
        "mediaDevices.getUserMedia = async (wanted) => (window.stream = await ask(wanted));"
        f"window.{fault}"
    )

    page.click("#record")

    page.wait_text("#error", "There is no microphone to use: no encoder")
    assert page.run("return stream.getTracks().map((track) => track.readyState)") == ["ended"]
    wait_for(lambda: page.run("return !document.getElementById('record').disabled"))
    assert page.text("#record") == "Record"


def test_the_player_knows_the_length_of_a_recording_that_does_not_say_it(page, tmp_path):
    path = tmp_path / "streamed.webm"  # as most browsers record
    with av.open(path, "w", container_options={"live": "1"}) as container:
        stream = container.add_stream("libopus", rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(tone(96_000)[None], format="flt", layout="mono")
        frame.sample_rate = 48_000
        container.mux([*stream.encode(frame), *stream.encode(None)])

    page.run(
        "window.lit = 0;"
        "const change = { subtree: true, attributeFilter: ['class'] };"
        "new MutationObserver(() => lit++).observe(document.getElementById('words'), change)"
    )
    transcribe(page, path)
    wait_for(lambda: page.shows("#waveform"))

    length, place, lit = page.run("const { duration, currentTime } = audio; return [duration, currentTime, lit]")
    assert length == pytest.approx(2, abs=0.1)
    assert place == 0
    assert lit == 0  # nor does the transcript scroll


def test_a_page_without_https_says_why_it_cannot_record(browser, service, clip):
    visit(browser, service, host="steno.test")

    assert browser.run("return document.getElementById('record').disabled")
    assert "https or localhost" in browser.text("#microphone")
    transcribe(browser, clip)


def test_a_file_that_the_browser_cannot_play_is_transcribed(page, tmp_path):
    path = tmp_path / "voice.amr"
    path.write_bytes(b"#!AMR\n" + 50 * (b"\x3c" + bytes(31)))

    transcribe(page, path)

    wait_for(lambda: page.shows("#unplayable"))
    assert not page.shows("#audio")
    assert not page.shows("#waveform")
    page.click("#words .word")
    assert spoken(page) == [page.text("#words .word")]


def test_the_servers_numbers_are_live(page, clip):
    before = page.text("[data-number=rtfx]")

    transcribe(page, clip)

    assert before == "–"
    wait_for(lambda: page.text("[data-number=rtfx]") not in ("–", "0.0"))
    assert page.text("[data-number=engines]") == "1"
    assert page.text("[data-number=inFlight]") == "0"
    assert page.text("[data-number=waiting]") == "0 (0 s)"
    assert page.text("[data-number=padding]").endswith(" %")


def test_the_numbers_are_not_read_while_the_page_is_hidden(page):
    page.run(
        "window.timers = [];"
        "window.setTimeout = (work, milliseconds) => timers.push(milliseconds);"
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
    )
    read_again = (
        "const list = document.createElement('dl');"
        "list.innerHTML = '<dd data-number=state></dd>';"
        "const { followNumbers } = await import('/web/numbers.js');"
        "followNumbers(list);"
        "while (list.textContent !== 'ready') await new Promise(requestAnimationFrame);"
        "return timers.length"
    )

    hidden = page.run(read_again)
    page.run("Object.defineProperty(document, 'hidden', { value: false })")
    visible = page.run(read_again)

    assert hidden == 0
    assert visible == 1


def transcribe_long_name(browser, path):
    browser.wait_text("[data-number=state]", "ready")
    transcribe(browser, path.rename(path.with_stem("a-name-without-end" * 8)))
    wait_for(lambda: browser.shows("#waveform"))


@pytest.mark.parametrize(("path", "use"), [("", transcribe_long_name), ("docs", send_by_swagger_ui)])
def test_a_page_loads_nothing_from_elsewhere_and_fits_a_phone(browser, service, clip, path, use):
    browser.requested_hosts()
    browser.complaints()
    browser.screen(360, 740)

    browser.open(f"http://127.0.0.1:{service.server.port}/{path}")
    use(browser, clip)

    assert browser.requested_hosts() == {f"127.0.0.1:{service.server.port}"}
    assert browser.complaints() == []
    assert browser.run("return [document.documentElement.scrollWidth, window.innerWidth]") == [360, 360]


def test_a_page_of_another_origin_reads_what_cors_allows(browser, service):
    origin = f"http://127.0.0.1:{service.server.port}"
    ask = (
        "return fetch(arguments[0], { headers: { 'x-stainless-lang': 'js' } })"
        ".then((answer) => answer.headers.get('x-request-id').length, (fault) => fault.name)"
    )
    with serving(wait_ready=False, cors_origins=origin) as willing, serving(wait_ready=False) as unwilling:
        browser.open(f"{origin}/healthz")  # of the page's origin, and without the page's policy
        read, refused = (
            browser.run(ask, f"http://127.0.0.1:{asked.server.port}/v1/models") for asked in (willing, unwilling)
        )
    browser.complaints()

    assert read == 32
    assert refused == "TypeError"


def test_both_pages_work_behind_a_proxy_that_adds_a_prefix(browser, service, clip):
    with prefixed(service.server.port, "/speech/text") as port:
        browser.complaints()
        browser.screen(1000, 900)
        browser.open(f"http://127.0.0.1:{port}/speech/text/")
        browser.wait_text("[data-number=state]", "ready")
        transcribe(browser, clip)
        browser.click("header a")
        send_by_swagger_ui(browser, clip)

    assert browser.complaints() == []


@pytest.mark.clients
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1000, 360])
def test_axe_finds_nothing_against_the_page(browser, service, clip, tmp_path, scheme, width):
    noise = tmp_path / "noise.wav"
    noise.write_bytes(b"no sound" * 100)
    visit(browser, service)
    choose(browser, noise)
    wait_for(lambda: browser.shows("[aria-label='Try again: noise.wav']"))
    browser.screen(width, 900)
    browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    transcribe(browser, clip)
    browser.click("#options summary")

    browser.run(AXE.read_text(encoding="utf-8"))
    found = browser.run("return axe.run().then(({ violations, passes }) => [violations, passes.length])")
    browser.devtools("Emulation.setEmulatedMedia", features=[])

    assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found[0]] == []
    assert found[1] > 20


def test_with_one_model_no_choice_is_shown(page):
    assert not page.shows("#model")
    assert page.run("return model.value") == "stub"
