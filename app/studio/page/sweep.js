/** One knob over several values, or one request with several seeds: a table of takes to compare. */

import { silencesOf, utterancesOf } from "./analysis.js";
import { bodyOf } from "./request.js";
import { loudness, Sound } from "./sound.js";
import { getJson, parse, stringify } from "./wire.js";

const html = htm.bind(preact.h);
const { useState } = preactHooks;

const SEEDS = 8;
const VALUES = 5;

export function SweepPane({ app }) {
  const { service } = app.state;
  const sweep = (app.sweep ??= { name: null, values: null, rows: [], running: null });
  const [, redraw] = useState(0);
  const change = (patch) => { Object.assign(sweep, patch); redraw((count) => count + 1); };
  const seed = service.fields.find(({ kind }) => kind === "digits");
  const field = sweep.name === null ? seed : service.byName.get(sweep.name);
  const typed = sweep.values ?? listed(valuesOf(field));
  const choices = service.fields.filter(({ kind }) => ["number", "choice", "switch"].includes(kind));
  return html`
    <form class="sweep" aria-label="Sweep" onSubmit=${(event) => { event.preventDefault(); run(app, sweep, change, field, seed, typed); }}>
      <div class="pair">
        <div>
          <label for="swept">What changes</label>
          <select id="swept" value=${field.name} onChange=${({ target }) => change({ name: target.value, values: null })}>
            <option value=${seed.name}>${seed.name}: ${SEEDS} takes</option>
            ${choices.map(({ name }) => html`<option value=${name}>${name}</option>`)}
          </select>
        </div>
        <div>
          <label for="values">Its values</label>
          <input id="values" value=${typed} onInput=${({ target }) => change({ values: target.value })} />
        </div>
      </div>
      <div class="actions">
        ${sweep.running
          ? html`<button type="button" class="stop" onClick=${() => sweep.running.abort()}>Stop</button>`
          : html`<button type="submit">Make the takes</button>`}
        <span class="note">All else is as in the request${field === seed ? "" : "; all have one seed"}.</span>
      </div>
      ${sweep.wrong && html`<p class="refusal" role="alert">${sweep.wrong}</p>`}
    </form>
    ${sweep.rows.length > 0 && html`<${Grid} app=${app} rows=${sweep.rows} name=${sweep.swept} />`}`;
}

/** Return values to begin with: over the slider's range, all choices, or seeds from 1 on. */
function valuesOf({ kind, low = 0, high, step = 1, options, fallback }) {
  if (kind === "digits") return Array.from({ length: SEEDS }, (_, n) => n + 1);
  if (kind === "choice") return options;
  if (kind === "switch") return [false, true];
  const top = high ?? Math.max(low, Number(fallback)) + VALUES * step;
  const spread = Array.from({ length: VALUES }, (_, n) => low + ((top - low) * n) / (VALUES - 1));
  return [...new Set(spread.map((value) => Number((Math.round(value / step) * step).toFixed(4))))];
}

const listed = (values) => values.map((value) => (typeof value === "string" ? value : stringify(value))).join(", ");

function read(typed, field) {
  return typed.split(",").map((word) => word.trim()).filter(Boolean).map((word) => {
    if (field.kind === "digits") return BigInt(word);
    if (field.kind === "choice") return field.options.find((option) => String(option) === word) ?? word;
    return parse(word);
  });
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
  const common = field === seed ? {} : { [seed.name]: BigInt(Math.floor(Math.random() * 1e9)) };
  const rows = values.map((value) => ({
    value,
    take: app.newTake({ ...common, ...bodyOf(app.state), [field.name]: value }),
  }));
  change({ wrong: null, running, rows, swept: field.name });
  for (const row of rows) {
    if (running.signal.aborted) break;
    row.state = "making";
    change({});
    try {
      await make(app, row.take, running.signal);
      row.state = "made";
    } catch (error) {
      row.state = error.name === "AbortError" ? "stopped" : error.message;
    }
  }
  change({ running: null });
  app.tell(`${rows.filter(({ state }) => state === "made").length} takes made`);
}

