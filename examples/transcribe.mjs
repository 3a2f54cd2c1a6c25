// Transcribe a recording with OpenAI's JavaScript client (npm install openai): node transcribe.mjs RECORDING
//
// OPENAI_BASE_URL is Steno's address; OPENAI_API_KEY is the key, if the operator has set any.
import { createReadStream } from "node:fs";
import process from "node:process";
import OpenAI from "openai";

if (process.argv.length !== 3) {
  console.error("usage: node transcribe.mjs RECORDING");
  process.exit(1);
}
const model = "whisper-1"; // an alias of the default model; GET /v1/models lists the ids
const client = new OpenAI({
  baseURL: process.env.OPENAI_BASE_URL ?? "http://localhost:8000/v1",
  apiKey: process.env.OPENAI_API_KEY ?? "none",
});

const transcribe = (options) =>
  client.audio.transcriptions.create({ model, file: createReadStream(process.argv[2]), ...options });

try {
  console.log((await transcribe()).text);
} catch (error) {
  // A stream cannot be sent twice: give the client a Buffer or a Blob, and it tries again on 429 and 503.
  if (!(error instanceof OpenAI.APIError)) throw error;
  console.error(`${error.status} ${error.code}: ${error.message}`);
  process.exit(1);
}

const verbose = await transcribe({ response_format: "verbose_json", timestamp_granularities: ["word", "segment"] });
for (const { start, end, text } of verbose.segments) {
  console.log(`segment ${start.toFixed(2)} to ${end.toFixed(2)} s: ${text}`);
}
for (const { start, end, word, confidence } of verbose.words) {
  console.log(`word ${start.toFixed(2)} to ${end.toFixed(2)} s: ${word} (${confidence.toFixed(2)})`); // an extension: confidence
}

const { logprobs } = await transcribe({ include: ["logprobs"] });
console.log("least likely token:", logprobs.toSorted((one, other) => one.logprob - other.logprob)[0]);

for await (const event of await transcribe({ stream: true })) {
  if (event.type === "transcript.text.delta") process.stdout.write(event.delta);
}
console.log();

console.log(await transcribe({ response_format: "srt" }));
