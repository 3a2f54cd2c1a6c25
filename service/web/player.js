// Plays the recording, and reports its position in every frame of the screen.

const BEYOND_ANY_END = 1e7;

export class Player {
  #audio;
  #unplayable;
  #onMove;

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
    audio.addEventListener("seeked", move);
  }

  /** Loads a recording and resolves to its length in seconds, NaN if the browser cannot play it. */
  async load(recording) {
    URL.revokeObjectURL(this.#audio.src);
    this.#audio.src = URL.createObjectURL(recording);
    const playable = await Promise.race([
      once(this.#audio, "loadedmetadata").then(() => true),
      once(this.#audio, "error").then(() => false),
    ]);
    this.#audio.hidden = !playable;
    this.#unplayable.hidden = playable;
    if (this.#audio.duration === Infinity) await this.#findEnd();
    return this.#audio.duration;
  }

  /** Goes to a second of the recording. */
  seek(seconds) {
    if (this.#audio.hidden) this.#onMove(seconds);
    else this.#audio.currentTime = seconds;
  }

  // A recording made in a browser may not say how long it is; the length is known once the player has been at the end.
  async #findEnd() {
    this.#audio.currentTime = BEYOND_ANY_END;
    await once(this.#audio, "seeked");
    this.#audio.currentTime = 0;
    await once(this.#audio, "seeked");
  }
}

function once(target, event) {
  return new Promise((resolve) => target.addEventListener(event, resolve, { once: true }));
}
