/** Sweep: takes that differ in one knob, or in the seed alone, and a table to compare them. */

import { silencesOf, utterancesOf } from "./analysis.js";
import { part, PlayButton } from "./parts.js";
import { bodyOf } from "./request.js";
import { parse, Refusal, stringify } from "./wire.js";

const html = htm.bind(preact.h);
const { useState } = preactHooks;

const SEEDS = 8;
const VALUES = 5;

/** What the table and its file tell of a take: a title, an explanation, and the value of what was measured. */
const COLUMNS = [
  ["seconds", "", ({ seconds }) => seconds.toFixed(2)],
  ["phonemes/s", "of speech; pauses of 0.3 s and more left out", ({ phonemes, seconds, silentS }) => (phonemes ? (phonemes / Math.max(0.1, seconds - silentS)).toFixed(1) : "–")],
  ["loops", "removed by backtracking", ({ rewinds }) => rewinds.filter(({ cause }) => cause === "loop").length],
  ["pauses", "of 0.3 s and more", ({ pauses }) => pauses],
  ["silent s", "in these pauses", ({ silentS }) => silentS.toFixed(1)],
  ["nats a code", "mean log-probability under the model", ({ likelihood }) => likelihood.toFixed(3)],
  ["rank", "by the mean log-probability, the likeliest first", ({ likelihood }, all) => 1 + all.filter((one) => one.likelihood > likelihood).length],
  ["finish", "", ({ finish }) => finish],
];

export function SweepPane({ app }) {
  const { service, takes } = app.state;
  const sweep = (app.sweep ??= { name: null, values: null, running: null });
  const [, redraw] = useState(0);
  const change = (patch) => { Object.assign(sweep, patch); redraw((count) => count + 1); };
  const seed = service.fields.find(({ kind }) => kind === "digits");
  const field = sweep.name === null ? seed : service.byName.get(sweep.name);
  const typed = sweep.values ?? listed(valuesOf(field));
  const choices = service.fields.filter(({ kind }) => ["number", "choice", "switch"].includes(kind));
  const last = takes.find(({ swept }) => swept)?.swept;
  return html`
    <form class="sweep" aria-label="Sweep" onSubmit=${(event) => { event.preventDefault(); run(app, sweep, change, field, seed, typed); }}>
      <div class="pair">
        <div>
          <label for="swept">Knob</label>
          <select id="swept" value=${field.name} onChange=${({ target }) => change({ name: target.value, values: null })}>
            <option value=${seed.name}>${seed.name}: ${SEEDS} takes</option>
            ${choices.map(({ name }) => html`<option value=${name}>${name}</option>`)}
          </select>
        </div>
        <div>
          <label for="values">Values</label>
          <input id="values" value=${typed} onInput=${({ target }) => change({ values: target.value })} />
        </div>
      </div>
      <div class="actions">
        ${sweep.running
          ? html`<button type="button" class="stop" onClick=${() => sweep.running.abort()}>Stop</button>`
          : html`<button type="submit">Run</button>`}
        <span class="note">Everything else is as in the request${field === seed ? "" : ", with one seed"}.</span>
      </div>
      ${sweep.wrong && html`<p class="refusal" role="alert">${sweep.wrong}</p>`}
    </form>
    ${last && html`<${Grid} app=${app} name=${last.name} takes=${takes.filter(({ swept }) => swept?.run === last.run).reverse()} />`}`;
}

/** Return values to begin with: those that are recommended, over the slider's range, all choices, or seeds from 1 on. */
function valuesOf({ kind, values, low = 0, high, step = 1, options, fallback }) {
  if (values) return values;
  if (kind === "digits") return Array.from({ length: SEEDS }, (_, n) => n + 1);
  if (kind === "choice") return options;
  if (kind === "switch") return [false, true];
  const top = high ?? Math.max(low, Number(fallback)) + VALUES * step;
  const spread = Array.from({ length: VALUES }, (_, n) => low + ((top - low) * n) / (VALUES - 1));
  return [...new Set(spread.map((value) => Number((Math.round(value / step) * step).toFixed(4))))];
}

const listed = (values) => values.map((value) => (typeof value === "string" ? value : stringify(value))).join(", ");

/** Return the values that were typed, with commas between. */
function read(typed, { kind, options }) {
  const words = typed.split(",").map((word) => word.trim()).filter(Boolean);
  return words.map((word) => (kind === "digits" ? BigInt(word) : options?.find((option) => String(option) === word) ?? parse(word)));
}

async function run(app, sweep, change, field, seed, typed) {
  let values;
  try {
    values = read(typed, field);
  } catch {
    change({ wrong: `Values of ${field.name}, with commas between.` });
    return;
  }
  const running = new AbortController();
  const body = { ...(field !== seed && { [seed.name]: BigInt(Math.floor(Math.random() * 1e9)) }), ...bodyOf(app.state) };
  change({ wrong: null, running });
  const swept = { run: Date.now(), name: field.name };
  for (const value of values) {
    const take = app.newTake({ ...body, [field.name]: value });
    take.swept = { ...swept, value };
    try {
      await app.make(take, running.signal, () => app.add(take));
      await app.finish(take);
    } catch (error) {
      if (running.signal.aborted) break;
      change({ wrong: `${field.name} ${listed([value])}: ${error.message}` });
      if (!(error instanceof Refusal)) break;
    }
  }
  change({ running: null });
}

/** Return what is measured of a take with a report. */
function measured({ sound, report }) {
  const utterances = utterancesOf({ report });
  const logprobs = utterances.flatMap((one) => one.logprobs).filter((value) => value !== null);
  return {
    ...silencesOf(sound),
    seconds: sound.seconds,
    phonemes: utterances.reduce((sum, one) => sum + [...one.phonemes].length, 0),
    rewinds: utterances.flatMap(({ backtracks }) => backtracks),
    likelihood: logprobs.reduce((sum, value) => sum + value, 0) / Math.max(1, logprobs.length),
    finish: report.finish_reason,
  };
}

function Grid({ app, name, takes }) {
  const made = takes.filter(({ report }) => report);
  const facts = made.map(measured);
  const rows = made.map(({ swept }, n) => [listed([swept.value]), ...COLUMNS.map(([, , valueOf]) => valueOf(facts[n], facts))]);
  const table = [[name, ...COLUMNS.map(([title]) => title)], ...rows].map((row) => row.join(",")).join("\n");
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label="Takes by ${name}">
      <table class="made">
        <thead><tr>
          <th scope="col">${name}</th><th scope="col">take</th>${COLUMNS.map(([title, about]) => html`<th scope="col" title=${about}>${title}</th>`)}
        </tr></thead>
        <tbody>${made.map((take, n) => html`<tr data-value=${rows[n][0]}>
          <th scope="row">${rows[n][0]}</th>
          <td><${PlayButton} playing=${app.player.sound === take.sound} name="${name} ${rows[n][0]}" onClick=${() => app.toggle(take)} />
            <button class="plain" onClick=${() => app.set({ tab: "takes", open: take.key })}>take ${take.number}</button></td>
          ${rows[n].slice(1).map((value) => html`<td>${value}</td>`)}
        </tr>`)}</tbody>
      </table>
    </div>
    <button class="secondary" onClick=${async () => (await part("./export.js")).save(new Blob([table], { type: "text/csv" }), `${name}.csv`)}>Download the table (CSV)</button>`;
}
