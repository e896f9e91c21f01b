/** Study: takes over the values of one knob or two, and seeds, with a table and plots of what was measured. */

import { utterancesOf } from "./analysis.js";
import { html, part, PlayButton, Problem, useRedraw } from "./parts.js";
import { mean, Plot } from "./plot.js";
import { bodyOf } from "./request.js";
import { parse, Refusal, stringify } from "./wire.js";

const SEEDS = 8; // where they alone differ
const SEEDS_A_VALUE = 3; // fewer give no interval that is worth one
const VALUES = 5;

/** What is measured of a take: a title, an explanation, its decimals, and the value. */
const MEASURES = [
  ["seconds", "", 2, ({ seconds }) => seconds],
  ["repeats", "share of level 0's codes that are among the ten before", 3, ({ codes }) => mean(codes.map((code, n) => Number(codes.slice(Math.max(0, n - 10), n).includes(code))))],
  ["entropy", "bits, mean", 2, ({ tokens }) => mean(tokens.map(({ entropy_bits: bits }) => bits))],
  ["nats a code", "mean log-probability under the model", 3, ({ logprobs }) => mean(logprobs)],
  ["rewinds", "by backtracking", 0, ({ rewinds }) => rewinds.length],
];

export function StudyPane({ app }) {
  const { service, takes, study } = app.state;
  const work = (app.work ??= { running: null, wrong: null });
  const redraw = useRedraw();
  const change = (patch) => { Object.assign(work, patch); redraw(); };
  const set = (patch) => app.set({ study: { ...study, ...patch } });
  const choices = service.fields.filter(({ kind }) => ["number", "choice", "switch"].includes(kind));
  const axes = study.names.map((name) => choices.find((field) => field.name === name)).filter(Boolean)
    .map((field) => ({ field, typed: study.typed[field.name] ?? listed(valuesOf(field)) }));
  const seeds = study.seeds ?? (axes.length ? SEEDS_A_VALUE : SEEDS);
  const count = axes.reduce((product, { typed }) => product * typed.split(",").filter((word) => word.trim()).length, seeds);
  const last = takes.find(({ studied }) => studied)?.studied;
  return html`
    <form class="study" aria-label="Study" onSubmit=${(event) => { event.preventDefault(); run(app, change, axes, seeds); }}>
      <p class="note">What does a knob do? A study speaks the text with several values of it, each with the same seeds, and plots what it changed.
        Without a knob it shows how much the seed alone changes.</p>
      ${study.names.map((chosen, n) => html`
        <div class="pair">
          <div>
            <label for="knob-${n}">${n ? "Second knob" : "Knob"}</label>
            <select id="knob-${n}" value=${chosen} onChange=${({ target }) => set({ names: study.names.with(n, target.value) })}>
              <option value="">${n ? "none" : "none: seeds alone"}</option>
              ${choices.filter(({ name }) => name !== study.names[1 - n]).map(({ name, label }) => html`<option value=${name}>${label ? `${name} (${label})` : name}</option>`)}
            </select>
          </div>
          <div>
            <label for="values-${n}">Values</label>
            <input id="values-${n}" disabled=${!chosen} value=${axes.find(({ field }) => field.name === chosen)?.typed ?? ""}
              onInput=${({ target }) => set({ typed: { ...study.typed, [chosen]: target.value } })} />
          </div>
        </div>`)}
      <div class="actions">
        <label>Seeds <input type="number" id="seeds" min="1" value=${seeds} onInput=${({ target }) => set({ seeds: Number(target.value) || 1 })} /></label>
        ${work.running
          ? html`<button type="button" class="secondary stop" onClick=${() => work.running.abort()}>Stop</button>`
          : html`<button type="submit">Run</button>`}
        <span class="note">${count} ${count === 1 ? "take" : "takes"}; everything else is as in the request.</span>
      </div>
      ${work.wrong && html`<${Problem} text=${work.wrong} />`}
    </form>
    ${last && html`<${Results} app=${app} names=${Object.keys(last.values)} takes=${takes.filter(({ studied }) => studied?.run === last.run).reverse()} />`}`;
}

/** Return values to begin with: those that are recommended, over the slider's range, or all choices. */
function valuesOf({ kind, values, low = 0, high, step = 1, options, fallback }) {
  if (values) return values;
  if (kind === "choice") return options;
  if (kind === "switch") return [false, true];
  const top = high ?? Math.max(low, Number(fallback)) + VALUES * step;
  const spread = Array.from({ length: VALUES }, (_, n) => low + ((top - low) * n) / (VALUES - 1));
  return [...new Set(spread.map((value) => Number((Math.round(value / step) * step).toFixed(4))))];
}

