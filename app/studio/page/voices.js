/** Cloning a voice from a file or a recording, and deleting one. */

import { Dialog, html, Problem, useRef, useState } from "./parts.js";
import { decoded, wav } from "./sound.js";
import { call } from "./wire.js";

const LONGEST_S = 30;

// Of many sounds of English, and of an ordinary tone.
const TO_READ = "The quick brown fox jumps over the lazy dog. On a bright cold morning we measured the pleasure of choosing a good voice, and thought about joy, azure skies and hot tea.";

/** Return the id of a voice that a name of any kind may stand for, none of those that are taken. */
export function idOf(name, taken = []) {
  const latin = name.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().replace(/ß/g, "ss").replace(/[æœøłđðþ]/g, (letter) => LATIN[letter]);
  const id = latin.replace(/[^a-z0-9_-]+/g, "-").replace(/^[-_]+/, "").slice(0, LONGEST_ID).replace(/[-_]+$/, "");
  if (id && !taken.includes(id)) return id;
  const numbers = Array.from({ length: taken.length + 2 }, (_, n) => `${id.slice(0, LONGEST_ID - 5) || "voice"}-${n + (id ? 2 : 1)}`);
  return numbers.find((one) => !taken.includes(one));
}
const LATIN = { "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th" };
const LONGEST_ID = 64;

/** `subject` is a file that was dropped on the page. */
export function VoicesDialog({ app, subject }) {
  const form = useRef();
  const [name, setName] = useState(subject?.name.replace(/\.\w+$/, "") ?? "");
  const [recorded, setRecorded] = useState(subject && withUrl(subject));
  const [problem, setProblem] = useState(null);
  const [sending, setSending] = useState(false);
  const id = idOf(name.trim(), ["default", ...app.state.voices.map((one) => one.id)]);
  const upload = async (event) => {
    event.preventDefault();
    const fields = new FormData(form.current);
    const file = recorded ?? fields.get("file");
    fields.delete("file");
    fields.set("name", id);
    if (name.trim() !== id) fields.set("title", name.trim());
    for (const [field, value] of [...fields]) if (!value) fields.delete(field);
    fields.set("consent", fields.has("consent") ? "true" : "false");
    if (file?.size) fields.set("file", file);
    setSending(true);
    setProblem(null);
    try {
      await call("v1/audio/voices", { method: "POST", body: fields });
      await app.readVoices();
      app.edit({ voice: id });
      app.say(`Voice ${name.trim()} added`);
      app.show(null);
    } catch (error) {
      setProblem(error.message);
    } finally {
      setSending(false);
    }
  };
  return html`
    <${Dialog} title="Clone a voice" onClose=${() => app.show(null)}>
      <form ref=${form} onSubmit=${upload} aria-label="Add a voice">
        <p class="note">The model imitates a recording: 1 to ${LONGEST_S} s of clear speech by one person. Of a longer one the best
          ${LONGEST_S} s are taken.</p>
        <label>Name <input name="name" required pattern=".*\\S.*" maxlength="100" title="any name" autofocus value=${name} aria-describedby="voice-id" onInput=${({ target }) => setName(target.value)} /></label>
        <p class="note" id="voice-id">${name.trim() && name.trim() !== id ? html`Requests name it <code>${id}</code>.` : "Any name."}</p>
        <label>Recording: WAV, FLAC, MP3, OGG, M4A, WebM and others <input type="file" name="file" accept="audio/*,video/mp4,video/webm" required=${!recorded} /></label>
        <${Recorder} recorded=${recorded} onRecorded=${setRecorded} onProblem=${setProblem} />
        <label>What it says (optional) <input name="transcript" /></label>
        <label><input type="checkbox" name="consent" required /> The speaker consents to speech in this voice.</label>
        ${problem && html`<${Problem} text=${problem} />`}
        <button type="submit" aria-busy=${sending} disabled=${sending}>Add the voice</button>
      </form>
      <${Own} app=${app} onProblem=${setProblem} />
    </${Dialog}>`;
}

/** Browsers let a page record only where it came over HTTPS or from this machine. */
function Recorder({ recorded, onRecorded, onProblem }) {
  const [recorder, setRecorder] = useState(null);
  if (!isSecureContext || !navigator.mediaDevices) {
    return html`<p class="note">Recording here needs HTTPS, or localhost.</p>`;
  }
  const start = async () => {
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const made = new MediaRecorder(stream);
      const parts = [];
      made.ondataavailable = ({ data }) => parts.push(data);
      made.onstop = async () => {
        stream.getTracks().forEach((track) => track.stop());
        setRecorder(null);
        onRecorded(await waveOf(new Blob(parts, { type: made.mimeType })));
      };
      made.start();
      setTimeout(() => made.state === "recording" && made.stop(), 1000 * LONGEST_S);
      setRecorder(made);
    } catch (error) {
      onProblem(`No recording: ${error.message}`);
    }
  };
  return html`
    <p class="note">To record, read something aloud as you would speak to somebody, 10 s or more. For example:</p>
    <blockquote>${TO_READ}</blockquote>
    <p class="actions">
      ${recorder
        ? html`<button type="button" class="secondary stop" onClick=${() => recorder.stop()}>Stop recording</button>`
        : html`<button type="button" class="secondary" onClick=${start}>${recorded ? "Record again" : "Record"}</button>`}
      ${recorded && html`<audio controls src=${recorded.url}></audio>
        <button type="button" class="plain" onClick=${() => onRecorded(null)}>Discard</button>`}
    </p>`;
}

/** Return what a browser recorded, in a container of its own choice, as a WAV file. */
async function waveOf(blob) {
  return withUrl(new File([wav(await decoded(blob))], "recording.wav", { type: "audio/wav" }));
}

const withUrl = (file) => Object.assign(file, { url: URL.createObjectURL(file) });

function Own({ app, onProblem }) {
  const own = app.state.voices.filter(({ kind, alias_of: alias }) => kind === "own" && !alias);
  const remove = async (id) => {
    const chosen = app.state.voice === id;
    if (chosen) app.edit({ voice: null }); // first: nothing may be asked for in a voice that is gone
    try {
      await call(`v1/audio/voices/${encodeURIComponent(id)}`, { method: "DELETE" });
      await app.readVoices();
    } catch (error) {
      if (chosen) app.edit({ voice: id });
      onProblem(error.message);
    }
  };
  if (!own.length) return null;
  return html`
    <h3>Your voices</h3>
    <ul>${own.map(({ id, name }) => html`<li>${name}${name !== id && html` <small>${id}</small>`} <button class="plain" aria-label="Delete voice ${id}" onClick=${() => remove(id)}>Delete</button></li>`)}</ul>`;
}
