// The recording as a picture: the loudest sample per bar, what has been played in another colour.

const RATE = 8000; // the lowest that every browser decodes to: a picture needs no more
const LONGEST_SECONDS = 20 * 60; // a longer recording, decoded, may not fit the memory of a phone
const BAR_PIXELS = 3; // one of them a gap

export class Waveform {
  #canvas;
  #recording = null;
  #channels = null; // the samples of each
  #peaks = [];
  #seconds = 0;
  #played = 0;

  /** Draws on a canvas; `onSeek` gets the second at which it is clicked. */
  constructor(canvas, onSeek) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.#measure()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
    canvas.addEventListener("click", (event) => onSeek((event.offsetX / canvas.clientWidth) * this.#seconds));
  }

  /** Hides the picture. */
  clear() {
    this.#recording = null;
    this.#channels = null;
    this.#played = 0;
    this.#canvas.hidden = true;
  }

  /** Shows a recording, unless it is too long or the browser cannot decode it; unknown `seconds` are not finite. */
  async load(recording, seconds) {
    this.clear();
    this.#recording = recording;
    if (Number.isFinite(seconds) && seconds > LONGEST_SECONDS) return;
    const bytes = await recording.arrayBuffer();
    const decoded = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(bytes).catch(() => null);
    if (!decoded || this.#recording !== recording) return; // another one may have been opened meanwhile
    this.#channels = Array.from({ length: decoded.numberOfChannels }, (_, channel) => decoded.getChannelData(channel));
    this.#seconds = decoded.duration;
    this.#canvas.hidden = false;
    this.#measure();
  }

  /** Marks what has been played. */
  show(seconds) {
    this.#played = seconds;
    this.#draw();
  }

  #measure() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (!this.#channels || !width) return;
    const scale = window.devicePixelRatio;
    Object.assign(this.#canvas, { width: width * scale, height: height * scale });
    this.#peaks = loudest(this.#channels, Math.floor(width / BAR_PIXELS));
    this.#draw();
  }

  #draw() {
    const context = this.#canvas.getContext("2d");
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const style = getComputedStyle(this.#canvas);
    const [played, ahead] = ["--accent", "--quiet"].map((name) => style.getPropertyValue(name));
    const reached = (this.#played / this.#seconds) * this.#peaks.length;
    context.setTransform(window.devicePixelRatio, 0, 0, window.devicePixelRatio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.#peaks.forEach((peak, bar) => {
      const tall = Math.max(1, peak * height);
      context.fillStyle = bar < reached ? played : ahead;
      context.fillRect(bar * BAR_PIXELS, (height - tall) / 2, BAR_PIXELS - 1, tall);
    });
  }
}

/** The loudest sample, of any channel, of each of `parts` equal parts, as shares of the loudest of all. */
function loudest(channels, parts) {
  const [{ length }] = channels;
  const peaks = Array.from({ length: parts }, (_, part) => {
    const start = Math.floor((part * length) / parts);
    const end = Math.floor(((part + 1) * length) / parts);
    let peak = 0;
    for (const samples of channels) {
      for (let at = start; at < end; at++) peak = Math.max(peak, Math.abs(samples[at]));
    }
    return peak;
  });
  const highest = Math.max(...peaks, 1e-6); // silence stays flat
  return peaks.map((peak) => peak / highest);
}
