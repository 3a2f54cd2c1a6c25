// Asks a server through OpenAI's JavaScript client and prints what it gave, as JSON: node openai_client.mjs URL RECORDING
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import process from "node:process";

const OpenAI = createRequire(new URL("../../../examples/package.json", import.meta.url))("openai");
const [url, path] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url, apiKey: process.env.OPENAI_API_KEY ?? "none", maxRetries: 1 });
const recording = await OpenAI.toFile(await readFile(path), "speech.wav");
const notAudio = await OpenAI.toFile(Buffer.from("nothing that sounds"), "speech.wav");
const ask = (options) => client.audio.transcriptions.create({ model: "whisper-1", file: recording, ...options });

async function events(options) {
  const seen = [];
  for await (const event of await ask({ stream: true, ...options })) seen.push(event);
  return seen;
}

async function refusal(answer) {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    const { status, type, code, param, requestID } = error;
    return { kind: error.constructor.name, status, type, code, param, requestID };
  }
}

const formats = ["json", "text", "srt", "vtt", "verbose_json"];
const results = {
  formats: Object.fromEntries(
    await Promise.all(formats.map(async (format) => [format, await refusal(ask({ response_format: format }))])),
  ),
};
if (!results.formats.json.kind) {
  results.timed = await ask({ response_format: "verbose_json", timestamp_granularities: ["word", "segment"] });
  results.logprobs = await ask({ include: ["logprobs"] });
  results.events = await events({});
  results.timedEvents = await events({ response_format: "verbose_json", timestamp_granularities: ["word"] });
  results.subtitleEvents = await events({ response_format: "vtt" });
  results.sureEvents = await events({ include: ["logprobs"] });
  results.refusals = await Promise.all(
    [{ file: notAudio }, { model: "gpt-5" }, { language: "xx" }, { include: ["logprobs"], response_format: "srt" }].map((options) =>
      refusal(ask(options)),
    ),
  );
  results.models = (await client.models.list()).data.map(({ id }) => id);
  results.model = await client.models.retrieve("stub");
  results.translation = await refusal(client.audio.translations.create({ model: "whisper-1", file: recording }));
}
console.log(JSON.stringify(results));
