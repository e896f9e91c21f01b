/** Sound: samples that may still grow, playing them from any place, and their loudness. */

const LEAD_S = 0.02; // between now and the first sample that is scheduled
const LATE_S = 0.005;

/**
 * Return the time of a sample. It is a hair after it: `n / rate` may be rounded to a hair before, where Chromium would
 * interpolate between two samples, while it rounds times to 1/1024 of a sample.
 */
export const timeOf = (sample, rate) => (sample + 2 ** -13) / rate;

let context = null;

/** Return the audio context of a sampling rate. Call it in answer to a click or a key first. */
export function audio(rate = 24000) {
  if (context?.sampleRate !== rate) {
    context?.close();
    // The rate of the samples: what is played is what was sent, with no resampling in the page.
    context = new AudioContext({ sampleRate: rate, latencyHint: "interactive" });
  }
  if (context.state === "suspended") context.resume();
  return context;
}

/** Return the samples of an audio file: its first channel, in 16 bit. */
export async function decoded(blob) {
  const file = await audio().decodeAudioData(await blob.arrayBuffer());
  const samples = Int16Array.from(file.getChannelData(0), (value) => Math.max(-32768, Math.min(32767, Math.round(32768 * value))));
  return { samples, rate: file.sampleRate };
}

/** Mono samples of 16 bit that grow until `finish`. */
export class Sound {
  constructor(rate) {
    this.rate = rate;
    this.length = 0;
    this.peak = 0;
    this.finished = false;
    this.onGrowth = new Set();
    this.buffer = new Int16Array(rate);
  }

  static of(samples, rate) {
    const sound = new Sound(rate);
    sound.push(samples);
    sound.finish();
    return sound;
  }

  get samples() {
    return this.buffer.subarray(0, this.length);
  }

  get seconds() {
    return this.length / this.rate;
  }

  push(samples) {
    if (this.length + samples.length > this.buffer.length) {
      const larger = new Int16Array(2 * (this.length + samples.length));
      larger.set(this.samples);
      this.buffer = larger;
    }
    this.buffer.set(samples, this.length);
    this.length += samples.length;
    this.peak = samples.reduce((most, value) => Math.max(most, Math.abs(value)), this.peak);
    this.#tell();
  }

  finish() {
    this.finished = true;
    this.#tell();
  }

  #tell() {
    for (const listener of [...this.onGrowth]) listener();
  }
}

/**
 * Plays one sound at a time. What grows is scheduled as it comes: buffers that follow one another
 * to the sample, which needs no secure context, unlike an AudioWorklet.
 */
export class Player {
  sound = null;
  onChange = () => {};

  /** Play a sound from `at` seconds on, louder by `decibels`, in place of what is playing; `since` is when the click was, for `firstSoundMs`. */
  play(sound, { at = 0, decibels = 0, since = performance.now() } = {}) {
    this.stop();
    this.context = audio(sound.rate);
    this.gain = new GainNode(this.context, { gain: 10 ** (decibels / 20) });
    this.gain.connect(this.context.destination);
    Object.assign(this, { sound, since, firstSoundMs: null, gaps: 0, gapMs: 0 });
    this.parts = []; // { when, from, to }: seconds of the context, samples of the sound
    this.from = Math.min(Math.round(at * sound.rate), sound.length);
    this.to = this.from;
    this.next = 0;
    this.nodes = new Set();
    this.grow = () => this.#schedule();
    sound.onGrowth.add(this.grow);
    this.#schedule();
    this.onChange();
  }

  stop() {
    if (!this.sound) return;
    this.sound.onGrowth.delete(this.grow);
    this.sound = null;
    this.gain.disconnect();
    for (const node of this.nodes) node.onended = null;
    for (const node of this.nodes) node.stop();
    this.onChange();
  }

  /** Seconds of the sound that are being heard, or null. */
  get position() {
    if (!this.sound) return null;
    const now = this.context.currentTime - (this.context.outputLatency || 0);
    const part = this.parts.findLast(({ when }) => when <= now) ?? this.parts[0];
    if (!part) return this.from / this.sound.rate;
    const inside = Math.max(0, now - part.when) * this.sound.rate;
    return Math.min(part.from + inside, part.to) / this.sound.rate;
  }

  /** Seconds that are scheduled and not yet heard. */
  get aheadS() {
    return this.sound ? Math.max(0, this.next - this.context.currentTime) : 0;
  }