async function make(app, take, signal) {
  const onHead = (head) => {
    take.id = head.get("x-request-id");
    take.seed = head.get("x-seed");
    take.sound = new Sound(Number(head.get("x-sample-rate")) || 24000);
  };
  for await (const samples of app.spoken(take.body, { signal, onHead })) take.sound.push(samples);
  take.sound.finish();
  take.report = await getJson(`v1/audio/speech/${encodeURIComponent(take.id)}`, { signal });
  take.lufs = loudness(take.sound);
  take.outcome = "done";
}

/** Return what the table tells of a take. */
function measured({ sound, report }) {
  const utterances = utterancesOf({ report });
  const phonemes = utterances.reduce((sum, one) => sum + [...one.phonemes].length, 0);
  const likelihoods = utterances.flatMap(({ logprobs }) => logprobs).filter((value) => value !== null);
  const { pauses, silentS } = silencesOf(sound);
  return {
    seconds: sound.seconds,
    rate: phonemes ? phonemes / Math.max(0.1, sound.seconds - silentS) : null,
    loops: utterances.flatMap(({ backtracks }) => backtracks).filter(({ cause }) => cause === "loop").length,
    pauses,
    silentS,
    likelihood: likelihoods.reduce((sum, value) => sum + value, 0) / Math.max(1, likelihoods.length),
    reason: report.finish_reason,
  };
}

function Grid({ app, rows, name }) {
  const told = rows.map(({ take, state }) => (state === "made" ? measured(take) : null));
  const order = told.filter(Boolean).map(({ likelihood }) => likelihood).sort((one, other) => other - one);
  const keep = ({ take }) => {
    take.number = app.newTake({}).number;
    app.add(take);
    app.tell(`Take ${take.number} added`);
  };
  return html`
    <div class="scroll">
      <table class="made" aria-label="Takes by ${name}">
        <thead><tr>
          <th scope="col">${name}</th><th scope="col">play</th><th scope="col">seconds</th>
          <th scope="col" title="of speech, pauses of 0.3 s and more left out">phonemes/s</th>
          <th scope="col" title="loops that backtracking took back">loops</th>
          <th scope="col" title="pauses of 0.3 s and more">silences</th>
          <th scope="col" title="by mean log-probability under the model, the likeliest first">rank</th>
          <th scope="col">ended by</th><th scope="col"></th>
        </tr></thead>
        <tbody>${rows.map((row, n) => {
          const { value, take, state } = row;
          const facts = told[n];
          const playing = take.sound && app.player.sound === take.sound;
          const shown = listed([value]);
          if (!facts) return html`<tr><th scope="row">${shown}</th><td colspan="8">${state ?? ""}</td></tr>`;
          return html`<tr data-value=${shown}>
            <th scope="row">${shown}</th>
            <td><button class="play" aria-label="${playing ? "Pause" : "Play"} ${name} ${shown}" onClick=${() => app.toggle(take)}>${playing ? "❚❚" : "▶"}</button></td>
            <td>${facts.seconds.toFixed(2)}</td>
            <td>${facts.rate === null ? "–" : facts.rate.toFixed(1)}</td>
            <td>${facts.loops}</td>
            <td>${facts.pauses}${facts.pauses > 0 && ` (${facts.silentS.toFixed(1)} s)`}</td>
            <td title=${`${facts.likelihood.toFixed(3)} nats a code`}>${order.indexOf(facts.likelihood) + 1}</td>
            <td>${facts.reason}</td>
            <td>${app.take(take.key) ? "" : html`<button class="secondary" onClick=${() => keep(row)}>To the takes</button>`}</td>
          </tr>`;
        })}</tbody>
      </table>
    </div>`;
}
