/** A take to look at: waveform, words, codes, markers and the sampler's curves over one time axis. */

import { heardAt, placeOf, sameWord, timeOf, utterancesOf } from "./analysis.js";
import { html, short, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./parts.js";
import { Token } from "./token.js";

const LEFT = 52; // pixels beside the lanes, for their names and scales
const DRAGGED = 6; // pixels

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

const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** `peer` is the take beside it, which has the same scales. */
export function TakeView({ app, take, peer }) {
  const box = useRef();
  const { sound } = take;
  const whole = [0, Math.max(0.05, sound.seconds)];
  const [zoom, setZoom] = useState(null);
  const [hover, setHover] = useState(null);
  const width = useWidth(box);
  const [drag, setDrag] = useState(null);
  const view = zoom ?? whole;
  const utterances = utterancesOf(take);
  const scale = { view, width: Math.max(1, width - LEFT), at: (seconds) => ((seconds - view[0]) / (view[1] - view[0])) * scale.width };

  const secondsAt = (event) => {
    const x = event.clientX - box.current.getBoundingClientRect().left - LEFT;
    return Math.min(whole[1], Math.max(0, view[0] + ((view[1] - view[0]) * x) / scale.width));
  };
  const seek = (seconds) => {
    take.point = seconds;
    app.play(take, { at: seconds });
  };
  const pin = (seconds) => {
    take.point = Math.min(whole[1], Math.max(0, seconds));
    app.onChange();
  };
  const pressed = (event) => {
    if (event.button !== 0) return;
    setDrag({ x: event.clientX, from: secondsAt(event), to: null });
  };
  const moving = (event) => {
    const seconds = secondsAt(event);
    setHover(event.pointerType === "mouse" ? seconds : null);
    if (drag && Math.abs(event.clientX - drag.x) > DRAGGED) setDrag({ ...drag, to: seconds });
  };
  const released = (event) => {
    if (!drag) return;
    setDrag(null);
    box.current.querySelector("[role=slider]").focus({ preventScroll: true });
    if (drag.to === null) seek(secondsAt(event));
    else setZoom([drag.from, drag.to].sort((one, other) => one - other));
  };
  const point = take.point ?? 0;
  const shown = hover ?? point;
  const [place, pinned] = [shown, point].map((seconds) => utterances && placeOf(utterances, seconds));
  const onKey = (event) => keyed(event, { app, take, pinned, point, pin, seek });

  return html`
    <div class="lanes" ref=${box} role="figure" aria-label="Take ${take.number} over time" onPointerDown=${pressed}
      onPointerMove=${moving} onPointerUp=${released} onPointerCancel=${() => setDrag(null)}
      onPointerLeave=${() => { setHover(null); setDrag(null); }} onDblClick=${() => setZoom(null)}>
      ${width > 0 && html`
        <${Wave} ...${scale} sound=${sound} length=${sound.length} />
        ${utterances && html`
          <${Words} ...${scale} utterances=${utterances} />
          <${Codes} ...${scale} utterances=${utterances} />
          <${Markers} ...${scale} utterances=${utterances} />
          ${CURVES.map(([title, lines], n) => html`
            <${Curve} key=${title} ...${scale} title=${title} lines=${lines} points=${pointsOf(take)} peers=${pointsOf(peer)} last=${n === CURVES.length - 1} />`)}`}
        <${Cursor} ...${scale} app=${app} take=${take} text=${described(point, pinned)} onKey=${onKey} />
        ${hover !== null && html`<i class="hover" style=${{ left: `${LEFT + scale.at(hover)}px` }}></i>`}
        ${drag?.to != null && html`<i class="chosen" style=${{
          left: `${LEFT + scale.at(Math.min(drag.from, drag.to))}px`,
          width: `${Math.abs(scale.at(drag.to) - scale.at(drag.from))}px`,
        }}></i>`}`}
    </div>
    <div class="bar">
      <span>
        <button class="secondary" onClick=${() => setZoom(zoomed(view, whole, point, 0.5))}>Zoom in</button>
        ${zoom && html`<button class="secondary" onClick=${() => setZoom(null)}>Whole</button>`}
      </span>
      ${pinned && html`<button class="go-on" disabled=${take.outcome !== "done" || !take.id}
        onClick=${() => app.goOnFrom(take, pinned.utterance.number, pinned.frame, point)}>
        Continue from ${point.toFixed(2)} s with other settings</button>`}
    </div>
    ${take.reportError && html`<p class="refusal">${take.reportError}</p>`}
    ${place && html`<${Token} open=${app.state.knobsOpen} app=${app} take=${take} place=${place} seconds=${shown} />`}`;
}

function useWidth(box) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const seen = new ResizeObserver(([{ contentRect }]) => setWidth(Math.floor(contentRect.width)));
    seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  return width;
}

function zoomed([from, to], whole, around, factor) {
  const seconds = Math.max(0.1, (to - from) * factor);
  const middle = Math.min(to, Math.max(from, around));
  const begin = Math.max(whole[0], middle - seconds / 2);
  return [begin, Math.min(whole[1], begin + seconds)];
}

