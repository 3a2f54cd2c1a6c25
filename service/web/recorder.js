// The record button: a microphone's sound becomes a file like any other.
import { clock } from "./clock.js";

/** Makes the button record; `onFile` gets the recording, `onError` the browser's error. A note says if it cannot. */
export function enableRecording(button, note, onFile, onError) {
  if (!window.isSecureContext || !window.MediaRecorder) {
    button.disabled = true;
    note.hidden = false;
    button.setAttribute("aria-describedby", note.id);
    return;
  }
  let recorder = null;
  button.addEventListener("click", async () => {
    if (recorder) {
      recorder.stop();
      return;
    }
    button.disabled = true; // until the person has answered the browser's question
    try {
      recorder = await record((seconds) => { button.textContent = `Stop recording (${clock(seconds)})`; });
      recorder.finished.then((file) => {
        recorder = null;
        button.textContent = "Record";
        onFile(file);
      });
    } catch (error) {
      onError(`There is no microphone to use: ${error.message}`);
    }
    button.disabled = false;
  });
}

async function record(onSecond) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  try {
    return recordFrom(stream, onSecond);
  } catch (error) {
    release(stream);
    throw error;
  }
}

function recordFrom(stream, onSecond) {
  const recorder = new MediaRecorder(stream);
  const pieces = [];
  recorder.addEventListener("dataavailable", (event) => pieces.push(event.data));
  const finished = new Promise((resolve) => {
    recorder.addEventListener("stop", () => {
      clearInterval(ticking);
      release(stream);
      const ending = recorder.mimeType.includes("mp4") ? "mp4" : "webm";
      resolve(new File(pieces, `recording.${ending}`, { type: recorder.mimeType }));
    });
  });
  recorder.start();
  const began = performance.now();
  const ticking = setInterval(() => onSecond((performance.now() - began) / 1000), 1000);
  onSecond(0);
  return { stop: () => recorder.stop(), finished };
}

/** Lets go of the microphone: the browser's red light goes out. */
function release(stream) {
  for (const track of stream.getTracks()) track.stop();
}
