/** Two takes side by side: equally loud, switched at the same word, and told apart blindly. */

import { sameWord } from "./analysis.js";
import { baseOf } from "./knobs.js";
import { TakeView } from "./lanes.js";
import { html, later, PlayButton, unfolded, useEffect, useState } from "./parts.js";
import { Sound } from "./sound.js";
import { stringify } from "./wire.js";

const Difference = later("./curves.js", "Difference");

const TRIALS = 10;

export function Compare({ app }) {
  const [a, b] = app.pair;
  const differing = differences(app, a, b);
  const [blind, setBlind] = useState(false);
  const heard = [a, b].find(({ sound }) => app.player.sound === sound);
  const change = () => {
    const from = heard ?? b;
    const to = from === a ? b : a;
    app.play(to, { at: heard ? sameWord(from, app.player.position, to) : 0 });
    app.say(`Now ${to === a ? "A" : "B"}`);
  };
  useKeys(app, blind ? null : { x: change });
  return html`
    <section class="compare" aria-label="A and B">
      <div class="bar">
        <h2>A and B</h2>
        <span>
          ${!blind && html`<button onClick=${change}>${heard ? `Switch to ${heard === a ? "B" : "A"}` : "Play A"}</button>`}
          ${" "}<button class="secondary" aria-pressed=${blind} onClick=${() => { app.player.stop(); setBlind(!blind); }}>
            ${blind ? "End the test" : "Blind test"}</button>
          ${" "}<button class="secondary" onClick=${() => app.set({ a: null, b: null })}>Close</button>
        </span>
      </div>
      ${blind
        ? html`<${Blind} app=${app} a=${a} b=${b} />`
        : html`<div class="two">${[[a, "a"], [b, "b"]].map(([take, side]) => html`
            <div data-side=${side}>
              <div class="bar">
                <span><span class="side ${side} on">${side.toUpperCase()}</span> take ${take.number}</span>
                <span class="differs">${differing.map(({ name, values }) => html`<span>${name} <b>${values[side === "a" ? 0 : 1]}</b></span>${" "}`)}
                  ${!differing.length && "the same request"}</span>
                <small class="gain" title="so that both are equally loud">${(Math.round(10 * app.gainOf(take)) / 10 || 0).toFixed(1)} dB</small>
                <${PlayButton} playing=${heard === take} name=${side.toUpperCase()} onClick=${() => app.toggle(take)} />
              </div>
              <${TakeView} app=${app} take=${take} peer=${take === a ? b : a} />
            </div>`)}</div>
            ${a.report && b.report && unfolded(app, "curves") && html`<${Difference} a=${a} b=${b} />`}`}
    </section>`;
}

/** Return in what two takes differ: the name and both values of each setting, with those that neither was asked for. */
function differences({ state }, a, b) {
  const { service, presets, voices } = state;
  const usual = voices.find((one) => one.is_default)?.id;
  const requests = [a, b].map(({ body, report, seed, edited = 0 }) => ({ ...body, seed: report?.request.params.seed ?? seed ?? body.seed, edited }));
  const names = [...new Set(requests.flatMap(Object.keys))];
  const valueOf = (request, name) => {
    const field = service.byName.get(name);
    if (name === "voice") return [undefined, "default"].includes(request.voice) ? usual : request.voice;
    return request[name] ?? (field ? baseOf({ service, presets, knobs: request }, field) : null);
  };
  const shown = (value) => (value === null ? "none" : typeof value === "string" ? value : stringify(value));
  const brief = (text) => (text.length > 40 ? `${text.slice(0, 40)}…` : text);
  const told = { input: "text", continue_from: "continued from", edited: "frames with changed codes" };
  return names.map((name) => ({ name: told[name] ?? name, values: requests.map((request) => shown(valueOf(request, name))) }))
    .filter(({ values: [one, other] }) => one !== other)
    .map(({ name, values }) => ({ name, values: values.map(brief) }));
}

/** Let keys act while a component is there; null leaves them to another. */
function useKeys(app, keys) {
  useEffect(() => {
    if (keys) app.compareKeys = keys;
    return () => { if (app.compareKeys === keys) app.compareKeys = null; };
  });
}

/** Ten times: X is A or B by chance, and the listener says which. */
function Blind({ app, a, b }) {
  const draw = () => Math.random() < 0.5;
  const [{ right, done, isA, copies }, set] = useState(() => ({
    right: 0, done: 0, isA: draw(),
    // Sounds of their own, so that no other part of the page shows which of the two is heard.
    copies: [a, b].map(({ sound }) => Sound.of(sound.samples, sound.rate)),
  }));
  const play = (side) => app.player.play(copies[side], { decibels: app.gainOf([a, b][side]) });
  const answer = (said) => {
    app.player.stop();
    set({ right: right + (said === isA), done: done + 1, isA: draw(), copies });
  };
  const keys = {
    x: () => play(isA ? 0 : 1), a: () => play(0), b: () => play(1), 1: () => answer(true), 2: () => answer(false),
  };
  useKeys(app, done === TRIALS ? null : keys);
  const button = (key, title, kind) => html`<button class=${kind} aria-keyshortcuts=${key} onClick=${keys[key]}>${title}</button>`;
  if (done === TRIALS) {
    return html`
      <p role="status" class="result"><b>${right} of ${TRIALS} right.</b> ${verdict(right)}</p>
      <button onClick=${() => set({ right: 0, done: 0, isA: draw(), copies })}>Once more</button>`;
  }
  return html`
    <p role="status">Number ${done + 1} of ${TRIALS}: is X the same as A or as B?</p>
    <p class="actions">${button("x", "Play X")} ${button("a", "Play A", "secondary")} ${button("b", "Play B", "secondary")}</p>
    <p class="actions">${button("1", "X is A", "secondary")} ${button("2", "X is B", "secondary")}</p>
    <p class="note">Keys: A, B and X play; 1 and 2 answer.</p>`;
}

function verdict(right) {
  const chance = chanceOf(right);
  const guessing = `By guessing one gets as many in ${(100 * chance).toFixed(chance < 0.1 ? 1 : 0)} % of tests`;
  return `${guessing}: ${chance <= 0.055 ? "you do hear a difference." : "no difference was shown."}`;
}

/** Return the chance that a guess gets at least so many of the trials right. */
function chanceOf(right) {
  let [ways, sum] = [1, 0]; // of n out of TRIALS, n from TRIALS down
  for (let n = TRIALS; n >= right; n--) [sum, ways] = [sum + ways, (ways * n) / (TRIALS - n + 1)];
  return sum / 2 ** TRIALS;
}
