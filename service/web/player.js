// Plays the recording, and reports its position in every frame of the screen.

const BEYOND_ANY_END = 1e7;

export class Player {
  #audio;
  #unplayable;
  #onMove;
  #isFindingEnd = false;

  /** Uses an audio element, and a note for recordings that it cannot play; `onMove` gets the second that is played. */
  constructor(audio, unplayable, onMove) {
    this.#audio = audio;
    this.#unplayable = unplayable;
    this.#onMove = onMove;
    const move = () => onMove(audio.currentTime);
    const follow = () => {
      move();
      if (!audio.paused) requestAnimationFrame(follow);
    };
    audio.addEventListener("play", follow);
    audio.addEventListener("seeked", () => this.#isFindingEnd || move());
  }

  /** Loads a recording and resolves to its length in seconds, NaN if it does not play. */
  async load(recording) {
    URL.revokeObjectURL(this.#audio.src);
    const address = URL.createObjectURL(recording);
    this.#audio.src = address;
    this.#isFindingEnd = false;
    const playable = await Promise.race([
      once(this.#audio, "loadedmetadata").then(() => true),
      once(this.#audio, "error").then(() => false),
    ]);
    if (this.#audio.src !== address) return NaN; // another recording was loaded meanwhile
    this.#audio.hidden = !playable;
    this.#unplayable.hidden = playable;
    if (this.#audio.duration === Infinity) await this.#findEnd(address);
    return this.#audio.duration;
  }

  /** Goes to a second of the recording. */
  seek(seconds) {
    if (this.#audio.hidden) this.#onMove(seconds);
    else this.#audio.currentTime = seconds;
  }

  pause() {
    this.#audio.pause();
  }

  // A recording made in a browser may not say how long it is; the length is known once the player has been at the end.
  async #findEnd(address) {
    this.#isFindingEnd = true;
    for (const place of [BEYOND_ANY_END, 0]) {
      this.#audio.currentTime = place;
      await once(this.#audio, "seeked");
      if (this.#audio.src !== address) return;
    }
    this.#isFindingEnd = false;
  }
}

function once(target, event) {
  return new Promise((resolve) => target.addEventListener(event, resolve, { once: true }));
}
