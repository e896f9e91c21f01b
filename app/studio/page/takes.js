/** The right side: takes, the newest first, and two of them side by side. */

import { html, later, part, PlayButton, Problem, useEffect, useRedraw, useRef } from "./parts.js";

const TakeView = later("./lanes.js", "TakeView");
const Compare = later("./compare.js", "Compare");
const exporting = () => part("./export.js");

/** How a take ended: in words, and what helps where that was a failure. */
const ENDS = {
  stop: ["complete"],
  cancelled: ["stopped"],
  speaking: ["speaking …"],
  failed: ["broken off", "The service or the connection failed while it spoke. Speak again."],
  error: ["failed", "The service failed while it spoke. Speak again; its log says why."],
  length: ["cut off", "The end of the text was not found in time, so the take may end in babble. Try another seed, a lower liveliness, the preset “stable”, or no length penalty."],
  stuck: ["stuck", "The voice stayed on one sound, so the take was ended. Try another seed, a higher liveliness, or a small repetition penalty."],
  empty: ["nothing said", "A sentence was left out: its end came before its first sound. Try another seed, or words in place of signs."],
};

export function TakesPane({ app }) {
  const { takes, a, b, service, deleted } = app.state;
  const unkept = takes.filter((take) => take.unkept).length;
  return html`
    ${deleted && html`<${Deleted} key=${deleted.key} app=${app} take=${deleted} />`}
    ${!takes.length && html`<p class="empty">No takes yet. ${service && html`Press <b>Speak</b>: the sound appears here, with how each of its tokens was chosen.`}</p>`}
    ${app.pair && html`<${Compare} app=${app} key=${`${a} ${b}`} />`}
    <ol class="takes" aria-label="Takes">
      ${takes.map((take) => html`<${Take} key=${take.key} app=${app} take=${take} />`)}
    </ol>
    ${takes.length > 1 && html`<p class="actions">
      <button class="secondary" onClick=${async () => (await exporting()).saveAll(takes)}>Download all (ZIP)</button>
      ${unkept > 0 && html`<span class="note" role="status">${unkept} older ${unkept === 1 ? "take is" : "takes are"} not kept when this page is closed. A star keeps a take.</span>`}
    </p>`}`;
}

function Deleted({ app, take }) {
  const button = useRef();
  useEffect(() => button.current.focus(), []);
  return html`<p class="note" role="status">Take ${take.number} deleted. <button class="plain" ref=${button} onClick=${() => app.undelete()}>Undo</button></p>`;
}

/** One line of what a take was made of. */
export function settingsOf({ edited, body: { input: _, voice, preset, continue_from: from, ...knobs } }) {
  const set = Object.entries(knobs).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return [voice, preset, ...(from ? ["continued"] : []), ...(edited ? [`codes of ${edited} ${edited === 1 ? "frame" : "frames"} changed`] : []), ...set].filter(Boolean).join(" · ");
}

/** What is known of a take before its first sound: how long it has been waited for, and how long that takes. */
function Waiting({ waiting: { since, seconds, leaving }, number }) {
  const redraw = useRedraw();
  useEffect(() => {
    const ticking = setInterval(redraw, 100);
    return () => clearInterval(ticking);
  }, []);
  const passed = (performance.now() - since) / 1000;
  const late = seconds !== null && passed > 2 * seconds + 2;
  return html`
    <p class="waiting">
      <b role="timer" aria-label="Waiting for take ${number}">${passed.toFixed(1)} s</b>
      <span>waiting for the first sound${seconds !== null && `, expected after about ${seconds < 1 ? "1" : seconds.toFixed(0)} s`}${late ? ": longer than expected" : ""}</span>
      <progress max=${seconds ?? 1} value=${seconds === null ? null : Math.min(passed, seconds)} aria-label="Until the first sound"></progress>
      <button type="button" class="secondary" onClick=${() => leaving.abort()}>Stop</button>
    </p>`;
}

