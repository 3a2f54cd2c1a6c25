// Asks a server through the Vercel AI SDK and prints what it gave, as JSON: node vercel.mjs URL RECORDING
import { readFile } from "node:fs/promises";
import process from "node:process";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, RetryError, experimental_transcribe as transcribe } from "ai";

const [url, path] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: url, apiKey: process.env.OPENAI_API_KEY ?? "none" });
const audio = await readFile(path);
const ask = (options = {}, model = "whisper-1", recording = audio) =>
  transcribe({
    model: openai.transcription(model),
    audio: recording,
    maxRetries: 1,
    providerOptions: { openai: options },
  });

async function refusal(answer) {
  try {
    return await answer;
  } catch (error) {
    const cause = RetryError.isInstance(error) ? error.lastError : error;
    if (!APICallError.isInstance(cause)) throw error;
    return { status: cause.statusCode, fault: cause.data?.error, isRetryable: cause.isRetryable, tries: error.errors?.length ?? 1 };
  }
}

const shown = ({ text, segments, language, durationInSeconds }) => ({ text, segments, language, durationInSeconds });
const results = { plain: await refusal(ask().then(shown)) };
if (!results.plain.status) {
  results.options = shown(
    await ask({
      language: "en",
      prompt: "Names: Ada, Grace.",
      temperature: 0,
      timestampGranularities: ["word"],
    }),
  );
  results.segments = shown(await ask({ timestampGranularities: ["segment"] }));
  results.notAudio = await refusal(ask({}, "whisper-1", Buffer.from("nothing that sounds")));
  results.noModel = await refusal(ask({}, "gpt-5"));
  results.wrongLanguage = await refusal(ask({ language: "xx" }));
}
console.log(JSON.stringify(results));
