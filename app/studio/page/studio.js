/** The state of the studio, and all that can be done to it. */

import { byLink, draft, keep, keepDraft, kept } from "./draft.js";
import { later, part, pause } from "./parts.js";
import { bodyOf, EXAMPLES, refusalsOf, stateOf } from "./request.js";
import { audio, decoded, loudness, Player, Sound } from "./sound.js";
import { Away, call, getJson, hooks, key, parse, Refusal, readService, spoken, stringify } from "./wire.js";

const store = () => part("./store.js");

const EXAMPLE = "Hello there. This voice was trained from scratch, on two processor cores.";

/** The state of the page and what changes it. Every change draws the page anew. */
export class Studio {
  state = {
    service: null, voices: [], presets: [], model: null, waiting: "connecting", away: null,
    text: EXAMPLE, voice: null, knobs: {}, goOn: null, replaced: null, folds: {}, live: "", study: { names: ["", ""], typed: {} },
    search: "", groups: {}, first: new Set(), refusals: {}, notice: null, said: "", knobsOpen: Boolean(kept("knobs")),
    takes: [], open: null, a: null, b: null, deleted: null, speaking: null, tab: "takes", dialog: null, keyAsked: null,
    ...draft(),
  };
  player = new Player();
  samples = {};
  onChange = () => {};
  #connecting = false;

  constructor() {
    this.player.onChange = () => this.onChange();
    hooks.keyNeeded = () => this.#askForKey();
    hooks.away = () => this.connect();
  }

  set = (patch) => {
    const before = this.state;
    this.state = { ...before, ...patch };
    keepDraft(this.state, before);
    this.onChange();
  };

  /** Change the request; what was refused before may be right now. */
  edit = (patch) => {
    const { knobs, refusals } = this.state;
    const unchanged = ([name]) => !(name in patch || (name === "input" && "text" in patch)) && (patch.knobs ?? knobs)[name] === knobs[name];
    this.set({ ...patch, refusals: Object.fromEntries(Object.entries(refusals).filter(unchanged)), notice: null });
  };

  /** Change the request by more than was typed: what it was can be had back. */
  replace = (patch) => {
    const { text, voice, knobs, goOn, replaced } = this.state;
    const textLost = "text" in patch && patch.text !== text && text.trim() && ![EXAMPLE, ...Object.values(EXAMPLES)].includes(text);
    const knobsLost = "knobs" in patch && Object.keys(knobs).length && stringify(patch.knobs) !== stringify(knobs);
    this.edit({ ...patch, replaced: textLost || knobsLost ? { text, voice, knobs, goOn } : replaced });
    this.set(this.settled());
  };

  undoReplace = () => {
    this.edit({ ...this.state.replaced, replaced: null });
    this.set(this.settled());
  };

  /** The changed knobs go first, but only now and then: none may move while it is being changed. */
  settled = () => ({ first: new Set(Object.keys(this.state.knobs)) });

  /** Say something to screen readers. */
  say = (said) => this.set({ said });

  show = (dialog, subject = null) => this.set({ dialog: dialog && { name: dialog, subject } });

  async start() {
    addEventListener("hashchange", () => this.readLink());
    await this.connect();
    later.paths.forEach((path) => (window.requestIdleCallback ?? setTimeout)(() => part(path)));
    await this.#remember();
    if (!kept("keepsTakes") && location.hash.length < 2) await this.speak({ aloud: false }); // a take to begin with
  }

