/** What the model did, over the time of a take: codes, markers and the sampler's curves. */

import { heardAt, sameWord, timeOf, utterancesOf } from "./analysis.js";
import { Canvas, isDark, Lane, LEFT, paint, useWidth } from "./canvas.js";
import { html, library, short, useEffect, useMemo, useRef, useState } from "./parts.js";

/** The curves: a title, and of each line its field in the record, its unit and its scale. */
const CURVES = [
  ["entropy", [["entropy_bits", "bits"], ["varentropy_bits2", "bits²"]]],
  ["temperature", [["temperature", ""], ["mirostat_mu", "bits"]]],
  ["penalties", [["nats lost", "by the drawn code, to all processors"], ["changed", "codes", "log"]]],
  ["stop", [["stop_probability", "", "log"], ["stop_rank", "", "log"]]],
  ["kept codes", [["kept", "codes", "log"]]],
];
const DIFFERENCES = [["entropy_bits", "bits, B minus A"], ["temperature", "B minus A"]];
const LINES = ["--line-1", "--line-2"];

/** Whether curves can be drawn: what draws them is loaded when the first is wanted. */
function usePlots() {
  const [ready, setReady] = useState(Boolean(window.uPlot));
  useEffect(() => { library("./plots.js").then(() => setReady(true)); }, []);
  return ready;
}

/** All lanes of a take; the scales hold those of its `peer`, too. */
export function Curves({ scale, take, peer, utterances }) {
  const ready = usePlots();
  return html`
    <${Codes} ...${scale} utterances=${utterances} />
    <${Markers} ...${scale} utterances=${utterances} />
    ${ready && CURVES.map(([title, lines], n) => html`
      <${Curve} key=${title} ...${scale} title=${title} lines=${lines} points=${pointsOf(take)} peers=${pointsOf(peer)} last=${n === CURVES.length - 1} />`)}`;
}

function Codes({ view, width, at, utterances }) {
  const levels = Math.max(1, ...utterances.map(({ codes }) => codes[0]?.length ?? 0));
  const height = 10 * levels;
  const draw = (pen) => {
    for (const utterance of utterances) {
      utterance.codes.forEach((codes, frame) => {
        const [from, to] = [frame, frame + 1].map((n) => at(heardAt(utterance, n)));
        if (from === to || to < 0 || from > width) return; // silence that was cut off is not heard, and not drawn
        codes.forEach((code, level) => {
          pen.fillStyle = colourOf(code);
          pen.fillRect(from, 10 * level, Math.max(0.5, to - from + 0.3), 9.5);
        });
      });
    }
  };
  return html`<${Lane} name="codes"><${Canvas} width=${width} height=${height} draw=${draw} seen=${[...view, utterances]}
    label="Codes of ${levels} levels, the coarsest above" /></${Lane}>`;
}

/** A colour of each code: neighbours in number differ, and the same code has always the same. */
function colourOf(code) {
  return `hsl(${(code * 137.508) % 360} 62% ${38 + (code * 7) % 30}%)`;
}

function Markers({ view, width, at, utterances }) {
  const lanes = Map.groupBy(
    utterances.flatMap((utterance) => utterance.markers.map((marker) => ({ ...marker, utterance }))),
    ({ name }) => name,
  );
  if (!lanes.size) return null;
  return html`
    <div class="markers" role="list" aria-label="Events">
      ${[...lanes].map(([name, markers]) => {
        const draw = (pen) => {
          pen.fillStyle = paint(/rewound|no code|NaN/.test(name) ? "--alarm" : "--marker");
          for (const { utterance, frame } of markers) {
            const x = at(heardAt(utterance, frame));
            pen.fillRect(x > width + 1 ? x : Math.min(x, width - 2), 1, 2, 8);
          }
        };
        const all = markers.map(({ detail }) => detail).filter(Boolean).join("; ");
        return html`
          <div role="listitem" data-marker=${name} data-count=${markers.length} title=${all}>
            <span class="name">${name} <b>${markers.length}</b></span>
            <${Canvas} width=${width} height=${10} draw=${draw} seen=${[...view, utterances]} label="${markers.length} times ${name}. ${all}" />
          </div>`;
      })}
    </div>`;
}

const known = new WeakMap();
const NONE = [];

/** Return the seconds and the record of each token of a take. */
function pointsOf(take) {
  const utterances = take && utterancesOf(take);
  if (!utterances) return NONE;
  if (!known.has(utterances)) {
    known.set(utterances, utterances.flatMap((utterance) => [
      ...utterance.tokens.filter(Boolean).map((token) => [timeOf(utterance, token.frame), { ...token, "nats lost": lostBy(token), changed: token.changed || null }]),
      [timeOf(utterance, utterance.tokens.length), {}], // the line ends with the utterance
    ]));
  }
  return known.get(utterances);
}

