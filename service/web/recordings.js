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
    this.hasFailed = false; // it was refused, or cancelled
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
  #onAgain;
  #rows = new Map(); // of each recording: its name, which is a button, its note, and the button to try it again

  /**
   * Fills an ordered list, which is hidden until it has two entries or one that offers something; `onChosen` gets the
   * recording that is chosen, `onAgain` the one that is to be tried again.
   */
  constructor(list, onChosen, onAgain) {
    this.#list = list;
    this.#onChosen = onChosen;
    this.#onAgain = onAgain;
  }

  /** All recordings, the latest last. */
  get all() {
    return [...this.#rows.keys()];
  }

  /** Adds a file as the latest recording; one that was made here can be saved. */
  add(file, { isMadeHere = false } = {}) {
    const recording = new Recording(file);
    const row = document.createElement("li");
    const name = button(file.name, () => this.#onChosen(recording));
    const note = document.createElement("span");
    const again = button("Try again", () => {
      name.focus(); // this button goes, and the focus would be lost with it
      this.#onAgain(recording);
    });
    name.className = "name";
    again.setAttribute("aria-label", `Try again: ${file.name}`);
    again.hidden = true;
    row.append(name, note, again);
    if (isMadeHere) row.append(linkToSave(file));
    this.#rows.set(recording, { name, note, again });
    this.#list.append(row);
    if (isMadeHere || this.#rows.size > 1) this.#list.hidden = false;
    return recording;
  }

  /** Moves the focus to the button that tries a recording again. */
  focusAgain(recording) {
    this.#rows.get(recording).again.focus();
  }

  /** Marks the recording that is shown. */
  mark(recording) {
    for (const [other, { name }] of this.#rows) {
      if (other === recording) name.setAttribute("aria-current", "true");
      else name.removeAttribute("aria-current");
    }
  }

  /** Notes the state of a recording. */
  tell(recording, status, { error = "", progress = "", sent = null } = {}) {
    Object.assign(recording, { status, error, progress, sent });
    const { note, again } = this.#rows.get(recording);
    again.hidden = !recording.hasFailed;
    if (recording.hasFailed) this.#list.hidden = false;
    note.textContent = error || `${status.replace(`${recording.file.name} `, "")} ${progress}`;
    note.classList.toggle("error", Boolean(error));
  }
}

function button(text, onClick) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", onClick);
  return made;
}

/** The address lasts as long as the page, as the list does. */
function linkToSave(file) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = file.name;
  link.textContent = "Save recording";
  return link;
}
