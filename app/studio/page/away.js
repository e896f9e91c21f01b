/** Take away: a request as a command, a program or a link; a take as a file. */

import { Dialog } from "./parts.js";
import { bodyOf } from "./request.js";
import { wav } from "./sound.js";
import { key, stringify } from "./wire.js";

const html = htm.bind(preact.h);
const { useState } = preactHooks;

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const origin = () => new URL(".", location.href).href.replace(/\/$/, "");

function curlOf(body) {
  const headers = ["-H 'content-type: application/json'", ...(key.get() ? ['-H "authorization: Bearer $KEY"'] : [])];
  return `curl -s ${origin()}/tts ${headers.join(" ")} \\\n  -d ${quoted(stringify(body))} -o speech.wav`;
}

function pythonOf({ input, voice = "default", ...rest }) {
  const value = (inner) => {
    if (inner === true) return "True";
    if (inner === false) return "False";
    if (inner === null) return "None";
    if (Array.isArray(inner)) return `[${inner.map(value).join(", ")}]`;
    if (typeof inner === "object") return `{${Object.entries(inner).map(([name, each]) => `${stringify(name)}: ${value(each)}`).join(", ")}}`;
    return stringify(inner);
  };
  const more = Object.keys(rest).length ? `\n    extra_body=${value(rest)},` : "";
  return `from openai import OpenAI

client = OpenAI(base_url=${stringify(`${origin()}/v1`)}, api_key=${key.get() ? 'os.environ["KEY"]' : '"none"'})
speech = client.audio.speech.create(
    model="tts-1",
    voice=${stringify(voice)},
    input=${stringify(input)},
    response_format="wav",${more}
)
speech.write_to_file("speech.wav")
`.replace(/^/, key.get() ? "import os\n\n" : "");
}

function commandOf({ input, continue_from: _, ...rest }) {
  const flags = Object.entries(rest).map(([name, value]) => {
    const flag = name.replaceAll("_", "-");
    if (typeof value === "boolean") return value ? `--${flag}` : `--no-${flag}`;
    const text = typeof value === "string" ? value : stringify(value);
    return `--${flag} ${/^[\w.+-]+$/.test(text) ? text : quoted(text)}`;
  });
  return ["valle-serve speak", quoted(input), ...flags, "-o speech.wav"].join(" ");
}

export function linkOf(body) {
  const url = new URL(location.href);
  url.hash = encodeURIComponent(stringify(body));
  return url.href;
}

const WAYS = { curl: curlOf, Python: pythonOf, "Command line": commandOf, Link: linkOf };

export function AwayDialog({ app, subject: take }) {
  const seed = take?.report?.request.params.seed ?? take?.seed;
  const repeated = take && seed !== undefined ? { ...take.body, seed: BigInt(seed) } : take?.body;
  const body = repeated ?? bodyOf(app.state);
  return html`
    <${Dialog} title=${take ? `Take ${take.number}` : "The request"} onClose=${() => app.show(null)}>
      ${take && html`<p class="note">With its seed: the same speech again.</p>`}
      ${Object.entries(WAYS).map(([name, write]) => html`<${Way} key=${name} app=${app} name=${name} text=${write(body)} />`)}
      ${take?.sound && html`<p class="actions">
        <button onClick=${() => save(wav(take.sound), `take-${take.number}.wav`)}>WAV</button>
        <button disabled=${!take.report} onClick=${() => save(new Blob([stringify(take.report)], { type: "application/json" }), `take-${take.number}.json`)}>
          JSON with its trace</button>
      </p>`}
    </${Dialog}>`;
}

function Way({ app, name, text }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await put(text);
    setCopied(true);
    app.tell(`${name} copied`);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`
    <section data-way=${name}>
      <div class="bar"><h3>${name}</h3><button class="secondary" aria-label="Copy ${name}" onClick=${copy}>${copied ? "Copied" : "Copy"}</button></div>
      <pre tabindex="0">${text}</pre>
    </section>`;
}

/** Copy a text; pages that came over plain HTTP have no clipboard but that of a selection. */
async function put(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  return undefined;
}

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