/** Return by how many nats a penalty made the drawn code less likely, with all that the other processors did; null where none acted. */
function lostBy({ changed, temperature, guided_logprob: before, score: after }) {
  return changed && temperature ? before - after : null;
}

/** What B has more than A at the same word, over the time of A. */
export function Difference({ a, b }) {
  const box = useRef();
  const width = useWidth(box);
  const ready = usePlots();
  const points = useMemo(() => pointsOf(a).map(([seconds, token]) => {
    const there = sameWord(a, seconds, b) + 1e-6;
    const other = pointsOf(b).findLast(([at, { code }]) => at <= there && code !== undefined)?.[1] ?? {};
    return [seconds, Object.fromEntries(DIFFERENCES.map(([field]) => [field, token[field] == null || other[field] == null ? null : other[field] - token[field]]))];
  }), [a.report, b.report]);
  return html`
    <div class="lanes" ref=${box} aria-label="B minus A" role="figure">
      ${ready && width > 0 && DIFFERENCES.map((line, n) => html`
        <${Curve} view=${[0, a.sound.seconds]} width=${width - LEFT} title="difference ${n + 1}" lines=${[line]} points=${points} last=${n === 1} />`)}
    </div>`;
}

function Curve({ view, width, title, lines, points, peers = NONE, last }) {
  const place = useRef();
  const present = lines.filter(([field]) => points.some(([, token]) => token[field] != null));
  const dark = isDark();
  useEffect(() => {
    if (!present.length) return undefined;
    const axis = { stroke: paint("--pico-muted-color"), grid: { stroke: paint("--grid"), width: 1 }, ticks: { show: false }, font: "10px sans-serif" };
    const valueOf = ([field, , form], token) => {
      const value = token[field] ?? null;
      return form === "log" && value !== null ? Math.max(value, field === "stop_rank" ? 0.5 : 1e-9) : value;
    };
    const scaleOf = (line) => {
      const values = [...points, ...peers].map(([, token]) => valueOf(line, token)).filter((value) => value !== null);
      const ends = values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
      return line[2] === "log" ? { distr: 3, range: uPlot.rangeLog(...ends, 10, true) } : { range: rangeOf(...ends) };
    };
    const plot = new uPlot({
      width: width + LEFT,
      height: last ? 92 : 72,
      padding: [6, 0, last ? 0 : 5, 0],
      cursor: { show: false },
      legend: { show: false },
      scales: { x: { time: false, min: view[0], max: view[1] }, ...Object.fromEntries(present.map((line) => [line[0], scaleOf(line)])) },
      axes: [
        { ...axis, show: last, size: 20, values: (_, ticks) => ticks.map((tick) => `${tick} s`) },
        { ...axis, scale: present[0][0], size: LEFT, gap: 2, values: (_, ticks) => ticks.map(short), ...(present[0][2] === "log" ? { splits: powers } : { space: 22 }) },
      ],
      series: [{}, ...present.map(([field], n) => ({
        scale: field, stroke: paint(LINES[n]), width: 1.2, points: { show: false }, spanGaps: false,
      }))],
    }, [points.map(([seconds]) => seconds), ...present.map((line) => points.map(([, token]) => valueOf(line, token)))], place.current);
    return () => plot.destroy();
  }, [width, view[0], view[1], points, peers, dark, present.length]);
  if (!present.length) return null;
  return html`
    <div class="curve" data-curve=${title}>
      <p>${present.map(([field, unit], n) => html`<span style=${{ color: `var(${LINES[n]})` }}>${lineName(field, unit)}</span> `)}</p>
      <div ref=${place} role="img" aria-label="${present.map(([field, unit]) => lineName(field, unit)).join(" and ")} over time"></div>
    </div>`;
}

/** Return the ends of an axis; a flat line has it in the middle, and no large figures beside it. */
export function rangeOf(low, high) {
  if (high - low > 1e-6 * Math.max(1, Math.abs(low))) return uPlot.rangeNum(low, high, 0.1, true);
  const around = Math.max(0.5, Math.abs(low) / 10);
  return [low - around, low + around];
}

/** Return a field of the record in words, with its unit where it has one. */
function lineName(field, unit) {
  const words = field.replace(/_bits2?$/, "").replaceAll("_", " ");
  return unit ? `${words} (${unit})` : words;
}

/** Return the places of a logarithmic axis: its ends and its middle, as powers of ten. */
function powers(_, __, low, high) {
  const [from, to] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
  return [...new Set([from, Math.round((from + to) / 2), to])].map((power) => 10 ** power);
}

