// Asks the service. Paths are relative, so that the page also works behind a proxy that adds a prefix.

/** An error answer: its code, and the seconds after which to try again where the server knows them. */
export class ApiError extends Error {
  constructor(message, code, retryAfter) {
    super(message);
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

/**
 * Posts a recording for a model and resolves to the last event of its transcript.
 * `options` are further fields of the form; those without a value are left out. `onSent` gets the share of the recording
 * that was sent, `onSegment` each segment, as soon as it is transcribed.
 */
export async function transcribe(recording, model, options, key, { signal, onSent, onSegment }) {
  const form = await formOf(recording, model, options, "verbose_json", key, signal);
  form.append("timestamp_granularities[]", "word");
  form.append("timestamp_granularities[]", "segment");
  form.set("stream", "true");
  return stream("v1/audio/transcriptions", key, form, {
    signal,
    onSent,
    onEvent: (event) => event.type === "transcript.text.segment" && onSegment(event),
  });
}

/** Posts a recording for a model and resolves to its transcript as a file, in one of the API's formats. */
export async function download(recording, model, options, format, key, signal) {
  const body = await formOf(recording, model, options, format, key, signal);
  return (await ask("v1/audio/transcriptions", key, { method: "POST", body, signal })).blob();
}

/** Resolves to the models and what they can do, the default first. */
export async function servedModels(key, signal) {
  const response = await ask("v1/models", key, { signal });
  return (await response.json()).data;
}

async function formOf(recording, model, options, format, key, signal) {
  const form = new FormData();
  form.set("model", model || (await servedModels(key, signal))[0].id);
  for (const [field, value] of Object.entries(options)) if (value) form.set(field, value);
  form.set("response_format", format);
  form.set("file", recording);
  return form;
}

async function ask(path, key, options) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  throw apiError(response.status, await response.text(), response.headers.get("retry-after"));
}

/** Posts a form and takes server-sent events; resolves to the last one. `fetch` cannot tell how much was sent. */
function stream(path, key, form, { signal, onSent, onEvent }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    let read = 0; // characters of the answer
    let last = null;
    const takeEvents = () => {
      const end = request.responseText.lastIndexOf("\n\n") + 2;
      if (request.status !== 200 || end <= read) return;
      for (const event of request.responseText.slice(read, end).split("\n\n")) {
        if (!event.startsWith("data: ")) continue; // a comment, which keeps the connection open
        last = JSON.parse(event.slice("data: ".length));
        onEvent(last);
      }
      read = end;
    };
    request.upload.addEventListener("progress", ({ loaded, total }) => onSent(loaded / total));
    request.addEventListener("progress", takeEvents);
    request.addEventListener("load", () => {
      takeEvents();
      if (last?.type === "transcript.text.done") resolve(last);
      else if (last?.error) reject(apiError(request.status, JSON.stringify(last), null));
      else if (request.status === 200) reject(new Error("the answer broke off"));
      else reject(apiError(request.status, request.responseText, request.getResponseHeader("retry-after")));
    });
    request.addEventListener("error", () => reject(new Error("the connection broke")));
    request.addEventListener("abort", () => reject(signal.reason));
    signal.addEventListener("abort", () => request.abort());
    request.open("POST", path);
    if (key) request.setRequestHeader("Authorization", `Bearer ${key}`);
    request.send(form);
  });
}

function apiError(status, body, retryAfter) {
  let error = null;
  try {
    ({ error } = JSON.parse(body));
  } catch {} // a proxy's own error may be a page
  const { message = `The server answered ${status}.`, code = "no_code" } = error ?? {};
  return new ApiError(message, code, retryAfter);
}
