// The page: takes recordings, asks the server for their transcripts, shows and plays both.
import { clock } from "./clock.js";
import { followNumbers } from "./numbers.js";
import { Player } from "./player.js";
import { enableRecording } from "./recorder.js";
import { RecordingList } from "./recordings.js";
import { download, servedModels, transcribe } from "./server.js";
import { shade, Transcript } from "./transcript.js";
import { Waveform } from "./waveform.js";

const AT_ONCE = 4; // recordings that are sent at the same time; the others wait here
const LOOK_MS = 2000; // after which models are looked for again, if one was loading or there was no answer

const element = (id) => document.getElementById(id);

const player = new Player(element("audio"), element("unplayable"), (seconds) => {
  transcript.light(seconds);
  waveform.show(seconds);
});
const transcript = new Transcript(element("words"), (seconds) => player.seek(seconds));
const waveform = new Waveform(element("waveform"), (seconds) => player.seek(seconds));
const recordings = new RecordingList(element("recordings"), show, (recording) => {
  show(recording); // so that its steps are announced
  enqueue(recording);
});

const key = () => element("key").value.trim();
const options = () => ({
  language: element("language").value,
  target_language: element("target").value,
  decoder: element("decoder").value,
  phrases: element("phrases").value.trim(),
  multichannel: element("multichannel").checked,
});

let shown = null; // the recording whose transcript is shown
let playable = null; // the recording that the player has
let models = []; // the served models, with what they can do
let lookingAgain; // the timer of the next look for models
const waiting = []; // recordings that are not sent yet
const underWay = new Set(); // requests
const downloading = new Map(); // what aborts the download under way of a recording

function open(files, origin) {
  const added = Array.from(files, (file) => recordings.add(file, origin));
  show(added[0]);
  added.forEach(enqueue);
}

/** Sends a recording to be transcribed, again if it was before. */
function enqueue(recording) {
  recording.request?.abort();
  recording.request = null; // what is aborted says nothing more of it
  recording.forget();
  if (!waiting.includes(recording)) waiting.push(recording);
  tell(recording, `${recording.file.name} waits for the others.`);
  if (recording === shown) show(recording);
  sendNext();
}

async function sendNext() {
  if (underWay.size >= AT_ONCE || !waiting.length) return;
  const recording = waiting.shift();
  const request = new AbortController();
  recording.request = request;
  underWay.add(request);
  showCancel();
  try {
    await transcribeAndShow(recording, request.signal);
  } catch (error) {
    if (recording.request === request) {
      recording.hasFailed = true;
      if (request.signal.aborted) tell(recording, "Cancelled.");
      else {
        recording.needsKey = error.code === "invalid_api_key";
        if (recording.needsKey) element("access").open = true;
        tell(recording, "", { error: explain(error) });
      }
    }
  }
  underWay.delete(request);
  showCancel();
  sendNext();
}

async function transcribeAndShow(recording, signal) {
  const { file, segments } = recording;
  const began = performance.now();
  const steps = { sending: `Sending ${file.name} …`, transcribing: `Transcribing ${file.name} …` };
  tell(recording, steps.sending);
  const done = await transcribe(file, element("model").value, options(), key(), {
    signal,
    onSent(share) {
      if (share < 1) tell(recording, steps.sending, { progress: `${Math.floor(share * 100)} %`, sent: share });
      else tell(recording, steps.transcribing);
    },
    onSegment(segment) {
      segments.push(segment);
      if (recording === shown) {
        reveal();
        transcript.add(segment);
      }
      tell(recording, steps.transcribing, { progress: `${clock(segment.end)} so far` });
    },
  });
  if (models.find(({ id }) => id === element("model").value)?.steno.state === "absent") offerModels(); // it is here now
  recording.isDone = true;
  recording.language = done;
  if (recording === shown) conclude(recording);
  const spent = (performance.now() - began) / 1000;
  tell(recording, `${done.duration.toFixed(1)} s of audio, transcribed in ${spent.toFixed(2)}\u00a0s.`);
}

/** Shows a recording's transcript, as much of it as there is. */
function show(recording) {
  shown = recording;
  recordings.mark(recording);
  element("result").hidden = true;
  transcript.show(recording.segments);
  if (recording.segments.length) reveal();
  conclude(recording);
  if (element("result").hidden) player.pause(); // its controls are hidden with it
  report(recording.status, recording);
}

/** Shows what is known only at the end of the transcript; its words stay as they are, and so does the focus. */
function conclude({ isDone, segments, language }) {
  if (isDone && !segments.length) transcript.sayThatNothingWasHeard();
  if (isDone) reveal();
  transcript.showLanguage(element("spoken"), language);
}

/** Shows the part of the page that has the transcript, with the recording in the player. */
function reveal() {
  element("result").hidden = false;
  if (playable === shown) return;
  const recording = shown;
  playable = recording;
  waveform.clear();
  player.load(recording.file).then((seconds) => playable === recording && waveform.load(recording.file, seconds));
}

/** Notes the state of a recording, and shows it if the recording is shown. */
function tell(recording, status, details) {
  recordings.tell(recording, status, details);
  if (recording === shown) report(status, details);
}

function cancel() {
  for (const recording of waiting.splice(0)) {
    recording.hasFailed = true;
    tell(recording, "Cancelled.");
  }
  for (const request of underWay) request.abort();
  for (const request of downloading.values()) request.abort();
}

