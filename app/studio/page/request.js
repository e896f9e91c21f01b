/** The left side: what is said, by whom, and every knob that the API describes. */

import { baseOf, Knob, Knobs } from "./knobs.js";
import { html, Problem, useEffect, useRef, useState } from "./parts.js";
import { Reading } from "./reading.js";
import { VoicePicker } from "./picker.js";

export const EXAMPLES = {
  "A story": "The old lighthouse had been dark for years. Then, one night in March, its lamp began to turn again.",
  "A question": "Would you mind reading the last page again, a little more slowly this time?",
  "Numbers": "On May 3rd at 5:30 p.m., Dr. Smith paid $3.50 for 2 kg of apples.",
};

/** Return the body of the request that the page shows. */
export function bodyOf({ text, voice, knobs, goOn }) {
  return { input: text, ...(voice && { voice }), ...knobs, ...(goOn && { continue_from: goOn.from }) };
}

/** Return the part of the page's state that a body describes. */
export function stateOf(body, service) {
  const { input = "", voice = null, ...rest } = body;
  const known = Object.entries(rest).filter(([name]) => service.byName.has(name));
  return { text: input, voice, knobs: Object.fromEntries(known) };
}

export function RequestPane({ app }) {
  const { state } = app;
  return html`
    <form class="request" aria-label="Request" onSubmit=${(event) => { event.preventDefault(); app.speak(); }}>
      <${TextBox} app=${app} />
      <${VoicePicker} app=${app} />
      <div class="basics">
        ${state.service?.fields.filter(({ label }) => label).reverse().map((field) => html`<${Knob} key=${field.name} app=${app} field=${field} />`)}
      </div>
      ${state.goOn && html`<p class="note">
        Continues ${state.goOn.label}.
        <button type="button" class="plain" onClick=${() => app.set({ goOn: null })}>Start from the beginning</button>
      </p>`}
      <div class="actions">
        ${state.speaking
          ? html`<button type="button" class="speak stop" onClick=${app.cancel}>Stop</button>`
          : html`<button type="submit" class="speak" data-keys="Ctrl ↵" aria-keyshortcuts="Control+Enter" disabled=${!state.service}>Speak</button>`}
        <button type="button" class="secondary" onClick=${() => app.show("export")}>Export</button>
      </div>
      ${state.replaced && html`<p class="undo">Your text or settings were replaced.
        <button type="button" class="plain" onClick=${() => app.undoReplace()}>Undo</button></p>`}
      ${state.notice && html`<${Problem} text=${state.notice} />`}
      ${state.service && html`<${Knobs} app=${app} />`}
    </form>`;
}

// What `docs/text.md` calls markup; the rest of a text is words.
const MARKUP = /(\[\[[^\]]*\]\])|(\[(?:pause|voice|rate):[^\]]*\])|(<\/?[a-z][^>]*>)/gi;

function coloured(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(MARKUP)) {
    const kind = match[1] ? "phonemes" : match[2] ? "direction" : "tag";
    parts.push(text.slice(end, match.index), html`<mark class=${kind}>${match[0]}</mark>`);
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end), "\n"];
}

function TextBox({ app }) {
  const { text, refusals, service } = app.state;
  const back = useRef();
  const refused = refusals.input;
  return html`
    <div class="text">
      <label for="text">Text</label>
      <div class="box">
        <pre aria-hidden="true" ref=${back}>${coloured(text)}</pre>
        <textarea id="text" rows="4" spellcheck="false" value=${text} aria-invalid=${refused ? "true" : null}
          aria-describedby=${refused ? "refused-input" : null}
          onScroll=${({ target }) => { back.current.scrollTop = target.scrollTop; }}
          onInput=${({ target }) => app.edit({ text: target.value })}></textarea>
      </div>
      <p class="examples">Examples: ${Object.entries(EXAMPLES).map(([name, example]) => html`
        <button type="button" class="plain" onClick=${() => app.replace({ text: example })}>${name}</button>`)}</p>
      ${refused && html`<${Problem} text=${refused} id="refused-input" />`}
      ${service && html`<${Reading} app=${app} />`}
    </div>`;
}

/** Return which fields a refusal is about, each with its part of the message. */
export function refusalsOf({ param, message }, service) {
  const named = (name) => service.byName.has(name) || ["input", "voice"].includes(name);
  const refused = {};
  for (const sentence of message.split("; ")) {
    const [path, ...rest] = sentence.split(": ");
    const name = path.split(".")[0];
    if (rest.length && named(name)) refused[name] = rest.join(": ");
  }
  const first = param?.split(".")[0];
  if (first && named(first)) refused[first] ??= message;
  return refused;
}
