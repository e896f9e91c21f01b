/**
 * The API as the page uses it: requests with a key, JSON, the schema of a request, streamed sound.
 *
 * All that the page knows of knobs is read here, from the part of `/openapi.json` that is a request.
 */

const KEY = "valle-serve.key";

/** An answer that is no success. `param` names the field at fault, if there is one. */
export class Refusal extends Error {
  constructor(status, { message, param = null, code = null }) {
    super(message);
    Object.assign(this, { status, param, code });
  }
}

let held = null; // also where nothing may be stored
const stored = (act) => { try { return act(sessionStorage); } catch { return null; } };

export const key = {
  get: () => held ?? stored((store) => store.getItem(KEY)),
  set: (value) => { held = value; stored((store) => store.setItem(KEY, value)); },
  forget: () => { held = null; stored((store) => store.removeItem(KEY)); },
};

/** What the page does when a key is needed (it gives one, or null), and when the service does not answer. */
export const hooks = { keyNeeded: async () => null, away: () => {} };

/** The service does not answer, or broke off. */
export class Away extends Error {
  message = `The service at ${location.host} does not answer. Trying again.`;
}

/** Return what a promise of the network gives. */
async function answered(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    hooks.away();
    throw new Away();
  }
}

// Integers beyond 2^53, such as seeds, are BigInts here; JSON itself has no limit.
const LONG_INTEGER = /[:,[]\s*-?\d{16,}\s*[,}\]]/;

/** Return the value of a JSON text. */
export function parse(text) {
  if (!LONG_INTEGER.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) => {
    const long = typeof value === "number" && !Number.isSafeInteger(value);
    return long && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value;
  });
}

/** Return a value as JSON. */
export function stringify(value) {
  const marked = (_, inner) => (typeof inner === "bigint" ? `\uE000${inner}\uE000` : inner);
  return JSON.stringify(value, marked)?.replace(/"\uE000(-?\d+)\uE000"/g, "$1");
}

/**
 * Return the response of the API.
 *
 * @throws {Refusal} It is an error.
 * @throws {Away} There is none.
 */
export async function call(path, { headers = {}, ...options } = {}) {
  for (;;) {
    const used = key.get();
    const sent = used ? { ...headers, authorization: `Bearer ${used}` } : headers;
    const response = await answered(fetch(path, { ...options, headers: sent }));
    if (response.ok) return response;
    if (response.status !== 401 || !(await otherKey(used))) throw await refusalOf(response);
  }
}

let asking = null;

/** Return whether there is another key than one that was refused; several requests ask once. */
async function otherKey(refused) {
  if (key.get() !== refused) return true;
  asking ??= hooks.keyNeeded().finally(() => { asking = null; });
  const given = await asking;
  if (given) key.set(given);
  return Boolean(given);
}

async function refusalOf(response) {
  const text = await response.text();
  try {
    return new Refusal(response.status, JSON.parse(text).error);
  } catch {
    return new Refusal(response.status, { message: `status ${response.status}: ${text.slice(0, 200)}` });
  }
}

export async function getJson(path) {
  return parse(await (await call(path)).text());
}

export function postJson(path, body, options = {}) {
  const headers = { "content-type": "application/json" };
  return call(path, { ...options, method: "POST", headers, body: stringify(body) });
}

/** Fields that have a place of their own in the page, or mean nothing there. */
const PLACED = new Set([
  "input", "voice", "preset", "model", "instructions", "response_format", "stream",
  "stream_format", "trace", "timestamps", "continue_from",
]);

/**
 * Return the fields of a request that are controls, each with its `kind`: `number`, `digits`, `choice`, `switch` or `json`;
 * and which of them change how a text is read.
 */
export async function readService() {
  const answer = await answered(fetch("studio/knobs.json")); // no key: it is the page's own, and under way already
  if (!answer.ok) throw await refusalOf(answer);
  const { properties, phonemes } = parse(await answer.text());
  const fields = Object.entries(properties)
    .filter(([name]) => !PLACED.has(name))
    .map(([name, property]) => fieldOf(name, property));
  const preset = fieldOf("preset", properties.preset);
  return { fields, preset, read: new Set(phonemes), byName: new Map([preset, ...fields].map((field) => [field.name, field])) };
}

function fieldOf(name, property) {
  const choices = (property.anyOf ?? [property]).filter(({ type }) => type !== "null");
  const { enum: options, type, ...bounds } = { ...property, ...choices[0] };
  const { heading = "Request", needs = [], unit = "", synonyms = "", slider = true, bottom, top, step, ...ui } = property["x-ui"] ?? {};
  return {
    ...{ name, options, needs, unit, synonyms, slider, ...ui },
    kind: kindOf(choices.length, options, type, bounds),
    help: property.description ?? "",
    group: heading,
    fallback: property.default ?? null,
    words: choices.some((choice) => choice.type === "string"),
    suggestions: choices.flatMap((choice) => choice.enum ?? []),
    low: bottom ?? bounds.minimum ?? (bounds.exclusiveMinimum === undefined ? undefined : bounds.exclusiveMinimum + (step ?? 1)),
    // Some bounds are those of the number's type: no slider ends there.
    high: top ?? (bounds.maximum > 2e9 ? undefined : bounds.maximum ?? bounds.exclusiveMaximum),
    step: step ?? (type === "integer" ? 1 : undefined),
  };
}

function kindOf(forms, options, type, bounds) {
  if (forms > 1) return "json";
  if (options) return "choice";
  if (type === "boolean") return "switch";
  if (type === "integer" && bounds.maximum > Number.MAX_SAFE_INTEGER) return "digits";
  if (type === "number" || type === "integer") return "number";
  return "json";
}

/** Speak: yield the samples as they come, in 16 bit; `onHead` is called with the headers before the first of them. */
export async function* spoken(body, { signal, onHead }) {
  const response = await postJson("tts", { ...body, response_format: "pcm", stream: true }, { signal });
  onHead(response.headers);
  const reader = response.body.getReader();
  let odd = new Uint8Array(0);
  for (;;) {
    const { value, done } = await answered(reader.read());
    if (done) return;
    const bytes = new Uint8Array(odd.length + value.length);
    bytes.set(odd);
    bytes.set(value, odd.length);
    const whole = bytes.length & ~1;
    odd = bytes.slice(whole);
    if (whole) yield int16(bytes.buffer, whole);
  }
}

/** Return little-endian 16 bit samples. */
export function int16(buffer, bytes = buffer.byteLength) {
  return new Int16Array(buffer.slice(0, bytes & ~1));
}

/** Return an open WebSocket of the protocol `valle.speech.v1`. */
export function openSocket() {
  const url = new URL("v1/audio/speech/stream", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  url.hash = "";
  const offered = ["valle.speech.v1"];
  if (key.get()) offered.push(`valle.key.${key.get()}`);
  const socket = new WebSocket(url, offered);
  socket.binaryType = "arraybuffer";
  return socket;
}
