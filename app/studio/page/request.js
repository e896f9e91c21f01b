/** The left side: what is said, by whom, and every knob that the API describes. */

import { html, PlayButton, useEffect, useRef, useState } from "./parts.js";
import { parse, postJson, stringify } from "./wire.js";

const EXAMPLES = {
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

/** Return the value that a knob has if the request does not set it. */
function baseOf({ presets, knobs, service }, field) {
  const { preset = service.preset.fallback } = knobs;
  return field.name === "preset" ? field.fallback : presets.find(({ id }) => id === preset)?.knobs[field.name] ?? field.fallback;
}

const same = (one, other) => stringify(one) === stringify(other);

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
          : html`<button type="submit" class="speak" disabled=${!state.service}>Speak</button>`}
        <button type="button" class="secondary" onClick=${() => app.show("export")}>Export</button>
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
      <p class="examples">Examples: ${Object.entries(EXAMPLES).map(([name, example]) => html`
        <button type="button" class="plain" onClick=${() => app.edit({ text: example })}>${name}</button>`)}</p>
      <${Refused} name="input" text=${refused} />
      ${service && html`<${Phonemes} app=${app} />`}
    </div>`;
}

/** The text as it will be read, asked of the service when the typing pauses. */
function Phonemes({ app }) {
  const { text, voice, knobs, away } = app.state;
  const [read, setRead] = useState(null);
  useEffect(() => {
    const leaving = new AbortController();
    const asking = setTimeout(async () => {
      const body = { input: text, ...(voice && { voice }), ...(knobs.language && { language: knobs.language }) };
      try {
        const answer = await postJson("v1/audio/phonemes", body, { signal: leaving.signal });
        setRead(parse(await answer.text()));
      } catch {
        setRead(null); // a text that cannot be read is refused when it is spoken
      }
    }, 400);
    return () => { clearTimeout(asking); leaving.abort(); };
  }, [text, voice, knobs.language, away]);
  const { utterances: shown, warnings } = (text.trim() && read) || { utterances: [], warnings: [] };
  return html`
    ${warnings.map((warning) => html`<p class="note" role="status">${warning}</p>`)}
    <details class="phonemes" open=${app.state.knobsOpen}>
      <summary>How it will be read</summary>
      <ol tabindex="0" aria-label="Phonemes">${shown.map((one) => html`
        <li title=${one.text}><span>${one.phonemes || "(a pause)"}</span>${directionsOf(one) && html` <small>${directionsOf(one)}</small>`}</li>`)}</ol>
    </details>`;
}

/** Return what the markup of a text says of an utterance, beside its words. */
function directionsOf({ voice, rate = 1, pause_after_s: pause = null }) {
  return [voice, rate !== 1 && `${rate}×`, pause !== null && `pause ${pause} s`].filter(Boolean).join(" · ");
}

/** Return a voice in words: its name and who it is. */
function described({ name, accent, gender, kind, language }) {
  const person = [accent, { female: "woman", male: "man" }[gender]].filter(Boolean).join(" ");
  const more = [person, kind === "own" && "yours", language !== "en" && language].filter(Boolean);
  return more.length ? `${name} (${more.join(", ")})` : name;
}

function VoicePicker({ app }) {
  const { voices, voice, refusals } = app.state;
  const chosen = voices.find(({ id }) => id === voice);
  const usual = voices.find((one) => one.is_default);
  const own = voices.filter(({ alias_of: alias, damaged }) => !alias && !damaged);
  const playing = app.player.sound && app.player.sound === app.samples[voice ?? "default"];
  return html`
    <div>
      <label for="voice">Voice</label>
      <div class="joined">
        <select id="voice" value=${voice ?? ""} aria-invalid=${refusals.voice ? "true" : null}
          onChange=${({ target }) => app.edit({ voice: target.value || null })}>
          <option value="">${usual ? `Default: ${described(usual)}` : "Default"}</option>
          ${voice && !chosen && html`<option value=${voice}>${voice}</option>`}
          ${own.map((one) => html`<option value=${one.id}>${described(one)}</option>`)}
        </select>
        <${PlayButton} playing=${playing} name="a recording of this voice" title="A recording of this voice" onClick=${() => app.listen(voice ?? "default")} />
        <button type="button" class="secondary" title="Add a voice from a recording, or delete one" onClick=${() => app.show("voices")}>+ Clone</button>
      </div>
      <${Refused} name="voice" text=${refusals.voice} />
    </div>`;
}

function Refused({ name, text }) {
  return text && html`<p class="refusal" role="alert" id=${`refused-${name}`}>${text}</p>`;
}

function Knobs({ app }) {
  const { service, search, refusals, knobsOpen, knobs, presets } = app.state;
  const preset = { ...service.preset, kind: "choice", options: [...new Set([...presets.map(({ id }) => id), knobs.preset ?? service.preset.fallback])] };
  const listed = service.fields.filter(({ label }) => !label);
  const changed = listed.filter(({ name }) => app.state.first.has(name));
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = (field) => {
    const about = `${field.name} ${field.name.replaceAll("_", " ")} ${field.group} ${field.help}`.toLowerCase();
    return words.every((word) => about.includes(word));
  };
  const others = listed.filter((field) => !app.state.first.has(field.name));
  const above = service.fields.filter((field) => field.label && words.length && found(field)).map(({ label, name }) => `${label} (${name})`);
  const groups = Map.groupBy(others, ({ group }) => group);
  const shown = words.length ? others.filter(found) : null;
  return html`
    <details class="knobs" open=${knobsOpen} onToggle=${({ target, currentTarget }) => {
      if (target !== currentTarget || target.open === app.state.knobsOpen) return;
      localStorage.knobs = target.open ? "open" : "";
      app.set({ knobsOpen: target.open });
    }}>
      <summary>All ${service.fields.length} knobs</summary>
      <${Knob} app=${app} field=${preset} />
      <div class="bar">
        <input type="search" id="search" placeholder="Search ${service.fields.length} knobs" aria-label="Search knobs"
          value=${search} onInput=${({ target }) => app.set({ search: target.value, ...app.settled() })}
          onKeyDown=${(event) => { if (event.key === "Enter") event.preventDefault(); }} />
        ${changed.length > 0 && html`<button type="button" class="plain" onClick=${() => { app.edit({ knobs: {} }); app.set(app.settled()); }}>
          Reset all</button>`}
      </div>
      ${changed.length > 0 && html`
        <h2>Changed from the preset</h2>
        ${changed.map((field) => html`<${Knob} key=${field.name} app=${app} field=${field} />`)}`}
      ${shown
        ? html`<h2 aria-live="polite">${shown.length} found${above.length > 0 && `; above: ${above.join(", ")}`}</h2>
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
    <details class="group" open=${open} onToggle=${toggled}>
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
  const hasSwitch = field.off !== undefined && field.kind !== "switch" && !field.label;
  const title = field.label ?? name;
  return html`
    <div class="knob ${changed ? "changed" : ""}" data-knob=${name}>
      <div class="head">
        <label for=${id}>${title}</label>
        ${field.unit && html`<small class="unit">${field.unit}</small>`}
        <span class="tools">
          ${hasSwitch && html`<input type="checkbox" role="switch" aria-label="${name} on" title="on or off"
            checked=${!same(value, field.off)}
            onChange=${({ target }) => set(target.checked ? whenOn(field, base) : field.off)} />`}
          ${changed && html`<button type="button" class="plain" aria-label="Reset ${title}"
            title="back to the preset's ${shownAs(base)}" onClick=${() => set(undefined)}>↺</button>`}
          <button type="button" class="plain" aria-label="About ${title}" aria-expanded=${helped}
            aria-controls="help-${name}" title=${field.help} onClick=${() => setHelped(!helped)}>?</button>
        </span>
      </div>
      <${CONTROLS[field.kind]} field=${field} value=${value} set=${set}
        common=${{ id, "aria-invalid": refused ? "true" : null, "aria-describedby": `${refused ? `refused-${name} ` : ""}help-${name}` }} />
      ${changed && needed(state, field).map((need) => html`<p class="note idle" role="status">
        Does nothing as it is: it acts with ${Object.entries(need).map(inWords).join(" or ")}.
        <button type="button" class="plain" onClick=${() => satisfy(app, need)}>Set ${inWords(answerOf(app.state, need))}</button></p>`)}
      <p class="help" id="help-${name}" hidden=${!helped}>${field.label && html`<code>${name}</code>: `}${field.help}</p>
      <${Refused} name=${name} text=${refused} />
    </div>`;
}

/** Return what a knob lacks to act, as its declaration says: of each object one of the knobs must be set. */
function needed(state, field) {
  return field.needs.filter((need) => !Object.entries(need).some(([name, values]) => {
    const other = state.service.byName.get(name);
    const value = name in state.knobs ? state.knobs[name] : baseOf(state, other);
    const set = values.length ? values.some((one) => same(one, value)) : !same(value, other.off);
    return set && needed(state, other).length === 0;
  }));
}

const inWords = ([name, values]) => (values.length ? `${name} ${values.map(shownAs).join(" or ")}` : name);

/** Return the knob, and the value in a list, that gives a knob what it needs. */
function answerOf({ service, knobs, presets }, need) {
  const [name, values] = Object.entries(need)[0];
  const field = service.byName.get(name);
  return [name, [values.length ? values[0] : whenOn(field, baseOf({ service, knobs, presets }, field))]];
}

/** Set what a knob needs, and what that needs itself. */
function satisfy(app, need) {
  const [name, [value]] = answerOf(app.state, need);
  app.edit({ knobs: { ...app.state.knobs, [name]: value } });
  const [further] = needed(app.state, app.state.service.byName.get(name));
  if (further) satisfy(app, further);
}

/** Return a value of a knob that was off: the preset's, the declared one, one worth a try, or one a few steps away. */
function whenOn({ off, fallback, values = [], options = [], high = Infinity, step = 1, kind }, base) {
  const near = { number: () => [Number(Math.min(high, off + 10 * step).toFixed(4))], switch: () => [!off] }[kind]?.() ?? [];
  return [base, fallback, ...values, ...options, ...near].find((value) => !same(value, off)) ?? fallback;
}

const shownAs = (value) => (value === null ? "none" : typeof value === "string" ? value : stringify(value));

const CONTROLS = { number: NumberControl, digits: DigitsControl, choice: ChoiceControl, switch: SwitchControl, json: JsonControl };

/** A slider where the declaration has one, and always a field, which takes values beyond its ends. */
function NumberControl({ field, value, set, common }) {
  const { low, high, step, slider } = field;
  const slides = slider && low !== undefined && high !== undefined && step !== undefined;
  const typed = ({ target }) => set(target.value === "" ? undefined : Number(target.value));
  return html`
    <div class="control">
      ${slides && html`<input type="range" min=${low} max=${high} step=${step} value=${value ?? low}
        aria-label="${field.label ?? field.name}, slider" onInput=${({ target }) => set(Number(target.value))} />`}
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
      <input type="text" inputmode="numeric" ...${common} value=${value ?? ""} placeholder="random" onInput=${typed} />
      <button type="button" class="secondary" title="draw one, and keep it for the next takes"
        onClick=${() => set(BigInt(Math.floor(Math.random() * 1e9)))}>Draw one</button>
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

/** Lists, objects, texts and what has several forms: JSON, or bare words where the API takes them. */
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
      else setWrong("This is not valid JSON.");
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