  /** Wait until the service answers and is ready, and read what it offers: at the start, and when it was away. */
  async connect() {
    if (this.#connecting) return;
    this.#connecting = true;
    while (!(await this.#connected())) await pause(1000);
    this.#connecting = false;
  }

  async #connected() {
    try {
      if (!this.state.service) {
        const service = await readService();
        const known = Object.entries(this.state.knobs).filter(([name]) => service.byName.has(name));
        this.set({ service, knobs: Object.fromEntries(known) });
        this.set(this.settled());
        if (byLink()) this.readLink();
      }
      const ready = await fetch("ready");
      if (!ready.ok) {
        this.set({ waiting: (await ready.json()).error.message });
        return false;
      }
      const { model, word_times: wordTimes } = await ready.json();
      const [{ presets }] = await Promise.all([getJson("v1/presets"), this.readVoices()]);
      this.set({ presets, model, wordTimes, waiting: null, away: null });
    } catch (error) {
      if (!(error instanceof Refusal)) {
        this.set({ away: new Away().message });
        return false;
      }
      this.set({ waiting: null, away: null, notice: error.message });
    }
    return true;
  }

  async readVoices() {
    this.set({ voices: (await getJson("v1/audio/voices")).voices });
  }

  /** Play the recording of a voice, or stop it. */
  listen = async (id) => {
    if (this.samples[id] && this.player.sound === this.samples[id]) return this.player.stop();
    audio();
    try {
      const answer = await call(`v1/audio/voices/${encodeURIComponent(id)}/audio`);
      const { samples, rate } = await decoded(await answer.blob());
      this.samples[id] = Sound.of(samples, rate);
      return this.player.play(this.samples[id]);
    } catch (error) {
      return this.refuse(error);
    }
  };

  /** Take the request after the address's # for the page's own. */
  readLink() {
    if (location.hash.length < 2) return;
    try {
      const body = parse(decodeURIComponent(location.hash.slice(1)));
      const { continue_from: from } = body;
      this.restore(body, from ? { from, label: "a take of this link" } : null);
    } catch {
      this.set({ notice: "The link holds no valid request." });
    }
  }

  #askForKey() {
    return new Promise((resolve) => {
      const answered = (given) => { this.set({ keyAsked: null }); resolve(given); };
      this.set({ keyAsked: { answered, known: Boolean(key.get()) } });
    });
  }

  /** Speak what the page shows, as a new take, which is listed at once. */
  speak = async ({ aloud = true } = {}) => {
    if (this.state.speaking || !this.state.service) return;
    const { open } = this.state;
    const since = performance.now();
    const leaving = new AbortController();
    const take = this.newTake(bodyOf(this.state));
    take.waiting = { since, leaving, seconds: null };
    this.add(take);
    if (aloud) {
      audio(); // while the click is fresh: later a browser may refuse to play
      this.set({ speaking: leaving, refusals: {}, notice: null, deleted: null, replaced: null, tab: "takes", ...this.settled() });
      this.say(`Take ${take.number}: waiting for the first sound`);
      this.#reveal(take);
    }
    this.#expect(take, aloud);
    const drop = () => this.set({ takes: this.state.takes.filter((one) => one !== take), open });
    await this.make(take, leaving.signal, () => aloud && this.meter(take, since)).catch((error) => {
      if (error.name === "AbortError") return this.say(`Take ${take.number}: stopped`);
      if (!take.sound?.length) drop();
      return aloud && this.refuse(error);
    });
    delete take.waiting;
    if (aloud) this.set({ speaking: null });
    if (take.sound?.length) await this.finish(take);
  };

  /** Learn how long the first sound of a take will take, and say so where that is long. */
  async #expect(take, aloud) {
    const { first_audio_s: seconds } = await getJson("health").catch(() => ({}));
    if (seconds == null || !take.waiting || take.sound?.length) return;
    take.waiting.seconds = seconds;
    if (aloud) this.say(`Take ${take.number}: the first sound in about ${Math.max(1, Math.round(seconds))} s`);
    this.onChange();
  }

