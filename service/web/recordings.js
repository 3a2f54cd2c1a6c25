// The recordings of this tab: those under way, and those whose transcripts can be shown again.

/** A recording, its state, and its transcript so far. */
class Recording {
  constructor(file) {
    this.file = file;
    this.request = null; // aborts the request under way
    this.forget();
  }

  /** Forgets the transcript. */
  forget() {
    this.segments = []; // { start, end, text, words }, as the API streams them
    this.language = null; // how its language is known, once it is
    this.isDone = false;
    this.needsKey = false; // it was refused for want of a key
    this.status = ""; // the step that it is at
    this.error = "";
    this.progress = ""; // how far the step has come
    this.sent = null; // the share that is uploaded, meanwhile
  }
}

export class RecordingList {
  #list;
  #onChosen;
  #rows = new Map(); // of each recording: its button and its note

  /** Fills an ordered list, which is hidden until it has two entries; `onChosen` gets the recording that is chosen. */
  constructor(list, onChosen) {
    this.#list = list;
    this.#onChosen = onChosen;
  }

  /** All recordings, the latest last. */
  get all() {
    return [...this.#rows.keys()];
  }

  /** Adds a file as the latest recording. */
  add(file) {
    const recording = new Recording(file);
    const row = document.createElement("li");
    const button = document.createElement("button");
    const note = document.createElement("span");
    button.type = "button";
    button.textContent = file.name;
    button.addEventListener("click", () => this.#onChosen(recording));
    row.append(button, note);
    this.#rows.set(recording, { button, note });
    this.#list.append(row);
    this.#list.hidden = this.#rows.size < 2;
    return recording;
  }

  /** Marks the recording that is shown. */
  mark(recording) {
    for (const [other, { button }] of this.#rows) {
      if (other === recording) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }

  /** Notes the state of a recording. */
  tell(recording, status, { error = "", progress = "", sent = null } = {}) {
    Object.assign(recording, { status, error, progress, sent });
    const { note } = this.#rows.get(recording);
    note.textContent = error || `${status.replace(`${recording.file.name} `, "")} ${progress}`;
    note.classList.toggle("error", Boolean(error));
  }
}
