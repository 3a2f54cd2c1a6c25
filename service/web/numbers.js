// The server's load, read from `/readyz` and `/metrics` while the page is visible.

const PERIOD_MILLISECONDS = 3000;
const WINDOW_MILLISECONDS = 60_000;

/** Keeps the [data-number] elements of a list up to date while the page is visible. */
export function followNumbers(list) {
  const fields = [...list.querySelectorAll("[data-number]")];
  const history = [];
  let timer = null;
  const update = async () => {
    const numbers = await read(history);
    for (const field of fields) field.textContent = numbers[field.dataset.number] ?? "–";
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(update, PERIOD_MILLISECONDS);
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : update()));
  update();
}

async function read(history) {
  try {
    const signal = AbortSignal.timeout(PERIOD_MILLISECONDS);
    const [ready, metrics] = await Promise.all([fetch("readyz", { signal }), fetch("metrics", { signal })]);
    const { status } = await ready.json();
    // An operator may keep the metrics from the public.
    return { state: status, ...(metrics.ok && describe(new Exposition(await metrics.text()), history)) };
  } catch {
    return { state: "unreachable" };
  }
}

function describe(metrics, history) {
  const padding = metrics.sum("steno_batch_padding_seconds_total");
  const computed = padding + metrics.sum("steno_batch_audio_seconds_total");
  const queued = metrics.sum("steno_queue_audio_seconds");
  return {
    engines: metrics.sum("steno_engine_up"),
    inFlight: metrics.sum("steno_http_requests_in_flight", 'endpoint="transcriptions"'),
    waiting: `${metrics.sum("steno_queue_depth")} (${queued.toFixed(0)} s)`,
    rtfx: throughput(metrics.sum("steno_audio_seconds_total", 'outcome="ok"'), history),
    padding: computed ? `${((100 * padding) / computed).toFixed(1)} %` : undefined,
  };
}

/** Seconds of audio answered per second, over the readings of the last minute. */
function throughput(audioSeconds, history) {
  const now = performance.now();
  if (history.length && audioSeconds < history.at(-1).audioSeconds) history.length = 0; // the server was restarted
  history.push({ now, audioSeconds });
  while (history[0].now < now - WINDOW_MILLISECONDS) history.shift();
  const [oldest] = history;
  return oldest.now < now ? (1000 * (audioSeconds - oldest.audioSeconds) / (now - oldest.now)).toFixed(1) : undefined;
}

/** Prometheus' text format. */
class Exposition {
  #series;

  constructor(text) {
    this.#series = text.split("\n").filter((line) => line && !line.startsWith("#"));
  }

  /** Adds up a metric's series; if a label is given, only those that have it. */
  sum(name, label = "") {
    return this.#series
      .filter((line) => /^[ {]/.test(line.slice(name.length)) && line.startsWith(name) && line.includes(label))
      .reduce((total, line) => total + Number(line.slice(line.lastIndexOf(" "))), 0);
  }
}
