// The page: takes a recording, asks the server for its transcript, shows and plays both.
import { followNumbers } from "./numbers.js";
import { Player } from "./player.js";
import { enableRecording } from "./recorder.js";
import { servedModels, transcribe } from "./server.js";
import { shade, Transcript } from "./transcript.js";
import { Waveform } from "./waveform.js";

const element = (id) => document.getElementById(id);

const player = new Player(element("audio"), element("unplayable"), (seconds) => {
  transcript.light(seconds);
  waveform.show(seconds);
});
const transcript = new Transcript(element("words"), (seconds) => player.seek(seconds));
const waveform = new Waveform(element("waveform"), (seconds) => player.seek(seconds));

const key = () => element("key").value.trim();
const options = () => ({
  language: element("language").value,
  target_language: element("target").value,
  decoder: element("decoder").value,
  multichannel: element("multichannel").checked,
});

let recording = null; // the one whose transcript is shown
let asking = null; // aborts the request under way
let models = []; // that are served, and what they can do

async function open(file) {
  element("result").hidden = true;
  await ask(`Transcribing ${file.name} …`, async (signal) => {
    const response = await transcribe(file, element("model").value, options(), "verbose_json", key(), signal);
    const answer = await response.json();
    recording = file;
    element("result").hidden = false;
    transcript.show(answer);
    waveform.clear();
    player.load(file).then((seconds) => recording === file && waveform.load(file, seconds));
    const spent = Number(response.headers.get("openai-processing-ms")) / 1000;
    return `${answer.duration.toFixed(1)} s of audio, transcribed in ${spent.toFixed(2)}\u00a0s.`;
  });
}

async function download(format, ending) {
  const name = `${recording.name.replace(/\.[^.]*$/, "")}.${ending}`;
  await ask(`Preparing ${name} …`, async (signal) => {
    const response = await transcribe(recording, element("model").value, options(), format, key(), signal);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await response.blob());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href)); // once the browser has taken it
    return `${name} is downloaded.`;
  });
}

/** Does one thing with the server at a time: a new request takes the place of the one under way. */
async function ask(doing, work) {
  asking?.abort();
  const mine = new AbortController();
  asking = mine;
  report(doing);
  element("cancel").hidden = false;
  try {
    report(await work(mine.signal));
  } catch (error) {
    if (asking !== mine) return;
    if (mine.signal.aborted) report("Cancelled.");
    else report("", explain(error));
  }
  if (asking === mine) element("cancel").hidden = true;
}

/** Lets people choose where there is more than one model; without the key that it may take, there is nothing to show. */
async function offerModels() {
  models = await servedModels(key()).catch(() => []);
  offer("model", models.map(({ id }) => [id, id]));
  element("choice").hidden = models.length < 2;
  offerOptions();
}

/** Offers what the chosen model can do, where there is a choice. */
function offerOptions() {
  const model = models.find(({ id }) => id === element("model").value);
  const { languages, decoders = [], tasks = [] } = model?.steno.abilities ?? {};
  const named = (codes = []) => codes.map((code) => [code, languageName(code)]).sort(([, a], [, b]) => a.localeCompare(b));
  offerSome("languages", "language", "Automatic", named(languages?.spoken));
  offerSome("targets", "target", "As spoken", tasks.includes("translate") ? named(languages.written) : []);
  offerSome("decoders", "decoder", "Default", decoders.map((name) => [name, name]));
}

function offerSome(row, select, unset, choices) {
  offer(select, [["", unset], ...choices]);
  element(row).hidden = choices.length < 2;
}

/** Fills a select; what was chosen stays chosen where it is still there. */
function offer(id, choices) {
  const select = element(id);
  const chosen = select.value;
  select.replaceChildren(...choices.map(([value, text]) => new Option(text, value, false, value === chosen)));
}

function languageName(code) {
  return new Intl.DisplayNames(["en"], { type: "language" }).of(code) ?? code;
}

function report(status, error = "") {
  element("status").textContent = status;
  element("error").textContent = error;
}

function explain({ message, code, retryAfter }) {
  if (!code) return `The server could not be asked: ${message}.`;
  return `${message} (${code})${retryAfter ? ` Try again in ${retryAfter} s.` : ""}`;
}

function acceptDrops() {
  const dragging = (on) => document.body.classList.toggle("dragging", on);
  document.addEventListener("dragover", (event) => {
    event.preventDefault(); // else the browser would open the file in place of the page
    dragging(true);
  });
  document.addEventListener("dragleave", (event) => dragging(event.relatedTarget !== null));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    dragging(false);
    if (event.dataTransfer.files.length) open(event.dataTransfer.files[0]);
  });
}

element("file").addEventListener("click", ({ target }) => { target.value = ""; }); // the same file may be chosen again
element("file").addEventListener("change", ({ target }) => { if (target.files.length) open(target.files[0]); });
element("key").addEventListener("change", offerModels);
element("model").addEventListener("change", offerOptions);
for (const id of ["model", "language", "target", "decoder", "multichannel"]) {
  element(id).addEventListener("change", () => recording && open(recording));
}
element("cancel").addEventListener("click", () => asking.abort());
for (const button of document.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => download(button.dataset.format, button.dataset.ending));
}
for (const sample of document.querySelectorAll("[data-confidence]")) shade(sample, Number(sample.dataset.confidence));
acceptDrops();
offerModels();
enableRecording(element("record"), open, (message) => report("", message));
followNumbers(element("numbers"));