/** Downloads the transcript that is shown; what is said of it stays with its recording when another one is shown. */
async function save(format, ending) {
  const recording = shown;
  const { file } = recording;
  const name = `${file.name.replace(/\.[^.]*$/, "")}.${ending}`;
  downloading.get(recording)?.abort();
  const mine = new AbortController();
  downloading.set(recording, mine);
  tell(recording, `Preparing ${name} …`);
  showCancel();
  try {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(
      await download(file, element("model").value, options(), format, key(), mine.signal),
    );
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href)); // once the browser has taken it
    tell(recording, `${name} is downloaded.`);
  } catch (error) {
    if (downloading.get(recording) !== mine) return;
    if (mine.signal.aborted) tell(recording, "Cancelled.");
    else tell(recording, "", { error: explain(error) });
  }
  if (downloading.get(recording) === mine) downloading.delete(recording);
  showCancel();
}

function showCancel() {
  const button = element("cancel");
  const isFocused = document.activeElement === button;
  button.hidden = !underWay.size && !downloading.size;
  if (!isFocused || !button.hidden) return;
  // The focus would be lost with the button: it goes to what can be done next.
  if (shown.hasFailed) recordings.focusAgain(shown);
  else element("transcript-title").focus();
}

/**
 * Shows the choice of models if there is more than one; without the key, there is no list of them.
 * A model that is not in memory can be chosen, because a request loads it; one that is still loading cannot yet.
 */
async function offerModels() {
  let isLost = false;
  try {
    models = await servedModels(key());
  } catch ({ code }) {
    // One lost answer is no reason to lose what was chosen. A key that is entered looks by itself.
    isLost = code !== "invalid_api_key";
  }
  clearTimeout(lookingAgain);
  offer("model", models.map(({ id, steno: { state } }) => [id, named(id, state), state === "loading"]));
  element("choice").hidden = models.length < 2;
  offerOptions();
  const isLoading = models.some(({ steno }) => steno.state === "loading");
  if (isLost || isLoading) lookingAgain = setTimeout(offerModels, LOOK_MS);
}

function named(id, state) {
  return { absent: `${id} (loaded when it is used)`, loading: `${id} (still loading)` }[state] ?? id;
}

/** Shows the options of the chosen model that have a choice. */
function offerOptions() {
  const model = models.find(({ id }) => id === element("model").value);
  const { languages, language_source: source, decoders = [], tasks = [] } = model?.steno.abilities ?? {};
  const unset = source === "assumed" ? "Default (assumed)" : "Automatic"; // it cannot be found out
  offerSome("languages", "language", unset, byName(languages?.spoken));
  offerSome("targets", "target", "As spoken", tasks.includes("translate") ? byName(languages.written) : []);
  offerSome("decoders", "decoder", "Default", decoders.map((name) => [name, name]));
}

function byName(codes = []) {
  return codes.map((code) => [code, languageName(code)]).sort(([, a], [, b]) => a.localeCompare(b));
}

function offerSome(row, select, unset, choices) {
  offer(select, [["", unset], ...choices]);
  element(row).hidden = choices.length < 2;
}

/** Fills a select; the chosen option stays chosen if it still exists. */
function offer(id, choices) {
  const select = element(id);
  const chosen = select.value;
  select.replaceChildren(
    ...choices.map(([value, text, isDisabled = false]) => {
      const option = new Option(text, value, false, value === chosen);
      option.disabled = isDisabled;
      return option;
    }),
  );
}

function languageName(code) {
  return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
}

/** Shows a step, or an error. How far a step has come is not announced: it changes too often. */
function report(status, { error = "", progress = "", sent = null } = {}) {
  announce("status", status);
  announce("error", error);
  element("progress").textContent = progress;
  element("sent").hidden = sent === null;
  element("sent").value = sent ?? 0;
}

/** Writes what screen readers announce whenever it is written: the same text only once. */
function announce(id, text) {
  if (element(id).textContent !== text) element(id).textContent = text;
}

function explain({ message, code, retryAfter }) {
  if (!code) return `The server could not be asked: ${message}.`;
  return `${message} (${code})${retryAfter ? ` Try again in ${retryAfter} s.` : ""}`;
}

function acceptDrops() {
  const dragging = (on) => document.body.classList.toggle("dragging", on);
  // Text that is dragged is not for the page: it may be dropped into the field for the key.
  const hasFiles = ({ dataTransfer }) => dataTransfer.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault(); // else the browser would open the file in place of the page
    dragging(true);
  });
  document.addEventListener("dragleave", ({ relatedTarget }) => {
    if (relatedTarget === null) dragging(false); // it has left the page, not only one of its elements
  });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    dragging(false);
    if (event.dataTransfer.files.length) open(event.dataTransfer.files);
  });
}

element("file").addEventListener("click", ({ target }) => { target.value = ""; }); // the same file may be chosen again
element("file").addEventListener("change", ({ target }) => { if (target.files.length) open(target.files); });
element("key").addEventListener("change", () => {
  offerModels();
  recordings.all.filter(({ needsKey }) => needsKey).forEach(enqueue);
});
element("model").addEventListener("change", offerOptions);
for (const id of ["model", "language", "target", "decoder", "phrases", "multichannel"]) {
  element(id).addEventListener("change", () => shown && enqueue(shown));
}
element("cancel").addEventListener("click", cancel);
for (const button of document.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => save(button.dataset.format, button.dataset.ending));
}
for (const sample of document.querySelectorAll("[data-confidence]")) shade(sample, Number(sample.dataset.confidence));
acceptDrops();
offerModels();
enableRecording(
  element("record"),
  element("microphone"),
  (file) => open([file], { isMadeHere: true }),
  (error) => report("", { error }),
);
followNumbers(element("numbers"));
