/** The left side: what is said, by whom, and every knob that the API describes. */

import { call, parse, postJson, stringify } from "./wire.js";

const html = htm.bind(preact.h);
const { useEffect, useRef, useState } = preactHooks;

/** Return the body of the request that the page shows. */
export function bodyOf({ service, text, voice, preset, knobs, goOn }) {
  return {
    input: text,
    ...(voice && { voice }),
    ...(preset !== service.preset.fallback && { preset }),
    ...knobs,
    ...(goOn && service.goesOn && { continue_from: goOn.from }),
  };
}

/** Return the part of the page's state that a body describes. */
export function stateOf(body, service) {
  const { input = "", voice = null, preset = service.preset.fallback, ...rest } = body;
  const known = Object.entries(rest).filter(([name]) => service.byName.has(name));
  return { text: input, voice, preset, knobs: Object.fromEntries(known) };
}

/** Return the value that a knob has if the request does not set it. */
function baseOf({ presets, preset }, field) {
  return presets.find(({ id }) => id === preset)?.knobs[field.name] ?? field.fallback;
}

const same = (one, other) => stringify(one) === stringify(other);

export function RequestPane({ app }) {
  const { state } = app;
  return html`
    <form class="request" aria-label="Request" onSubmit=${(event) => { event.preventDefault(); app.speak(); }}>
      <${TextBox} app=${app} />
      <div class="pair">
        <${VoicePicker} app=${app} />
        <${PresetPicker} app=${app} />
      </div>
      ${state.goOn && html`<p class="note">
        Goes on from ${state.goOn.label}.
        <button type="button" class="plain" onClick=${() => app.set({ goOn: null })}>Begin anew</button>
      </p>`}
      <div class="actions">
        ${state.speaking
          ? html`<button type="button" class="speak stop" onClick=${app.cancel}>Stop</button>`
          : html`<button type="submit" class="speak" disabled=${!state.service}>Speak</button>`}
        <button type="button" class="secondary" onClick=${() => app.takeAway(null)}>Take away</button>
      </div>
      ${state.notice && html`<p class="refusal" role="alert">${state.notice}</p>`}
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
      <${Refused} name="input" text=${refused} />
      ${service?.phonemes && html`<${Phonemes} app=${app} />`}
    </div>`;
}

/** The text as it will be read, asked of the service when the typing pauses. */
function Phonemes({ app }) {
  const { text, voice, knobs } = app.state;
  const [read, setRead] = useState([]);
  useEffect(() => {
    const leaving = new AbortController();
    const asking = setTimeout(async () => {
      const body = { input: text, ...(voice && { voice }), ...(knobs.language && { language: knobs.language }) };
      try {
        const answer = await postJson("v1/audio/phonemes", body, { signal: leaving.signal });
        setRead(parse(await answer.text()).utterances);
      } catch {
        setRead([]); // a text that cannot be read is refused when it is spoken
      }
    }, 400);
    return () => { clearTimeout(asking); leaving.abort(); };
  }, [text, voice, knobs.language]);
  const shown = text.trim() ? read : [];
  return html`
    <details class="phonemes" open>
      <summary>As it will be read</summary>
      <ol tabindex="0" aria-label="Phonemes">${shown.map((one) => html`
        <li title=${one.text}><span>${one.phonemes || "(a pause)"}</span>${directionsOf(one) && html` <small>${directionsOf(one)}</small>`}</li>`)}</ol>
    </details>`;
}

/** Return what the markup of a text says of an utterance, beside its words. */
function directionsOf({ voice, rate = 1, pause_after_s: pause = null }) {
  return [voice, rate !== 1 && `${rate}×`, pause !== null && `pause ${pause} s`].filter(Boolean).join(" · ");
}

function VoicePicker({ app }) {
  const { voices, voice, refusals } = app.state;
  const chosen = voices.find(({ id }) => id === voice);
  const own = voices.filter(({ alias_of: alias, damaged }) => !alias && !damaged);
  return html`
    <div>
      <label for="voice">Voice</label>
      <div class="joined">
        <select id="voice" value=${voice ?? ""} aria-invalid=${refusals.voice ? "true" : null}
          onChange=${({ target }) => app.edit({ voice: target.value || null })}>
          <option value="">default</option>
          ${voice && !chosen && html`<option value=${voice}>${voice}</option>`}
          ${own.map((one) => html`<option value=${one.id}>${one.name} (${one.language})</option>`)}
        </select>
        <button type="button" class="secondary" aria-label="Add or delete a voice" title="Add or delete a voice"
          onClick=${() => app.show("voices")}>+</button>
      </div>
      <${Refused} name="voice" text=${refusals.voice} />
    </div>`;
}

