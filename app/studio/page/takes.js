/** The right side: takes, the newest first, and two of them side by side. */

import { later } from "./parts.js";

const html = htm.bind(preact.h);

const TakeView = later(() => import("./lanes.js"), "TakeView");
const Compare = later(() => import("./compare.js"), "Compare");

export function TakesPane({ app }) {
  const { takes, a, b, service } = app.state;
  const pair = a && b && app.take(a) && app.take(b);
  if (!takes.length) {
    return html`<p class="empty">No takes yet. ${service ? html`Press <b>Speak</b>: what every token was drawn from
      appears here.` : ""}</p>`;
  }
  return html`
    ${pair && html`<${Compare} app=${app} key=${`${a} ${b}`} />`}
    <ol class="takes" aria-label="Takes">
      ${takes.map((take) => html`<${Take} key=${take.key} app=${app} take=${take} />`)}
    </ol>`;
}

/** One line of what a take was made of. */
export function madeOf(take) {
  const { input: _, voice, preset, continue_from: from, ...knobs } = take.body;
  const set = Object.entries(knobs).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return [voice, preset, ...(from ? ["goes on"] : []), ...set].filter(Boolean).join(" · ");
}

function Take({ app, take }) {
  const { open, a, b } = app.state;
  const { sound, report, outcome, number } = take;
  const isOpen = open === take.key;
  const playing = sound && app.player.sound === sound;
  const mark = (side) => {
    const chosen = { a, b, [side]: app.state[side] === take.key ? null : take.key };
    if (chosen[side] && chosen.a === chosen.b) chosen[side === "a" ? "b" : "a"] = null;
    app.set({ ...chosen, open: chosen.a && chosen.b ? null : open }); // side by side they are above
  };
  const seed = report?.request.params.seed ?? take.seed;
  return html`
    <li class="take ${isOpen ? "open" : ""}" data-take=${number} data-outcome=${outcome}>
      <div class="head">
        <button class="play" disabled=${!sound?.length} aria-label="${playing ? "Pause" : "Play"} take ${number}"
          onClick=${() => app.toggle(take)}>${playing ? "❚❚" : "▶"}</button>
        <button class="title plain" aria-expanded=${isOpen}
          onClick=${() => app.set({ open: isOpen ? null : take.key })}>
          <b>${number}</b>
          <span class="said">${take.body.input}</span>
          <small>${madeOf(take) || "as the preset says"}</small>
        </button>
        <span class="sides">
          ${["a", "b"].map((side) => html`
            <button class="side ${side}" aria-pressed=${(side === "a" ? a : b) === take.key}
              aria-label="Take ${number} is ${side.toUpperCase()}" onClick=${() => mark(side)}>${side.toUpperCase()}</button>`)}
        </span>
      </div>
      ${isOpen && html`
        <p class="facts">
          ${sound && html`<span>${sound.seconds.toFixed(2)} s</span>`}
          <span class="outcome">${outcome === "done" ? report?.finish_reason ?? "…" : outcome}</span>
          ${seed !== undefined && html`<button class="plain" title="Speak with this seed from now on"
            onClick=${() => app.edit({ knobs: { ...app.state.knobs, seed: BigInt(seed) } })}>seed ${String(seed)}</button>`}
          ${take.lufs != null && html`<span>${take.lufs.toFixed(1)} LUFS</span>`}
          ${take.firstSoundMs && html`<span class="first" title="From the click to the first sample">first sound ${Math.round(take.firstSoundMs)} ms</span>`}
          ${take.gaps > 0 && html`<span class="gaps">${take.gaps} ${take.gaps === 1 ? "gap" : "gaps"}, ${Math.round(take.gapMs)} ms</span>`}
        </p>
        ${sound && html`<${TakeView} app=${app} take=${take} />`}
        <p class="actions">
          <button class="secondary" onClick=${() => app.restore(take)}>Use its request</button>
          <button class="secondary" onClick=${() => app.takeAway(take)}>Take away</button>
          <button class="secondary" onClick=${() => app.drop(take)}>Delete</button>
        </p>`}
    </li>`;
}
