/** How a text will be read: its words as they are written out, and their phonemes. */

import { keep, kept } from "./draft.js";
import { Fold, html, Problem, useEffect, useState } from "./parts.js";
import { parse, postJson, stringify } from "./wire.js";

const PHONEMES = "phonemes";

/** What the service will read, asked of it when the typing pauses. */
export function Reading({ app }) {
  const { text, voice, knobs, away, service } = app.state;
  const [read, setRead] = useState(null);
  const [phonemes, setPhonemes] = useState(kept(PHONEMES) === "shown");
  const body = stringify({ input: text, ...(voice && { voice }), ...Object.fromEntries(Object.entries(knobs).filter(([name]) => service.read.has(name))) });
  useEffect(() => {
    const leaving = new AbortController();
    const asking = setTimeout(async () => {
      try {
        const answer = await postJson("v1/audio/phonemes", parse(body), { signal: leaving.signal });
        setRead(parse(await answer.text()));
      } catch {
        setRead(null); // a text that cannot be read is refused when it is spoken
      }
    }, 400);
    return () => { clearTimeout(asking); leaving.abort(); };
  }, [body, away]);
  const { utterances: shown, warnings } = (text.trim() && read) || { utterances: [], warnings: [] };
  const toggled = ({ target }) => {
    keep(PHONEMES, target.checked ? "shown" : "");
    setPhonemes(target.checked);
  };
  return html`
    ${warnings.map((warning) => html`<${Problem} kind="note" role="status" text=${warning} />`)}
    <${Fold} app=${app} name="reading" title="How it will be read" kind="reading" first=${app.state.knobsOpen}>
      <ol tabindex="0" aria-label="How it will be read">${shown.map((one) => html`
        <li><span class="said">${one.text || "(a pause)"}</span>
          ${directionsOf(one) && html`<small>${directionsOf(one)}</small>`}
          ${phonemes && html`<span class="ipa" lang="und-fonipa">${one.phonemes}</span>`}</li>`)}</ol>
      <label><input type="checkbox" role="switch" checked=${phonemes} onChange=${toggled} /> Phonemes</label>
    </${Fold}>`;
}

/** Return what the markup of a text says of an utterance, beside its words. */
function directionsOf({ voice, rate = 1, pause_after_s: pause = null }) {
  return [voice, rate !== 1 && `${rate}×`, pause !== null && `pause ${pause} s`].filter(Boolean).join(" · ");
}
