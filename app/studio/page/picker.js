/** Who speaks: the voices, each with a recording to listen to. */

import { html, PlayButton, Problem } from "./parts.js";

/** Return who a voice is, in words. */
function personOf({ accent, gender, kind, language }) {
  const person = [accent, { female: "woman", male: "man" }[gender]].filter(Boolean).join(" ");
  return [person, kind === "own" && "yours", language && language !== "en" && language].filter(Boolean).join(", ");
}

/** The default voice first, then one's own. A choice of the default names no voice in the request. */
export function VoicePicker({ app }) {
  const { voices, voice, refusals } = app.state;
  const rank = ({ is_default: usual, kind }) => (usual ? 0 : kind === "own" ? 1 : 2);
  const shown = voices.filter(({ alias_of: alias, damaged, id }) => !damaged && (!alias || id === voice))
    .sort((one, other) => rank(one) - rank(other));
  const missing = voices.length > 0 && voice && voice !== "default" && !shown.some(({ id }) => id === voice);
  return html`
    <fieldset class="voices" aria-describedby=${refusals.voice ? "refused-voice" : null}>
      <legend>Voice</legend>
      <div class="chips">
        ${shown.map((one) => html`<${Chip} key=${one.id} app=${app} one=${one} />`)}
        ${missing && html`<${Chip} app=${app} one=${{ id: voice, name: voice, missing }} />`}
        <button type="button" class="secondary" title="Add a voice from a recording, or delete one" onClick=${() => app.show("voices")}>+ Clone</button>
      </div>
      ${refusals.voice && html`<${Problem} text=${refusals.voice} id="refused-voice" />`}
    </fieldset>`;
}

function Chip({ app, one }) {
  const { id, name, is_default: usual, missing } = one;
  const chosen = usual ? [null, "default", id].includes(app.state.voice) : app.state.voice === id;
  const playing = app.player.sound && app.player.sound === app.samples[id];
  return html`
    <span class="chip ${chosen ? "chosen" : ""}" data-voice=${id}>
      ${!missing && html`<${PlayButton} playing=${playing} name="a recording of ${name}" tabindex=${chosen ? null : -1} onClick=${() => app.listen(id)} />`}
      <label><input type="radio" name="voice" value=${id} checked=${chosen} onChange=${() => app.edit({ voice: usual ? null : id })} />
        <b>${name}</b>${" "}<small>${missing ? "not here" : personOf(one)}</small></label>
    </span>`;
}
