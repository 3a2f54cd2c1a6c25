// The recordings of this tab: those under way, and those whose transcripts can be shown again.

/** A recording, how it fares, and what has been heard of it. */
class Recording {
  constructor(file) {
    this.file = file;
    this.request = null; // aborts the request under way
    this.forget();
  }

  /** Forgets what was heard. */
  forget() {
    this.segments = []; // { start, end, text, words }, as the API streams them
    this.isDone = false;
    this.status = "";
    this.error = "";
  }
}

export class RecordingList {
  #list;
  #onChosen;
  #rows = new Map(); // of each recording: its button and its note

  /** Fills an ordered list, which shows as soon as it has two; `onChosen` gets the recording that is chosen. */
  constructor(list, onChosen) {
    this.#list = list;
    this.#onChosen = onChosen;
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

  /** Marks the one that is shown. */
  mark(recording) {
    for (const [other, { button }] of this.#rows) {
      if (other === recording) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }

  /** Notes how a recording fares. */
  tell(recording, status, error) {
    Object.assign(recording, { status, error });
    const { note } = this.#rows.get(recording);
    note.textContent = error || status.replace(`${recording.file.name} `, "");
    note.classList.toggle("error", Boolean(error));
  }
}