function PresetPicker({ app }) {
  const { presets, preset, refusals } = app.state;
  const meant = presets.find(({ id }) => id === preset)?.alias_of;
  const change = ({ target }) => app.edit({ preset: target.value.trim() || app.state.service.preset.fallback });
  const common = { id: "preset", value: preset, onChange: change, "aria-invalid": refusals.preset ? "true" : null };
  return html`
    <div data-knob="preset">
      <label for="preset">Preset</label>
      ${presets.length
        ? html`<select ...${common}>
            ${presets.every(({ id }) => id !== preset) && html`<option value=${preset}>${preset}</option>`}
            ${presets.map(({ id, alias_of: alias }) => html`<option value=${id}>${id}${alias ? ` (${alias})` : ""}</option>`)}
          </select>`
        : html`<input ...${common} title=${meant} />`}
      <${Refused} name="preset" text=${refusals.preset} />
    </div>`;
}

function Refused({ name, text }) {
  return text && html`<p class="refusal" role="alert" id=${`refused-${name}`}>${text}</p>`;
}

function Knobs({ app }) {
  const { service, search, knobs, refusals } = app.state;
  const changed = service.fields.filter(({ name }) => app.state.first.has(name));
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = (field) => {
    const told = `${field.name} ${field.name.replaceAll("_", " ")} ${field.group} ${field.help}`.toLowerCase();
    return words.every((word) => told.includes(word));
  };
  const others = service.fields.filter((field) => !app.state.first.has(field.name));
  const groups = Map.groupBy(others, ({ group }) => group);
  const shown = words.length ? others.filter(found) : null;
  return html`
    <details class="knobs" open=${app.state.knobsOpen}
      onToggle=${({ target, currentTarget }) => target === currentTarget && target.open !== app.state.knobsOpen && app.set({ knobsOpen: target.open })}>
      <summary>Knobs</summary>
      <div class="bar">
        <input type="search" id="search" placeholder="Search ${service.fields.length} knobs" aria-label="Search knobs"
          value=${search} onInput=${({ target }) => app.set({ search: target.value, ...app.settled() })}
          onKeyDown=${(event) => { if (event.key === "Enter") event.preventDefault(); }} />
        ${changed.length > 0 && html`<button type="button" class="plain" onClick=${() => { app.edit({ knobs: {} }); app.set(app.settled()); }}>
          Reset all</button>`}
      </div>
      ${changed.length > 0 && html`
        <h3>Changed from the preset</h3>
        ${changed.map((field) => html`<${Knob} key=${field.name} app=${app} field=${field} />`)}`}
      ${shown
        ? html`<h3 aria-live="polite">${shown.length} found</h3>
            ${shown.map((field) => html`<${Knob} key=${field.name} app=${app} field=${field} />`)}`
        : [...groups].map(([name, fields]) => html`
            <${Group} key=${name} app=${app} name=${name} fields=${fields}
              refused=${fields.some((field) => refusals[field.name])} />`)}
    </details>`;
}

/** A group of knobs, drawn only while it is open. */
function Group({ app, name, fields, refused }) {
  const open = refused || Boolean(app.state.groups[name]);
  const toggled = ({ currentTarget }) => {
    if (currentTarget.open !== open) app.set({ groups: { ...app.state.groups, [name]: currentTarget.open }, ...app.settled() });
  };
  return html`
    <details class="group" data-group=${name} open=${open} onToggle=${toggled}>
      <summary>${name} <small>${fields.length}</small></summary>
      ${open && fields.map((field) => html`<${Knob} key=${field.name} app=${app} field=${field} />`)}
    </details>`;
}

function Knob({ app, field }) {
  const { state } = app;
  const { name } = field;
  const [helped, setHelped] = useState(false);
  const base = baseOf(state, field);
  const value = name in state.knobs ? state.knobs[name] : base;
  const changed = name in state.knobs;
  const refused = state.refusals[name];
  const id = `knob-${name}`;
  const set = (next) => {
    const { [name]: _, ...rest } = state.knobs;
    app.edit({ knobs: next === undefined ? rest : { ...rest, [name]: next } });
  };
  const hasSwitch = "off" in field && field.off !== undefined && field.kind !== "switch";
  return html`
    <div class="knob ${changed ? "changed" : ""}" data-knob=${name}>
      <div class="head">
        <label for=${id}>${name}</label>
        ${field.unit && html`<small class="unit">${field.unit}</small>`}
        <span class="tools">
          ${hasSwitch && html`<input type="checkbox" role="switch" aria-label="${name} on" title="on or off"
            checked=${!same(value, field.off)}
            onChange=${({ target }) => set(target.checked ? whenOn(field, base) : field.off)} />`}
          ${changed && html`<button type="button" class="plain" aria-label="Reset ${name}"
            title="back to the preset's ${shownAs(base)}" onClick=${() => set(undefined)}>↺</button>`}
          <button type="button" class="plain" aria-label="About ${name}" aria-expanded=${helped}
            aria-controls="help-${name}" title=${field.help} onClick=${() => setHelped(!helped)}>?</button>
        </span>
      </div>
      <${CONTROLS[field.kind]} field=${field} id=${id} value=${value} set=${set}
        common=${{ id, "aria-invalid": refused ? "true" : null, "aria-describedby": `${refused ? `refused-${name} ` : ""}help-${name}` }} />
      <p class="help" id="help-${name}" hidden=${!helped}>${field.help}</p>
      <${Refused} name=${name} text=${refused} />
    </div>`;
}

