/** Cloning a voice from a file or a recording, and deleting one. */

import { Dialog, html, useRef, useState } from "./parts.js";
import { decoded, wav } from "./sound.js";
import { call } from "./wire.js";

const LONGEST_S = 30;

/** `subject` is a file that was dropped on the page. */
export function VoicesDialog({ app, subject }) {
  const form = useRef();
  const [recorded, setRecorded] = useState(subject && withUrl(subject));
  const [problem, setProblem] = useState(null);
  const [sending, setSending] = useState(false);
  const upload = async (event) => {
    event.preventDefault();
    const fields = new FormData(form.current);
    const file = recorded ?? fields.get("file");
    fields.delete("file");
    for (const [name, value] of [...fields]) if (!value) fields.delete(name);
    fields.set("consent", fields.has("consent") ? "true" : "false");
    if (file?.size) fields.set("file", file);
    setSending(true);
    setProblem(null);
    try {
      const { id } = await (await call("v1/audio/voices", { method: "POST", body: fields })).json();
      await app.readVoices();
      app.edit({ voice: id });
      app.say(`Voice ${id} added`);
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
        <label>Name <input name="name" required pattern="[a-z0-9_\\-]+" title="lower-case letters, digits, - and _"
          value=${subject?.name.toLowerCase().replace(/\.\w+$/, "").replace(/[^a-z0-9_-]+/g, "-") ?? ""} /></label>
        <label>Recording: WAV, FLAC, MP3, OGG, M4A, WebM and others <input type="file" name="file" accept="audio/*,video/mp4,video/webm" required=${!recorded} /></label>
        <${Recorder} recorded=${recorded} onRecorded=${setRecorded} onProblem=${setProblem} />
        <label>What it says <input name="transcript" /></label>
        <label><input type="checkbox" name="consent" required /> The speaker consents to speech in this voice.</label>
        ${problem && html`<p class="refusal" role="alert">${problem}</p>`}
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
    <p class="actions">
      ${recorder
        ? html`<button type="button" class="stop" onClick=${() => recorder.stop()}>Stop recording</button>`
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
    <ul>${own.map(({ id }) => html`<li>${id} <button class="plain" aria-label="Delete voice ${id}" onClick=${() => remove(id)}>Delete</button></li>`)}</ul>`;
}
