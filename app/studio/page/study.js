/** Study: takes over the values of one knob or two, and seeds, with a table and plots of what was measured. */

import { utterancesOf } from "./analysis.js";
import { html, part, PlayButton, useRedraw } from "./parts.js";
import { bodyOf } from "./request.js";
import { parse, Refusal, stringify } from "./wire.js";

const SEEDS = 8; // where they alone differ
const VALUES = 5;
const [WIDTH, HEIGHT, EDGE] = [260, 120, 8];
const LINES = ["--line-1", "--line-2", "--side-b", "--marker"];

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/** What is measured of a take: a title, an explanation, its decimals, and the value. */
const MEASURES = [
  ["seconds", "", 2, ({ seconds }) => seconds],
  ["repeats", "share of level 0's codes that are among the ten before", 3, ({ codes }) => mean(codes.map((code, n) => Number(codes.slice(Math.max(0, n - 10), n).includes(code))))],
  ["entropy", "bits, mean", 2, ({ tokens }) => mean(tokens.map(({ entropy_bits: bits }) => bits))],
  ["nats a code", "mean log-probability under the model", 3, ({ logprobs }) => mean(logprobs)],
  ["rewinds", "by backtracking", 0, ({ rewinds }) => rewinds.length],
];

export function StudyPane({ app }) {
  const { service, takes } = app.state;
  const study = (app.study ??= { names: ["", ""], typed: {}, running: null });
  const redraw = useRedraw();
  const change = (patch) => { Object.assign(study, patch); redraw(); };
  const choices = service.fields.filter(({ kind }) => ["number", "choice", "switch"].includes(kind));
  const axes = study.names.filter(Boolean).map((name) => service.byName.get(name))
    .map((field) => ({ field, typed: study.typed[field.name] ?? listed(valuesOf(field)) }));
  const seeds = study.seeds ?? (axes.length ? 1 : SEEDS);
  const last = takes.find(({ studied }) => studied)?.studied;
  return html`
    <form class="study" aria-label="Study" onSubmit=${(event) => { event.preventDefault(); run(app, study, change, axes, seeds); }}>
      ${study.names.map((chosen, n) => html`
        <div class="pair">
          <div>
            <label for="knob-${n}">${n ? "Second knob" : "Knob"}</label>
            <select id="knob-${n}" value=${chosen} onChange=${({ target }) => change({ names: study.names.with(n, target.value) })}>
              <option value="">${n ? "none" : "none: seeds alone"}</option>
              ${choices.filter(({ name }) => name !== study.names[1 - n]).map(({ name }) => html`<option value=${name}>${name}</option>`)}
            </select>
          </div>
          <div>
            <label for="values-${n}">Values</label>
            <input id="values-${n}" disabled=${!chosen} value=${axes.find(({ field }) => field.name === chosen)?.typed ?? ""}
              onInput=${({ target }) => change({ typed: { ...study.typed, [chosen]: target.value } })} />
          </div>
        </div>`)}
      <div class="actions">
        <label>Seeds <input type="number" id="seeds" min="1" value=${seeds} onInput=${({ target }) => change({ seeds: Number(target.value) || 1 })} /></label>
        ${study.running
          ? html`<button type="button" class="stop" onClick=${() => study.running.abort()}>Stop</button>`
          : html`<button type="submit">Run</button>`}
        <span class="note">Everything else is as in the request; each value has the same seeds.</span>
      </div>
      ${study.wrong && html`<p class="refusal" role="alert">${study.wrong}</p>`}
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

async function run(app, study, change, axes, seeds) {
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

/** A measure over the first knob's values: a dot a take, a line through the means, a colour for each value of the second knob. */
function Plot({ title, about, names, cells, values }) {
  const places = [...new Set(cells.map(([value]) => value))];
  const groups = Map.groupBy(values.keys(), (n) => (names.length > 2 ? cells[n][1] : ""));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (value) => EDGE + ((WIDTH - 2 * EDGE) * (places.indexOf(value) + 0.5)) / places.length;
  const y = (value) => HEIGHT - EDGE - (high > low ? ((value - low) / (high - low)) * (HEIGHT - 2 * EDGE) : HEIGHT / 2 - EDGE);
  const means = (rows) => places.map((place) => [place, rows.filter((n) => cells[n][0] === place)])
    .filter(([, own]) => own.length).map(([place, own]) => `${x(place)},${y(mean(own.map((n) => values[n])))}`).join(" ");
  return html`
    <figure data-plot=${title}>
      <figcaption>${title} <small>${about} ${low === high ? `all ${low.toPrecision(3)}` : `${low.toPrecision(3)} to ${high.toPrecision(3)}`}</small></figcaption>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${title} by ${names[0]}">
        ${[...groups.values()].map((rows, n) => html`<g style=${{ color: `var(${LINES[n % LINES.length]})` }}>
          <polyline points=${means(rows)} /> ${rows.map((row) => html`<circle cx=${x(cells[row][0])} cy=${y(values[row])} r="2.5" />`)}</g>`)}
      </svg>
      <p><small>${places.join(" · ")}${names.length > 2 && html`; ${names[1]} ${[...groups.keys()].map((value, n) => html`<b style=${{ color: `var(${LINES[n % LINES.length]})` }}>${value}</b> `)}`}</small></p>
    </figure>`;
}
