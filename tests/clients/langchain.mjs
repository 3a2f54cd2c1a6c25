// Loads a recording through LangChain and prints its documents, as JSON: node langchain.mjs URL RECORDING
import process from "node:process";
import { OpenAIWhisperAudio } from "@langchain/community/document_loaders/fs/openai_whisper_audio";

const [url, path] = process.argv.slice(2);
const clientOptions = { baseURL: url, apiKey: process.env.OPENAI_API_KEY ?? "none", maxRetries: 1 };

async function load(transcriptionCreateParams) {
  try {
    return await new OpenAIWhisperAudio(path, { clientOptions, transcriptionCreateParams }).load();
  } catch ({ status, code, param }) {
    return { status, code, param };
  }
}

console.log(
  JSON.stringify({
    plain: await load(),
    options: await load({ language: "en", temperature: 0, prompt: "Names: Ada.", response_format: "verbose_json" }),
    noModel: await load({ model: "gpt-5" }),
    wrongLanguage: await load({ language: "xx" }),
  }),
);