  #schedule() {
    const { sound, context } = this;
    if (sound.length > this.to) {
      const samples = Float32Array.from(sound.samples.subarray(this.to), (value) => value / 32768);
      const buffer = context.createBuffer(1, samples.length, sound.rate);
      buffer.copyToChannel(samples, 0);
      const node = new AudioBufferSourceNode(context, { buffer });
      node.connect(this.gain);
      node.onended = () => this.#ended(node);
      // The time is read last: a long sound takes a while to copy.
      if (this.next < context.currentTime + LATE_S) this.#restart(context.currentTime);
      node.start(this.next);
      this.nodes.add(node);
      this.parts.push({ when: this.next, from: this.to, to: sound.length });
      this.next = timeOf(Math.round(this.next * sound.rate + samples.length), sound.rate);
      this.to = sound.length;
    }
    if (sound.finished && this.nodes.size === 0) this.stop();
  }

  /** Begin, or go on after the samples came too late. */
  #restart(now) {
    const when = timeOf(Math.ceil((now + LEAD_S) * this.sound.rate), this.sound.rate);
    if (this.firstSoundMs === null) {
      this.firstSoundMs = performance.now() - this.since + 1000 * LEAD_S;
    } else {
      this.gaps += 1;
      this.gapMs += 1000 * (when - this.next);
    }
    this.next = when;
  }

  #ended(node) {
    this.nodes.delete(node);
    if (this.sound?.finished && this.nodes.size === 0) this.stop();
  }
}

/** Return a WAV file: RIFF, its length, WAVE, fmt, mono PCM of 16 bit, data. */
export function wav({ samples, rate }) {
  const bytes = 2 * samples.length;
  const head = Uint32Array.of(0x46464952, 36 + bytes, 0x45564157, 0x20746d66, 16, 0x10001, rate, 2 * rate, 0x100002, 0x61746164, bytes);
  return new Blob([head, samples], { type: "audio/wav" });
}

/**
 * Return the integrated loudness by ITU-R BS.1770-4 in LUFS; null of silence and of less than 0.4 s.
 * The filters' analogue values are those of the recommendation, mapped to the rate as libebur128 does.
 */
export function loudness({ samples, rate }) {
  const weighted = biquad(biquad(Float64Array.from(samples, (v) => v / 32768), shelf(rate)), highPass(rate));
  const hop = Math.round(0.1 * rate);
  const sums = Array.from({ length: Math.floor(weighted.length / hop) }, (_, n) =>
    weighted.subarray(n * hop, (n + 1) * hop).reduce((sum, value) => sum + value * value, 0));
  const powers = sums.slice(3).map((last, n) => (sums[n] + sums[n + 1] + sums[n + 2] + last) / (4 * hop));
  const decibels = (power) => -0.691 + 10 * Math.log10(power);
  const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
  const heard = powers.filter((power) => decibels(power) > -70);
  if (!heard.length) return null;
  const gate = decibels(mean(heard)) - 10;
  return decibels(mean(heard.filter((power) => decibels(power) > gate)));
}

function shelf(rate) {
  const k = Math.tan((Math.PI * 1681.974450955533) / rate);
  const [q, high] = [0.7071752369554196, 10 ** (3.999843853973347 / 20)];
  const band = high ** 0.4996667741545416;
  const scale = 1 + k / q + k * k;
  return {
    b: [(high + (band * k) / q + k * k) / scale, (2 * (k * k - high)) / scale, (high - (band * k) / q + k * k) / scale],
    a: [(2 * (k * k - 1)) / scale, (1 - k / q + k * k) / scale],
  };
}

function highPass(rate) {
  const k = Math.tan((Math.PI * 38.13547087602444) / rate);
  const q = 0.5003270373238773;
  const scale = 1 + k / q + k * k;
  return { b: [1, -2, 1], a: [(2 * (k * k - 1)) / scale, (1 - k / q + k * k) / scale] };
}

function biquad(signal, { b, a }) {
  let [x1, x2, y1, y2] = [0, 0, 0, 0];
  return signal.map((x) => {
    const y = b[0] * x + b[1] * x1 + b[2] * x2 - a[0] * y1 - a[1] * y2;
    [x2, x1, y2, y1] = [x1, x, y1, y];
    return y;
  });
}