function Take({ app, take }) {
  const { open, a, b } = app.state;
  const { sound, report, outcome, number, starred } = take;
  const isOpen = open === take.key;
  const unheard = take.waiting && !sound?.length;
  const mark = (side) => {
    const chosen = { a, b, [side]: app.state[side] === take.key ? null : take.key };
    if (chosen[side] && chosen.a === chosen.b) chosen[side === "a" ? "b" : "a"] = null;
    app.set({ ...chosen, open: chosen.a && chosen.b ? null : open }); // side by side they are above
  };
  const seed = report?.request.params.seed ?? take.seed;
  const finish = outcome === "done" ? report?.finish_reason ?? (take.reportError ? "stop" : "speaking") : outcome;
  const [end, cure] = ENDS[finish] ?? [finish];
  const download = async (format) => (await exporting()).download(app, take, format);
  return html`
    <li class="take ${isOpen ? "open" : ""}" data-take=${number} data-outcome=${outcome} data-finish=${finish}>
      <div class="head">
        <${PlayButton} playing=${sound && app.player.sound === sound} name="take ${number}" kind=${isOpen ? "" : "secondary"} disabled=${!sound?.length} onClick=${() => app.toggle(take)} />
        <button class="title plain" aria-expanded=${isOpen}
          onClick=${() => app.set({ open: isOpen ? null : take.key })}>
          <b>${number}</b>
          <span class="said">${take.body.input}</span>
          <small>${settingsOf(take)}</small>
        </button>
        <span class="sides">
          ${cure && html`<b class="badge">${end}</b>`}
          <button class="plain" aria-pressed=${Boolean(starred)} aria-label="Keep take ${number}" title="Keep it, however many come after it"
            disabled=${!sound?.finished} onClick=${() => app.star(take)}>${starred ? "★" : "☆"}</button>
          ${["a", "b"].map((side) => html`
            <button class="side ${side}" aria-pressed=${(side === "a" ? a : b) === take.key}
              aria-label="Take ${number} is ${side.toUpperCase()}" onClick=${() => mark(side)}>${side.toUpperCase()}</button>`)}
        </span>
      </div>
      ${unheard && html`<${Waiting} waiting=${take.waiting} number=${number} />`}
      ${isOpen && !unheard && html`
        <p class="facts">
          ${sound?.length > 0 && html`<span>${sound.seconds.toFixed(2)} s</span>`}
          <span class="outcome">${end}</span>
          ${seed !== undefined && html`<button class="plain" title="Use this seed for the next takes"
            onClick=${() => app.edit({ knobs: { ...app.state.knobs, seed: BigInt(seed) } })}>seed ${String(seed)}</button>`}
          ${take.lufs != null && html`<span>${take.lufs.toFixed(1)} LUFS</span>`}
          ${take.firstSoundMs && html`<span class="first" title="From the click to the first sample">first sound ${Math.round(take.firstSoundMs)} ms</span>`}
          ${take.gaps > 0 && html`<span class="gaps">${take.gaps} ${take.gaps === 1 ? "gap" : "gaps"}, ${Math.round(take.gapMs)} ms</span>`}
        </p>
        ${cure && html`<p class="refusal cure">${cure}</p>`}
        ${report?.warnings?.map((warning) => html`<${Problem} kind="note" role="status" text=${warning} />`)}
        <p class="actions">
          ${["WAV", "MP3"].map((format) => html`<button class="secondary" disabled=${!sound?.finished || !sound.length || (format === "MP3" && !take.id)} onClick=${() => download(format)}>Download ${format}</button>`)}
          <button class="secondary" onClick=${() => app.restore(take.body)}>Use these settings</button>
          <button class="secondary" onClick=${() => app.show("export", take)}>Export</button>
          <button class="secondary" disabled=${Boolean(take.waiting)} onClick=${() => app.delete(take)}>Delete</button>
        </p>
        ${sound?.length > 0 && html`<${TakeView} app=${app} take=${take} />`}`}
    </li>`;
}