  /** Bring a take in sight where the page is one column. */
  #reveal(take) {
    if (!matchMedia("(max-width: 60rem)").matches) return;
    const smooth = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    requestAnimationFrame(() => requestAnimationFrame(() =>
      document.querySelector(`[data-take="${take.number}"]`)?.scrollIntoView({ behavior: smooth ? "smooth" : "auto" })));
  }

  /** Make the sound of a take; `began` is called when its first samples are near. */
  async make(take, signal, began = () => {}) {
    const onHead = (head) => {
      take.id = head.get("x-request-id");
      take.seed = head.get("x-seed");
      take.sound = new Sound(Number(head.get("x-sample-rate")) || 24000);
      began();
    };
    try {
      for await (const samples of spoken(this.asked(take.body), { signal, onHead })) take.sound.push(samples);
      take.outcome = "done";
    } catch (error) {
      take.outcome = error.name === "AbortError" ? "cancelled" : "failed";
      throw error;
    } finally {
      take.sound?.finish();
    }
  }

  /** Return a request with what the page wants to know of every take. */
  asked(body) {
    return { top_logprobs: 10, ...body, trace: true, ...(this.state.wordTimes && { timestamps: "word" }) };
  }

  newTake(body) {
    const number = 1 + Math.max(0, ...this.state.takes.map((take) => take.number));
    return { key: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, number, created: Date.now(), body, outcome: "speaking" };
  }

  /** Play a take from its beginning while it is made, and note when it was heard and what was late. */
  meter(take, since) {
    this.play(take, { since });
    take.sound.onGrowth.add(() => {
      if (this.player.sound !== take.sound) return;
      take.firstSoundMs = this.player.firstSoundMs;
      [take.gaps, take.gapMs] = [this.player.gaps, this.player.gapMs];
      this.onChange();
    });
  }

  add(take) {
    this.set({ takes: [take, ...this.state.takes], open: take.key });
  }

  /** Show a refusal at the knobs that it is about, else above all of them; `goes`: the focus goes there, too. */
  refuse(error, { goes = true } = {}) {
    if (error instanceof Away) return this.set({ notice: "That did not reach the service. Try again when it answers." });
    const refusals = error instanceof Refusal ? refusalsOf(error, this.state.service) : {};
    const placed = Object.keys(refusals);
    if (refusals.input && this.#isForeign()) refusals.input = `This voice reads English only: ${refusals.input}`;
    this.set({ refusals, notice: placed.length ? null : error.message, search: placed.length ? "" : this.state.search });
    if (placed.length && goes) {
      requestAnimationFrame(() => requestAnimationFrame(() => {
        const knob = document.querySelector(`[data-knob="${CSS.escape(placed[0])}"]`);
        knob?.closest("details.knobs")?.setAttribute("open", "");
        knob?.scrollIntoView({ block: "center" });
        knob?.querySelector("[aria-invalid]")?.focus();
      }));
    }
    return undefined;
  }

  /** Whether the text has letters of a script that a voice of English does not know. */
  #isForeign() {
    const { voices, voice, knobs, text } = this.state;
    const { language } = voices.find((one) => (voice ? one.id === voice : one.is_default)) ?? {};
    return (knobs.language ?? language) === "en" && /(?!\p{Script=Latin}|\p{Script=Greek})\p{L}/u.test(text);
  }

  /** Read the report of a take whose sound is complete, and keep it. */
  async finish(take) {
    this.say(`Take ${take.number}: ${take.sound.seconds.toFixed(1)} seconds, ${take.outcome}`);
    await this.report(take);
    await this.keep(take);
  }

  async report(take) {
    take.lufs = loudness(take.sound);
    // The service notices later that nobody listens any more; until then it has no report.
    if (take.outcome === "cancelled") return;
    try {
      take.report = await getJson(`v1/audio/speech/${encodeURIComponent(take.id)}`);
    } catch (error) {
      take.reportError = error.message;
    }
    this.onChange();
  }

  /** Keep a take in the browser, and note which are not kept any more. */
  async keep(take) {
    const { sound, ...record } = take;
    keep("keepsTakes", "yes");
    const left = await (await store()).keep({ ...record, samples: sound.samples.slice(), rate: sound.rate }).catch(() => [take.key]);
    take.unkept = false;
    for (const name of left) Object.assign(this.take(name) ?? {}, { unkept: true });
    this.onChange();
  }

  async #remember() {
    if (!kept("keepsTakes")) return; // the first visit loads nothing for it
    const { kept: all } = await store();
    const takes = (await all().catch(() => [])).map(({ samples, rate, ...take }) => ({ ...take, sound: Sound.of(samples, rate) }));
    if (!takes.length) return;
    const known = new Set(this.state.takes.map((take) => take.key));
    this.set({ takes: [...this.state.takes, ...takes.filter((take) => !known.has(take.key))] });
    this.set({ open: this.state.open ?? (this.pair ? null : takes[0].key) });
  }

  cancel = () => this.state.speaking?.abort();

  /** A and B, where both are chosen and there. */
  get pair() {
    const pair = [this.state.a, this.state.b].map(this.take);
    return pair.every(Boolean) ? pair : null;
  }

  take = (name) => this.state.takes.find((take) => take.key === name) ?? null;

  play(take, options = {}) {
    this.player.play(take.sound, { decibels: this.gainOf(take), ...options });
  }

  /** Decibels that bring one of A and B down to the loudness of the other. */
  gainOf(take) {
    const { pair } = this;
    if (!pair?.includes(take) || pair.some(({ lufs }) => lufs == null)) return 0;
    return Math.min(pair[0].lufs, pair[1].lufs) - take.lufs;
  }

  toggle(take) {
    if (this.player.sound === take.sound) this.player.stop();
    else this.play(take, { at: take.point && take.point < take.sound.seconds - 0.05 ? take.point : 0 });
  }

  delete(take) {
    if (take.sound && this.player.sound === take.sound) this.player.stop();
    store().then(({ forget }) => forget(take.key)).catch(() => {});
    const { takes, a, b } = this.state;
    this.set({ takes: takes.filter((one) => one !== take), deleted: take, a: a === take.key ? null : a, b: b === take.key ? null : b });
  }

  undelete() {
    const { deleted, takes } = this.state;
    this.set({ takes: [...takes, deleted].sort((one, other) => other.number - one.number), deleted: null, open: deleted.key });
    return deleted.sound?.length && this.keep(deleted);
  }

  star(take) {
    take.starred = !take.starred;
    return this.keep(take);
  }

  /** Make a request the page's own; `goOn` is the place from which it continues. */
  restore(body, goOn = null) {
    this.replace({ ...stateOf(body, this.state.service), goOn });
  }

  /** Let the next take keep this one up to a frame. */
  goOnFrom(take, utterance, frame, seconds) {
    const label = `take ${take.number} from ${seconds.toFixed(2)} s`;
    this.restore(take.body, { from: { id: take.id, utterance, frame }, label });
    this.say(`The next take continues ${label}`);
  }
}
