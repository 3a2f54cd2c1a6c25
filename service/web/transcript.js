// The words: shaded by confidence, lit while they are spoken; choosing one goes to its second of the recording.
import { clock } from "./clock.js";

const FOUND = { audio: "identified in the audio", text: "detected in the text" }; // by `language_source`
const LINGER_SECONDS = 1; // a word stays lit until the next one, but not through a long pause

export class Transcript {
  #container;
  #words = []; // { start, end, span } in the order of speech
  #lit = null;
  #languages = new Map(); // language of the last segment of each channel

  /** Fills a container; `onSeek` gets the second of a word that is chosen. */
  constructor(container, onSeek) {
    this.#container = container;
    container.addEventListener("click", ({ target }) => {
      const word = this.#words.find(({ span }) => span === target);
      if (word) this.#focus(word);
      if (word) onSeek(word.start);
    });
    container.addEventListener("keydown", (event) => this.#key(event, onSeek));
  }

  /** Shows segments of a recording, as the API streams them, in place of those of another. */
  show(segments) {
    this.#words = [];
    this.#lit = null;
    this.#languages.clear();
    this.#container.replaceChildren();
    segments.forEach((segment) => this.add(segment));
  }

  /** Adds the next segment. */
  add(segment) {
    const paragraph = document.createElement("p");
    paragraph.dir = "auto"; // its own words decide, not the names of speakers and languages, which are isolated
    const time = document.createElement("span");
    time.className = "time";
    time.textContent = `${clock(segment.start)} `; // invisible, for screen readers: a pause before the first word
    paragraph.append(time);
    if (segment.channel) paragraph.append(isolated("strong", `Channel ${segment.channel}: `));
    const before = this.#languages.get(segment.channel);
    if (segment.language) this.#languages.set(segment.channel, segment.language);
    if (segment.language && before && before !== segment.language) {
      paragraph.append(isolated("span", `[${capital(segment.language)}] `));
    }
    if (segment.words?.length) for (const word of segment.words) paragraph.append(this.#word(word), " ");
    else paragraph.append(segment.text);
    this.#container.append(paragraph);
    // Of people who speak at the same time, a paragraph is over before the next one begins.
    this.#words.sort((one, other) => one.start - other.start);
    if (this.#words.length && !this.#container.querySelector('[tabindex="0"]')) this.#words[0].span.tabIndex = 0;
  }

  /** Says in a paragraph which language was found or assumed, if none was chosen; `done` is the stream's last event. */
  showLanguage(paragraph, done) {
    const { language, language_source: source, language_probability: probability, languages = [] } = done ?? {};
    const share = probability === undefined ? "" : `, ${Math.round(100 * probability)} %`;
    const how = FOUND[source] ? ` (${FOUND[source]}${share})` : source === "assumed" ? " (assumed; see Options)" : null;
    paragraph.hidden = how === null;
    paragraph.textContent = how === null ? "" : `Language: ${capital(language)}${how}`;
    this.#container.lang = languages[0]?.code ?? "";
  }

  sayThatNothingWasHeard() {
    const paragraph = document.createElement("p");
    paragraph.textContent = "No speech was detected.";
    this.#container.replaceChildren(paragraph);
  }

  /** Lights the word that is spoken at a time. */
  light(seconds) {
    const next = firstAfter(this.#words, seconds);
    const word = this.#words[next - 1];
    const spoken = word && seconds < word.end + LINGER_SECONDS ? word.span : null;
    if (spoken === this.#lit) return;
    this.#lit?.classList.remove("spoken");
    spoken?.classList.add("spoken");
    this.#lit = spoken;
    if (spoken) this.#keepInView(spoken);
  }

  // A word has no role of a button: a screen reader should read sentences, not "button" after each word.
  #word({ word, start, end, confidence }) {
    const span = document.createElement("span");
    span.className = "word";
    span.textContent = word;
    span.tabIndex = -1; // one word at a time is a stop of the tab key
    Object.assign(span.dataset, { start, end });
    span.title = `${start.toFixed(2)} to ${end.toFixed(2)} s, ${shade(span, confidence)}`;
    this.#words.push({ start, end, span });
    return span;
  }

  #key(event, onSeek) {
    const at = this.#words.findIndex(({ span }) => span === document.activeElement);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return; // those are the browser's
    const last = this.#words.length - 1;
    const to = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
    if (to !== undefined) this.#focus(this.#words[to]);
    else if (event.key === "Enter" || event.key === " ") onSeek(this.#words[at].start);
    else return;
    event.preventDefault();
  }

  #focus({ span }) {
    this.#container.querySelector('[tabindex="0"]').tabIndex = -1;
    span.tabIndex = 0;
    span.focus();
  }

  // Scrolls the transcript only: the page stays where its reader is.
  #keepInView(span) {
    const { top, bottom } = this.#container.getBoundingClientRect();
    const word = span.getBoundingClientRect();
    if (word.top < top || word.bottom > bottom) this.#container.scrollTop += word.top - top - (bottom - top) / 3;
  }
}

/** Shades an element by a confidence, and says it in words; an unknown one has no shade. */
export function shade(element, confidence) {
  if (confidence === null) return "confidence unknown";
  element.style.setProperty("--doubt", 1 - confidence);
  return `confidence ${Math.round(100 * confidence)} %`;
}

function firstAfter(words, seconds) {
  let low = 0;
  let high = words.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (words[middle].start <= seconds) low = middle + 1;
    else high = middle;
  }
  return low;
}

function capital(name) {
  return name[0].toUpperCase() + name.slice(1);
}

/** An element whose text does not decide the direction of the text around it. */
function isolated(tag, text) {
  const element = document.createElement(tag);
  element.dir = "auto";
  element.textContent = text;
  return element;
}
