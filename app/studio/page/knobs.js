/** Every knob that the API describes: a control for each, in groups or as a search finds them. */

import { keep } from "./draft.js";
import { html, Problem, useState } from "./parts.js";
import { answersTo, nearest, ranked } from "./search.js";
import { parse, stringify } from "./wire.js";

/** Return the value that a knob has if the request does not set it. */
export function baseOf({ presets, knobs, service }, field) {
  const { preset = service.preset.fallback } = knobs;
  return field.name === "preset" ? field.fallback : presets.find(({ id }) => id === preset)?.knobs[field.name] ?? field.fallback;
}

const same = (one, other) => stringify(one) === stringify(other);

export function Knobs({ app }) {
  const { service, search, refusals, knobsOpen, knobs, presets } = app.state;
  const preset = { ...service.preset, kind: "choice", options: [...new Set([...presets.map(({ id }) => id), knobs.preset ?? service.preset.fallback])] };
  const listed = service.fields.filter(({ label }) => !label);
  const changed = listed.filter(({ name }) => app.state.first.has(name));
  const others = listed.filter((field) => !app.state.first.has(field.name));
  return html`
    <details class="knobs" open=${knobsOpen} onToggle=${({ target, currentTarget }) => {
      if (target !== currentTarget || target.open === app.state.knobsOpen) return;
      keep("knobs", target.open ? "open" : "");
      app.set({ knobsOpen: target.open });
    }}>
      <summary>All ${service.fields.length} knobs</summary>
      <${Knob} app=${app} field=${preset} />
      <div class="bar">
        <input type="search" id="search" placeholder="Search ${service.fields.length} knobs" aria-label="Search knobs"
          value=${search} onInput=${({ target }) => app.set({ search: target.value, ...app.settled() })}
          onKeyDown=${(event) => { if (event.key === "Enter") event.preventDefault(); }} />
        ${Object.keys(knobs).length > 0 && html`<button type="button" class="plain" onClick=${() => app.replace({ knobs: {} })}>Reset all</button>`}
      </div>
      ${search.trim()
        ? html`<${Found} app=${app} />`
        : html`
          ${changed.length > 0 && html`
            <h2>Changed from the preset</h2>
            ${changed.map((field) => html`<${Knob} key=${field.name} app=${app} field=${field} />`)}`}
          ${[...Map.groupBy(others, ({ group }) => group)].map(([name, fields]) => html`
            <${Group} key=${name} app=${app} name=${name} fields=${fields} refused=${fields.some((field) => refusals[field.name])} />`)}`}
    </details>`;
}

const ASIDE = 4; // a knob of the first view that is farther is not what was meant

/** What a search finds: knobs, those of the first view by name, and what is said where there is none. */
function Found({ app }) {
  const { service: { fields }, search } = app.state;
  const near = ranked(fields, search);
  const found = near.filter(({ field, far }) => !field.label || far < ASIDE).map(({ field }) => field);
  const meant = found.length ? [] : nearest(fields, search);
  const answers = answersTo(search);
  const [above, shown] = [true, false].map((first) => (found.length ? found : meant).filter(({ label }) => Boolean(label) === first));
  const names = above.map(({ label, name }) => `${label} (${name})`).join(", ");
  const count = found.length ? `${shown.length} found` : meant.length ? `Nothing found; ${shown.length} alike` : "Nothing found";
  return html`
    <h2 aria-live="polite">${count}${names && `; above: ${names}`}</h2>
    ${answers.map((answer) => html`<p class="answer">${answer}</p>`)}
    ${!found.length && !meant.length && !answers.length && html`<p class="answer">Try a word such as repeat, random, pause, loud or length; or open a group.
      <button type="button" class="plain" onClick=${() => app.set({ search: "" })}>Show all groups</button></p>`}
    ${shown.map((field) => html`<${Knob} key=${field.name} app=${app} field=${field} />`)}`;
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

export function Knob({ app, field }) {
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
      ${refused && html`<${Problem} text=${refused} id=${`refused-${name}`} />`}
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
