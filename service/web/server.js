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
 * Posts a recording for a model and resolves to the response, in one of the API's formats.
 * `options` are further fields of the form; those without a value are left out.
 */
export async function transcribe(recording, model, options, format, key, signal) {
  const form = new FormData();
  form.set("model", model || (await servedModels(key, signal))[0].id);
  for (const [field, value] of Object.entries(options)) if (value) form.set(field, value);
  form.set("response_format", format);
  if (format === "verbose_json") {
    form.append("timestamp_granularities[]", "word");
    form.append("timestamp_granularities[]", "segment");
  }
  form.set("file", recording);
  return ask("v1/audio/transcriptions", key, { method: "POST", body: form, signal });
}

/** Resolves to the models and what they can do, the default first. */
export async function servedModels(key, signal) {
  const response = await ask("v1/models", key, { signal });
  return (await response.json()).data;
}

async function ask(path, key, options) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const body = await response.json().catch(() => null); // a proxy's own error may be a page
  const { message = `The server answered ${response.status}.`, code = "no_code" } = body?.error ?? {};
  throw new ApiError(message, code, response.headers.get("retry-after"));
}