function keyed(event, { app, take, pinned, point, pin, seek }) {
  const frameS = pinned?.utterance.frame_s ?? 0.1;
  const steps = event.shiftKey ? 10 : 1;
  const moves = {
    ArrowLeft: () => pin(point - steps * frameS),
    ArrowRight: () => pin(point + steps * frameS),
    Home: () => pin(0),
    End: () => pin(take.sound.seconds),
    Enter: () => seek(point),
    " ": () => app.toggle(take),
    g: () => pinned && app.goOnFrom(take, pinned.utterance.number, pinned.frame, point),
  };
  if (!(event.key in moves) || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  moves[event.key]();
}

/** Return the place of the cursor in words. */
function described(seconds, place) {
  if (!place) return `${seconds.toFixed(2)} seconds`;
  const { utterance: { number, tokens, words, markers }, frame } = place;
  const word = words.find(({ start_s: from, end_s: to }) => from <= seconds && seconds < to)?.word;
  const token = tokens[frame] && `code ${tokens[frame].code}, entropy ${tokens[frame].entropy_bits.toFixed(1)} bits`;
  const events = markers.filter((marker) => marker.frame === frame).map(({ name }) => name);
  return [`${seconds.toFixed(2)} seconds, utterance ${number + 1}, frame ${frame}`, word, token, ...events].filter(Boolean).join(", ");
}

/** Whether the colours are the dark ones; a canvas keeps those that it was drawn in. */
const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

/** A canvas that is as sharp as the screen, drawn anew when what it shows changes. */
function Canvas({ width, height, draw, seen, label }) {
  const canvas = useRef();
  const dark = isDark();
  useLayoutEffect(() => {
    const ratio = devicePixelRatio || 1;
    Object.assign(canvas.current, { width: width * ratio, height: height * ratio });
    const pen = canvas.current.getContext("2d");
    pen.scale(ratio, ratio);
    draw(pen);
  }, [width, height, dark, ...seen]);
  return html`<canvas ref=${canvas} role="img" aria-label=${label} style=${{ width: `${width}px`, height: `${height}px` }}></canvas>`;
}

function Lane({ name, children }) {
  return html`<div class="lane"><span class="name" style=${{ width: `${LEFT}px` }}>${name}</span>${children}</div>`;
}

function Wave({ view, width, sound, length }) {
  const height = 64;
  const draw = (pen) => {
    pen.fillStyle = paint("--wave");
    const { samples, rate } = sound;
    const loudest = Math.max(3000, sound.peak);
    const each = ((view[1] - view[0]) * rate) / width;
    for (let x = 0; x < width; x++) {
      const from = Math.floor(view[0] * rate + x * each);
      const to = Math.min(samples.length, Math.max(from + 1, Math.floor(from + each)));
      let [low, high] = [0, 0];
      for (let n = from; n < to; n += Math.max(1, Math.floor(each / 200))) {
        if (samples[n] < low) low = samples[n];
        if (samples[n] > high) high = samples[n];
      }
      const top = (height / 2) * (1 - high / loudest);
      pen.fillRect(x, top, 1, Math.max(1, (height / 2) * (1 - low / loudest) - top));
    }
  };
  return html`<${Lane} name="sound"><${Canvas} width=${width} height=${height} draw=${draw} seen=${[...view, length]}
    label="Waveform of ${sound.seconds.toFixed(1)} seconds" /></${Lane}>`;
}

function Words({ view, width, at, utterances }) {
  const words = utterances.flatMap(({ words: all, heard, phonemes, start_s: start, end }) => all.length
    ? heard.map((word) => [word.word, word.start_s, word.end_s ?? end])
    : [[phonemes, start, end]]);
  const missing = utterances.flatMap(({ words: all }) => all.filter(({ missing: lacked }) => lacked).map(({ word }) => word));
  if (!words.some(([text]) => text)) return null;
  return html`
    <${Lane} name="words">
      <div class="words" style=${{ width: `${width}px` }}>
        ${words.filter(([, from, to]) => to > view[0] && from < view[1]).map(([text, from, to]) => html`
          <span style=${{ left: `${at(from)}px`, width: `${Math.max(2, at(to) - at(from))}px` }} title=${text}>${text}</span>`)}
      </div>
    </${Lane}>
    ${missing.length > 0 && html`<p class="refusal">Not said: ${missing.join(", ")}</p>`}`;
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
  const points = useMemo(() => pointsOf(a).map(([seconds, token]) => {
    const there = sameWord(a, seconds, b) + 1e-6;
    const other = pointsOf(b).findLast(([at, { code }]) => at <= there && code !== undefined)?.[1] ?? {};
    return [seconds, Object.fromEntries(DIFFERENCES.map(([field]) => [field, token[field] == null || other[field] == null ? null : other[field] - token[field]]))];
  }), [a.report, b.report]);
  return html`
    <div class="lanes" ref=${box} aria-label="B minus A" role="figure">
      ${width > 0 && DIFFERENCES.map((line, n) => html`
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
      return line[2] === "log" ? { distr: 3, range: uPlot.rangeLog(...ends, 10, true) } : { range: uPlot.rangeNum(...ends, 0.1, true) };
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

/** The place that is heard or chosen, moved with the screen's own rate, or with keys. */
function Cursor({ view, at, app, take, text, onKey }) {
  const line = useRef();
  const playing = app.player.sound === take.sound;
  useEffect(() => {
    let next = null;
    const move = () => {
      const seconds = playing ? app.player.position ?? 0 : take.point ?? 0;
      line.current.style.transform = `translateX(${LEFT + at(seconds)}px)`;
      line.current.style.opacity = seconds < view[0] || seconds > view[1] ? 0 : 1;
      if (playing) next = requestAnimationFrame(move);
    };
    move();
    return () => cancelAnimationFrame(next);
  });
  return html`<i class="cursor" ref=${line} role="slider" tabindex="0" aria-label="Place in take ${take.number}" aria-valuemin="0"
    aria-valuemax=${take.sound.seconds.toFixed(2)} aria-valuenow=${(take.point ?? 0).toFixed(2)} aria-valuetext=${text}
    onKeyDown=${onKey}></i>`;
}