const listed = (values) => values.map((value) => (typeof value === "string" ? value : stringify(value))).join(", ");

/** Return the values that were typed, with commas between. */
function read({ typed, field: { name, options } }) {
  const words = typed.split(",").map((word) => word.trim()).filter(Boolean);
  return words.map((word) => [name, options?.find((option) => String(option) === word) ?? parse(word)]);
}

async function run(app, change, axes, seeds) {
  let cells = [[]];
  const first = BigInt(app.state.knobs.seed ?? 1);
  const every = Array.from({ length: seeds }, (_, n) => ["seed", first + BigInt(n)]);
  try {
    for (const axis of [...axes.map(read), every]) cells = cells.flatMap((cell) => axis.map((value) => [...cell, value]));
  } catch {
    change({ wrong: "Values with commas between." });
    return;
  }
  const running = new AbortController();
  const body = bodyOf(app.state);
  change({ wrong: null, running });
  const since = Date.now();
  for (const values of cells.map(Object.fromEntries)) {
    const take = app.newTake({ ...body, ...values });
    take.studied = { run: since, values };
    try {
      await app.make(take, running.signal, () => app.add(take));
      await app.finish(take);
    } catch (error) {
      if (running.signal.aborted) break;
      change({ wrong: `${Object.entries(values).map(([name, value]) => `${name} ${listed([value])}`).join(", ")}: ${error.message}` });
      if (!(error instanceof Refusal)) break;
    }
  }
  change({ running: null });
}

/** Return the measures of a take with a report. */
function measured({ sound, report }) {
  const utterances = utterancesOf({ report });
  const facts = {
    seconds: sound.seconds,
    codes: utterances.flatMap((one) => one.codes.map(([code]) => code)),
    tokens: utterances.flatMap((one) => one.tokens.filter(Boolean)),
    logprobs: utterances.flatMap((one) => one.logprobs ?? []).filter((value) => value !== null),
    rewinds: utterances.flatMap(({ backtracks }) => backtracks),
  };
  return MEASURES.map(([, , , valueOf]) => valueOf(facts));
}

function Results({ app, names, takes }) {
  const made = takes.filter(({ report }) => report);
  const facts = made.map(measured);
  const likeliest = MEASURES.findIndex(([title]) => title === "nats a code");
  const rows = made.map(({ studied, report }, n) => [
    ...names.map((name) => listed([studied.values[name]])),
    ...MEASURES.map(([, , decimals], place) => facts[n][place].toFixed(decimals)),
    1 + facts.filter((other) => other[likeliest] > facts[n][likeliest]).length, report.finish_reason,
  ]);
  const titles = [...names, ...MEASURES.map(([title]) => title), "rank", "finish"];
  const table = [titles, ...rows].map((row) => row.join(",")).join("\n");
  const cells = rows.map((row) => row.slice(0, names.length));
  return html`
    <p class="note">A dot is a take, a line joins the means, a bar is the 95 % interval of a mean. Bars that overlap widely show no difference;
      of a single take there is none. In brackets: the last value less the first, seed by seed.</p>
    <div class="plots">${MEASURES.map(([title, about], place) => html`
      <${Plot} title=${title} about=${about} names=${names} cells=${cells} values=${facts.map((one) => one[place])} />`)}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="Takes of the study">
      <table class="made">
        <thead><tr>${titles.map((title) => html`<th scope="col">${title}</th>`)}<th scope="col">take</th></tr></thead>
        <tbody>${made.map((take, n) => html`<tr data-value=${cells[n].join(" ")}>
          ${rows[n].map((value, column) => (column ? html`<td>${value}</td>` : html`<th scope="row">${value}</th>`))}
          <td><${PlayButton} playing=${app.player.sound === take.sound} name=${names.map((name, column) => `${name} ${cells[n][column]}`).join(", ")} onClick=${() => app.toggle(take)} />
            <button class="plain" onClick=${() => app.set({ tab: "takes", open: take.key })}>take ${take.number}</button></td>
        </tr>`)}</tbody>
      </table>
    </div>
    <button class="secondary" onClick=${async () => (await part("./export.js")).save(new Blob([table], { type: "text/csv" }), "study.csv")}>Download the table (CSV)</button>`;
}
