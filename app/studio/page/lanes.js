/** A take to look at: waveform and words over time, and folded below them what the model did. */

import { placeOf, utterancesOf } from "./analysis.js";
import { Canvas, Lane, LEFT, paint, useWidth } from "./canvas.js";
import { Fold, html, later, Problem, useEffect, useRef, useState } from "./parts.js";

const Curves = later("./curves.js", "Curves");
const Token = later("./token.js", "Token");

const DRAGGED = 6; // pixels

/** `peer` is the take beside it, which has the same scales. */
export function TakeView({ app, take, peer }) {
  const [box, slider] = [useRef(), useRef()];
  const { sound } = take;
  const whole = [0, Math.max(0.05, sound.seconds)];
  const [zoom, setZoom] = useState(null);
  const [hover, setHover] = useState(null);
  const [drag, setDrag] = useState(null);
  const width = useWidth(box);
  const view = zoom ?? whole;
  const utterances = utterancesOf(take);
  const scale = { view, width: Math.max(1, width - LEFT), at: (seconds) => ((seconds - view[0]) / (view[1] - view[0])) * scale.width };
  const seek = (seconds) => {
    take.point = seconds;
    app.play(take, { at: seconds });
  };
  const pin = (seconds) => {
    take.point = Math.min(whole[1], Math.max(0, seconds));
    app.onChange();
  };
  const pointer = {
    secondsAt: (event) => {
      const x = event.clientX - box.current.getBoundingClientRect().left - LEFT;
      return Math.min(whole[1], Math.max(0, view[0] + ((view[1] - view[0]) * x) / scale.width));
    },
    chosen: (from, to) => {
      slider.current.focus({ preventScroll: true });
      if (to === null) seek(from);
      else setZoom([from, to].sort((one, other) => one - other));
    },
    whole: () => setZoom(null),
    ...{ hover, setHover, drag, setDrag },
  };
  const point = take.point ?? 0;
  const shown = hover ?? point;
  const [place, pinned] = [shown, point].map((seconds) => utterances && placeOf(utterances, seconds));
  const onKey = (event) => keyed(event, { app, take, pinned, point, pin, seek });

  return html`
    <${Lanes} kind="heard" box=${box} label="Take ${take.number} over time" scale=${scale} pointer=${pointer}>
      ${width > 0 && html`
        <${Wave} ...${scale} sound=${sound} length=${sound.length} />
        ${utterances && html`<${Words} ...${scale} utterances=${utterances} />`}
        <${Cursor} ...${scale} app=${app} take=${take} line=${slider} role="slider" tabindex="0" aria-label="Place in take ${take.number}" aria-valuemin="0"
          aria-valuemax=${sound.seconds.toFixed(2)} aria-valuenow=${point.toFixed(2)} aria-valuetext=${described(point, pinned)} onKeyDown=${onKey} />`}
    </${Lanes}>
    <div class="bar">
      <span>
        <button class="secondary" onClick=${() => setZoom(zoomed(view, whole, point, 0.5))}>Zoom in</button>
        ${zoom && html`<button class="secondary" onClick=${() => setZoom(null)}>Whole</button>`}
      </span>
      ${pinned && html`<button class="secondary go-on" disabled=${take.outcome !== "done" || !take.id}
        onClick=${() => app.goOnFrom(take, pinned.utterance.number, pinned.frame, point)}>
        Continue from ${point.toFixed(2)} s with other settings</button>`}
    </div>
    ${take.reportError && html`<${Problem} text=${take.reportError} />`}
    ${utterances && html`
      <${Fold} app=${app} name="curves" title="What the model did" kind="curves">
        <${Lanes} kind="model" label="What the model did in take ${take.number}" scale=${scale} pointer=${pointer}>
          ${width > 0 && html`<${Curves} scale=${scale} take=${take} peer=${peer} utterances=${utterances} />
            <${Cursor} ...${scale} app=${app} take=${take} />`}
        </${Lanes}>
        ${place && html`<${Token} open=${app.state.knobsOpen} app=${app} take=${take} place=${place} seconds=${shown} />`}
      </${Fold}>`}`;
}

/** Lanes over one time axis, of which a click chooses a place and dragging a part. */
function Lanes({ kind, box, label, scale, pointer, children }) {
  const { secondsAt, chosen, whole, hover, setHover, drag, setDrag } = pointer;
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
    chosen(drag.to === null ? secondsAt(event) : drag.from, drag.to);
  };
  return html`
    <div class="lanes ${kind}" ref=${box} role="figure" aria-label=${label} onPointerDown=${pressed}
      onPointerMove=${moving} onPointerUp=${released} onPointerCancel=${() => setDrag(null)}
      onPointerLeave=${() => { setHover(null); setDrag(null); }} onDblClick=${whole}>
      ${children}
      ${hover !== null && html`<i class="hover" style=${{ left: `${LEFT + scale.at(hover)}px` }}></i>`}
      ${drag?.to != null && html`<i class="chosen" style=${{
        left: `${LEFT + scale.at(Math.min(drag.from, drag.to))}px`,
        width: `${Math.abs(scale.at(drag.to) - scale.at(drag.from))}px`,
      }}></i>`}
    </div>`;
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

/** The place that is heard or chosen, moved with the screen's own rate; `rest` is what keys need. */
function Cursor({ view, width: _, at, app, take, line = null, ...rest }) {
  const own = useRef();
  const shown = line ?? own;
  const playing = app.player.sound === take.sound;
  useEffect(() => {
    let next = null;
    const move = () => {
      const seconds = playing ? app.player.position ?? 0 : take.point ?? 0;
      shown.current.style.transform = `translateX(${LEFT + at(seconds)}px)`;
      shown.current.style.opacity = seconds < view[0] || seconds > view[1] ? 0 : 1;
      if (playing) next = requestAnimationFrame(move);
    };
    move();
    return () => cancelAnimationFrame(next);
  });
  return html`<i class="cursor" ref=${shown} ...${rest}></i>`;
}
