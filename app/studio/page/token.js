/** The token at a place of a take: the codes that it was drawn from, its record, and its codes, which can be changed. */

import { html, short } from "./parts.js";
import { decoded, Sound } from "./sound.js";
import { postJson } from "./wire.js";

export function Token({ app, take, open, place: { utterance, frame }, seconds }) {
  const token = utterance.tokens[frame];
  const codes = utterance.codes[frame] ?? [];
  return html`
    <details class="token" open=${open}>
      <summary>utterance ${utterance.number + 1}, frame ${frame} <small>${seconds.toFixed(3)} s · codes ${codes.join(" ")}</small></summary>
      ${take.report && codes.length > 0 && html`<${Codes} app=${app} take=${take} place=${`${utterance.number}/${frame}`} codes=${codes} />`}
      ${token?.top_logprobs && html`<${Likeliest} take=${take} token=${token} />`}
      ${token && html`<dl>${Object.entries(token).filter(([, value]) => value !== null && typeof value !== "object").map(([name, value]) => html`
        <div><dt>${name}</dt><dd>${typeof value === "number" ? short(value) : String(value)}</dd></div>`)}</dl>`}
    </details>`;
}

/** The likeliest codes before and after the processors, and by how many nats each processor moved them. */
function Likeliest({ take, token }) {
  const codes = [...new Map([...token.top_logprobs, ...token.top_scores].map((one) => [one.code, one])).values()];
  const names = [...new Set(codes.flatMap(({ effects }) => Object.keys(effects)))];
  const moved = (nats) => (nats === undefined ? "" : nats === null ? "out" : `${nats > 0 ? "+" : "−"}${Math.abs(nats).toFixed(2)}`);
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label="The likeliest codes of take ${take.number}">
      <table class="made likeliest">
        <thead><tr><th scope="col">code</th><th scope="col">model</th>
          ${names.map((name) => html`<th scope="col" title="nats">${name.replaceAll("_", " ")}</th>`)}<th scope="col">drawn from</th></tr></thead>
        <tbody>${codes.map((one) => html`<tr class=${one.code === token.code ? "drawn" : ""} data-code=${one.code}>
          <th scope="row">${one.code}${one.code === token.code && " (drawn)"}</th>
          <td><${Bar} nats=${one.logprob} /></td>
          ${names.map((name) => html`<td>${moved(one.effects[name])}</td>`)}
          <td><${Bar} nats=${one.score} /></td></tr>`)}</tbody>
      </table>
    </div>`;
}

function Bar({ nats }) {
  const percent = nats === null ? 0 : 100 * Math.exp(nats);
  return html`<span class="share"><i style=${{ width: `${percent}%` }}></i></span>${nats === null ? "out" : `${percent.toFixed(1)} %`}`;
}

/** The codes of a frame, by level; what was changed of a take becomes another take. */
function Codes({ app, take, place, codes }) {
  const changes = take.changes ?? {};
  const count = Object.keys(changes).length;
  const shown = changes[place] ?? codes;
  const change = (to) => { take.changes = to; app.onChange(); };
  return html`
    <form class="codes" aria-label="Codes of a frame of take ${take.number}" onSubmit=${(event) => { event.preventDefault(); hear(app, take); }}>
      ${shown.map((code, level) => html`<input type="number" min="0" aria-label="Code of level ${level}" value=${code}
        onInput=${({ target }) => target.value !== "" && change({ ...changes, [place]: shown.with(level, Number(target.value)) })} />`)}
      <button type="submit" class="secondary" disabled=${!count}>Hear the changed codes</button>
      ${count > 0 && html`<button type="button" class="plain" onClick=${() => change({})}>Undo ${count} ${count === 1 ? "frame" : "frames"}</button>`}
    </form>`;
}

/** Have the changed codes of a take decoded: another take, with the trace of this one. */
async function hear(app, take) {
  const utterances = take.report.utterances.map((one, number) => ({ ...one, codes: one.codes.map((codes, frame) => take.changes[`${number}/${frame}`] ?? codes) }));
  const origin = take.origin ?? take.id;
  try {
    const answer = await postJson(`v1/audio/speech/${encodeURIComponent(origin)}/audio`, { utterances: utterances.map(({ codes }) => codes) });
    const { samples, rate } = await decoded(await answer.blob());
    const edited = Object.keys(take.changes).length + (take.edited ?? 0);
    const made = { ...app.newTake(take.body), origin, edited, sound: Sound.of(samples, rate), outcome: "done", lufs: take.lufs, report: { ...take.report, utterances } };
    take.changes = {};
    app.add(made);
    app.play(made);
    await app.keep(made);
  } catch (error) {
    app.refuse(error);
  }
}