/** Return a value of a knob that was off: the preset's, the declared one, or one beside it. */
function whenOn({ off, fallback, low, high, step = 1, options, kind }, base) {
  if (!same(base, off)) return base;
  if (!same(fallback, off)) return fallback;
  if (options) return options.find((option) => !same(option, off));
  if (kind !== "number") return fallback;
  const far = (high ?? off + 10 * step) - off > off - (low ?? off) ? high ?? off + 10 * step : low;
  return rounded(off + (far - off) / 4, step);
}

function rounded(value, step) {
  const digits = Math.max(0, Math.ceil(-Math.log10(step)));
  return Number((Math.round(value / step) * step).toFixed(digits));
}

const shownAs = (value) => (value === null ? "none" : typeof value === "string" ? value : stringify(value));

const CONTROLS = {
  number: NumberControl,
  digits: DigitsControl,
  choice: ChoiceControl,
  switch: SwitchControl,
  text: TextControl,
  json: JsonControl,
};

/** A slider where the declaration has one, and always a field, which takes values beyond its ends. */
function NumberControl({ field, id, value, set, common }) {
  const { low, high, step } = field;
  const slides = low !== undefined && high !== undefined && step !== undefined;
  const typed = ({ target }) => set(target.value === "" ? undefined : Number(target.value));
  return html`
    <div class="control">
      ${slides && html`<input type="range" min=${low} max=${high} step=${step} value=${value ?? low}
        aria-label="${field.name}, slider" onInput=${({ target }) => set(Number(target.value))} />`}
      <input type="number" step="any" ...${common} value=${value ?? ""} placeholder="none"
        onChange=${typed} onInput=${typed} />
    </div>`;
}

/** An integer that a JavaScript number cannot hold, such as a seed. */
function DigitsControl({ field, value, set, common }) {
  const typed = ({ target }) => {
    const digits = target.value.trim();
    set(digits === "" ? undefined : /^-?\d+$/.test(digits) ? BigInt(digits) : digits);
  };
  return html`
    <div class="control">
      <input type="text" inputmode="numeric" ...${common} value=${value ?? ""} placeholder="drawn anew" onInput=${typed} />
      <button type="button" class="secondary" title="draw one and keep it" aria-label="Draw a ${field.name}"
        onClick=${() => set(BigInt(Math.floor(Math.random() * 1e9)))}>draw</button>
    </div>`;
}

function ChoiceControl({ field, value, set, common }) {
  return html`
    <select ...${common} value=${String(value)}
      onChange=${({ target }) => set(field.options.find((option) => String(option) === target.value))}>
      ${field.options.map((option) => html`<option value=${String(option)}>${String(option)}</option>`)}
    </select>`;
}

function SwitchControl({ value, set, common }) {
  return html`<input type="checkbox" role="switch" ...${common} checked=${value}
    onChange=${({ target }) => set(target.checked)} />`;
}

function TextControl({ value, set, common }) {
  return html`<input type="text" ...${common} value=${value ?? ""} placeholder="none"
    onInput=${({ target }) => set(target.value === "" ? undefined : target.value)} />`;
}

/** Lists, objects and what has several forms: JSON, or a bare word where the API takes words. */
function JsonControl({ field, value, set, common }) {
  const [typed, setTyped] = useState(null);
  const [wrong, setWrong] = useState(null);
  const text = typed ?? (value === null ? "" : shownAs(value));
  const changed = ({ target }) => {
    setTyped(target.value);
    setWrong(null);
    if (target.value.trim() === "") return set(undefined);
    try {
      set(parse(target.value));
    } catch {
      if (field.words) set(target.value.trim());
      else setWrong("This is no JSON.");
    }
  };
  return html`
    <input type="text" ...${common} value=${text} placeholder="none" list="choices-${field.name}"
      onInput=${changed} onBlur=${() => setTyped(null)} />
    ${field.suggestions.length > 0 && html`<datalist id="choices-${field.name}">
      ${field.suggestions.map((word) => html`<option value=${word} />`)}</datalist>`}
    ${wrong && html`<p class="refusal" role="alert">${wrong}</p>`}`;
}

/** Return which fields a refusal is about, each with its part of the message. */
export function refusalsOf({ param, message }, service) {
  const named = (name) => service.byName.has(name) || ["input", "voice", "preset"].includes(name);
  const told = {};
  for (const sentence of message.split("; ")) {
    const [path, ...rest] = sentence.split(": ");
    const name = path.split(".")[0];
    if (rest.length && named(name)) told[name] = rest.join(": ");
  }
  const first = param?.split(".")[0];
  if (first && named(first)) told[first] ??= message;
  return told;
}

/** Ask the service to forget a voice. */
export const deleteVoice = (id) => call(`v1/audio/voices/${encodeURIComponent(id)}`, { method: "DELETE" });
