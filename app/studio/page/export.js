/** Export: a request as a command, a program or a link; takes as files. */

import { Dialog, html, part, useRef, useState } from "./parts.js";
import { bodyOf } from "./request.js";
import { wav } from "./sound.js";
import { call, key, stringify } from "./wire.js";

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const origin = () => new URL(".", location.href).href.replace(/\/$/, "");

function curlOf(body) {
  const headers = ["-H 'content-type: application/json'", ...(key.get() ? ['-H "authorization: Bearer $KEY"'] : [])];
  return `curl -s ${origin()}/tts ${headers.join(" ")} \\\n  -d ${quoted(stringify(body))} -o speech.wav`;
}

/** Return a value as Python writes it. */
const python = (value) => stringify(value).replace(/"(?:[^"\\]|\\.)*"|true|false|null/g, (word) => ({ true: "True", false: "False", null: "None" })[word] ?? word);

function pythonOf({ input, voice = "default", ...rest }) {
  const more = Object.keys(rest).length ? `\n    extra_body=${python(rest)},` : "";
  return `${key.get() ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${stringify(`${origin()}/v1`)}, api_key=${key.get() ? 'os.environ["KEY"]' : '"none"'})
speech = client.audio.speech.create(
    model="tts-1",
    voice=${stringify(voice)},
    input=${stringify(input)},
    response_format="wav",${more}
)
speech.write_to_file("speech.wav")
`;
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

function linkOf(body) {
  const url = new URL(location.href);
  url.hash = encodeURIComponent(stringify(body));
  return url.href;
}

const WAYS = { curl: curlOf, Python: pythonOf, "Command line": commandOf, Link: linkOf };

export function ExportDialog({ app, subject: take }) {
  const seed = take?.report?.request.params.seed ?? take?.seed;
  const repeated = take && seed !== undefined ? { ...take.body, seed: BigInt(seed) } : take?.body;
  const body = repeated ?? bodyOf(app.state);
  return html`
    <${Dialog} title=${take ? `Take ${take.number}` : "The request"} onClose=${() => app.show(null)}>
      ${take && html`<p class="note">With its seed: the same speech again.</p>`}
      ${Object.entries(WAYS).map(([name, write]) => html`<${Way} key=${name} app=${app} name=${name} text=${write(body)} />`)}
      ${take?.report && html`<p class="actions"><button onClick=${() => download(app, take, "JSON")}>JSON with its trace</button></p>`}
    </${Dialog}>`;
}

function Way({ app, name, text }) {
  const [copied, setCopied] = useState(false);
  const shown = useRef();
  const copy = async () => {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else { // over plain HTTP there is no clipboard but that of a selection
      getSelection().selectAllChildren(shown.current);
      document.execCommand("copy");
    }
    setCopied(true);
    app.say(`${name} copied`);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`
    <section data-way=${name}>
      <div class="bar"><h3>${name}</h3><button class="secondary" aria-label="Copy ${name}" onClick=${copy}>${copied ? "Copied" : "Copy"}</button></div>
      <pre tabindex="0" ref=${shown}>${text}</pre>
    </section>`;
}

const MADE = {
  WAV: (take) => wav(take.sound),
  JSON: (take) => new Blob([stringify(take.report)], { type: "application/json" }),
  MP3: async ({ id }) => (await call(`v1/audio/speech/${encodeURIComponent(id)}/audio?response_format=mp3`)).blob(),
};

/** Save a take as a file; MP3 is made by the service, as long as it remembers the take. */
export async function download(app, take, format) {
  try {
    save(await MADE[format](take), `take-${take.number}.${format.toLowerCase()}`);
  } catch (error) {
    app.refuse(error.status === 404 ? new Error("The service has forgotten this take. Download it as WAV, or use its settings to speak it again.") : error);
  }
}

/** Save takes as one ZIP: the sound of each, and its report where there is one. */
export async function saveAll(takes) {
  const files = {};
  for (const take of takes.filter(({ sound }) => sound?.length)) {
    for (const format of take.report ? ["WAV", "JSON"] : ["WAV"]) {
      const content = new Uint8Array(await MADE[format](take).arrayBuffer());
      files[`take-${take.number}.${format.toLowerCase()}`] = [content, { level: format === "WAV" ? 0 : 6 }]; // sound hardly shrinks
    }
  }
  await part("./zip.js");
  save(new Blob([fflate.zipSync(files)], { type: "application/zip" }), "takes.zip");
}

export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
