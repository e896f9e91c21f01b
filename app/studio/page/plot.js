/** Plots of a study: a measure over the values of a knob, from zero, with figures and intervals. */

import { html, short } from "./parts.js";

const [WIDTH, HEIGHT] = [280, 150];
const [LEFT, RIGHT, TOP, BOTTOM] = [38, 8, 8, 20];
const TICKS = 4;
const LINES = ["--line-1", "--line-2", "--side-b", "--marker"];

// 97.5 % points of Student's t for 1, 2, ... degrees of freedom; beyond, the normal distribution's.
const T = [12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.2, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.1, 2.09, 2.09];

export const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/** Return half the width of the 95 % interval of a mean; null of fewer than two values. */
export function halfInterval(values) {
  const free = values.length - 1;
  if (free < 1) return null;
  const middle = mean(values);
  const variance = values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / free;
  return (T[free - 1] ?? 1.96) * Math.sqrt(variance / values.length);
}

/** Return figures of an axis that has zero and all values: 1, 2, 2.5 or 5 times a power of ten apart. */
export function figures(values) {
  const low = Math.min(0, ...values);
  const high = Math.max(low === 0 && values.every((value) => value === 0) ? 1 : 0, ...values);
  const least = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= least * (1 - 1e-9));
  const from = Math.floor(low / step + 1e-9);
  const to = Math.max(from + 1, Math.ceil(high / step - 1e-9));
  return Array.from({ length: to - from + 1 }, (_, n) => Number(((from + n) * step).toPrecision(6)));
}

/** Return by how much the last value's takes differ from the first's of the same seeds, in words. */
function difference(rows, cells, values, places) {
  const of = (place) => new Map(rows.filter((n) => cells[n][0] === place).map((n) => [cells[n].at(-1), values[n]]));
  const [first, last] = [of(places[0]), of(places.at(-1))];
  const pairs = [...first].filter(([seed]) => last.has(seed)).map(([seed, value]) => last.get(seed) - value);
  const half = halfInterval(pairs);
  if (half === null || places.length < 2) return null;
  const middle = mean(pairs);
  const signed = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(Number(value.toPrecision(2)))}`;
  const shown = Math.abs(middle) > half ? "" : ": no difference shown";
  return `[${signed(middle)}, ${signed(middle - half)} to ${signed(middle + half)}${shown}]`;
}

/** A measure over the first knob's values: a dot a take, a line through the means with their intervals, a colour for each value of the second knob. */
export function Plot({ title, about, names, cells, values }) {
  const places = [...new Set(cells.map(([value]) => value))];
  const seeds = names.length === 1; // no knob: the axis is the seeds, of which each has one take
  const groups = Map.groupBy(values.keys(), (n) => (names.length > 2 ? cells[n][1] : ""));
  const marks = [...groups.values()].map((rows) => places.map((place) => {
    const own = rows.filter((n) => cells[n][0] === place).map((n) => values[n]);
    return { place, own, middle: mean(own), half: halfInterval(own) };
  }).filter(({ own }) => own.length));
  // An interval ends at zero where no value is beyond it.
  const clip = (value) => (values.every((one) => one >= 0) ? Math.max(0, value) : values.every((one) => one <= 0) ? Math.min(0, value) : value);
  const ticks = figures(marks.flat().flatMap(({ own, middle, half }) => [...own, ...[middle - half, middle + half].map(clip)]));
  const [low, high] = [ticks[0], ticks.at(-1)];
  const width = (WIDTH - LEFT - RIGHT) / places.length;
  const x = (place, n = 0) => LEFT + width * (places.indexOf(place) + 0.5) + (groups.size > 1 ? 5 * (n - (groups.size - 1) / 2) : 0);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low));
  const told = seeds ? null : [...groups.values()].map((rows) => difference(rows, cells, values, places)).filter(Boolean);
  const every = Math.ceil(places.length / 8); // as many values as there is room for
  return html`
    <figure data-plot=${title}>
      <figcaption>${title} <small>${about}</small></figcaption>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${title} by ${names[0]}">
        ${ticks.map((tick) => html`<g class="tick"><line x1=${LEFT} x2=${WIDTH - RIGHT} y1=${y(tick)} y2=${y(tick)} />
          <text x=${LEFT - 4} y=${y(tick) + 3} text-anchor="end">${short(tick)}</text></g>`)}
        ${places.map((place, n) => n % every === 0 && html`<text x=${LEFT + width * (n + 0.5)} y=${HEIGHT - 6} text-anchor="middle">${place}</text>`)}
        ${marks.map((points, n) => html`<g style=${{ color: `var(${LINES[n % LINES.length]})` }}>
          <polyline points=${points.map(({ place, middle }) => `${x(place, n)},${y(middle)}`).join(" ")} />
          ${points.map(({ place, middle, half }) => half !== null && html`<line class="interval" x1=${x(place, n)} x2=${x(place, n)} y1=${y(middle - half)} y2=${y(middle + half)} />`)}
          ${points.flatMap(({ place, own }) => own.map((value) => html`<circle cx=${x(place, n)} cy=${y(value)} r="2.5" />`))}</g>`)}
      </svg>
      <p><small>${names[0]}${" "}${names.length > 2 && html`by ${names[1]}${" "}${[...groups.keys()].map((value, n) => html`<b style=${{ color: `var(${LINES[n % LINES.length]})` }}>${value}</b>${" "}`)}`}
        ${seeds && values.length > 1 && `mean ${short(Number(mean(values).toPrecision(3)))} ± ${short(Number(halfInterval(values).toPrecision(2)))}`}
        ${told?.length > 0 && told.join(" ")}</small></p>
    </figure>`;
}
