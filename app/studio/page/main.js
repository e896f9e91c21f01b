/** The studio: its state, what can be done to it, and its frame. */

import { Dialog, later } from "./parts.js";
import { bodyOf, refusalsOf, RequestPane, stateOf } from "./request.js";
import { audio, loudness, Player, Sound } from "./sound.js";
import { TakesPane } from "./takes.js";
import { getJson, key, onKeyNeeded, parse, Refusal, readService, spoken } from "./wire.js";

const html = htm.bind(preact.h);
const { useEffect, useReducer, useRef } = preactHooks;
const store = () => import("./store.js");

const SHOWN_TAKES = 24;
const TABS = { takes: "Takes", live: "Live", sweep: "Sweep" };
const EXAMPLE = "Hello there. This voice was trained from scratch, on two processor cores.";

/** The state of the page and what changes it. Every change draws the page anew. */
class Studio {
  state = {
    service: null, voices: [], presets: [], model: null, waiting: "connecting", theme: localStorage.theme ?? null,
    text: EXAMPLE, voice: null, preset: "auto", knobs: {}, goOn: null,
    search: "", groups: {}, first: new Set(), refusals: {}, notice: null, told: "",
    knobsOpen: matchMedia("(min-width: 60rem)").matches, takes: [], open: null, a: null, b: null, speaking: null, tab: "takes", dialog: null, keyAsked: null,
  };
  player = new Player();
  onChange = () => {};

  constructor() {
    this.player.onChange = () => this.onChange();
    onKeyNeeded(() => this.#askForKey());
  }

  set = (patch) => {
    this.state = { ...this.state, ...patch };
    this.onChange();
  };

  /** Change the request; what was refused before may be right now. */
  edit = (patch) => {
    const refusals = { ...this.state.refusals };
    for (const name of Object.keys({ ...this.state.knobs, ...patch.knobs })) {
      if (patch.knobs && patch.knobs[name] !== this.state.knobs[name]) delete refusals[name];
    }
    if ("text" in patch) delete refusals.input;
    if ("voice" in patch) delete refusals.voice;
    if ("preset" in patch) delete refusals.preset;
    this.set({ ...patch, refusals, notice: null });
  };

  /** The changed knobs go first, but only now and then: none may move while it is being changed. */
  settled = () => ({ first: new Set(Object.keys(this.state.knobs)) });

  /** Say something to screen readers. */
  tell = (told) => this.set({ told });

  show = (dialog, subject = null) => this.set({ dialog: dialog && { name: dialog, subject } });

  /** Show how to make a take elsewhere; null is the request as it stands. */
  takeAway = (take) => this.show("away", take);

  async start() {
    const service = await readService();
    this.set({ service, preset: service.preset.fallback });
    this.readLink();
    addEventListener("hashchange", () => this.readLink());
    await this.#untilReady();
    await this.readVoices();
    const presets = service.presets ? (await getJson("v1/presets")).presets : [];
    const models = await getJson("v1/models");
    this.set({ presets, model: models.data[0].id, waiting: null });
    await this.#remember();
  }

  async #untilReady() {
    for (;;) {
      const response = await fetch("ready");
      if (response.ok) return;
      const { error } = await response.json();
      this.set({ waiting: error.message });
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }

  async readVoices() {
    this.set({ voices: (await getJson("v1/audio/voices")).voices });
  }

  /** Take the request after the address's # for the page's own. */
  readLink() {
    if (location.hash.length < 2) return;
    try {
      const { continue_from: from, ...body } = parse(decodeURIComponent(location.hash.slice(1)));
      const goOn = from ? { from, label: "a take of this link" } : null;
      this.edit({ ...stateOf(body, this.state.service), goOn });
      this.set(this.settled());
    } catch {
      this.set({ notice: "The address holds no request after its #." });
    }
  }

  #askForKey() {
    return new Promise((resolve) => {
      const answered = (given) => { this.set({ keyAsked: null }); resolve(given); };
      this.set({ keyAsked: { answered, known: Boolean(key.get()) } });
    });
  }

  /** Speak what the page shows, as a new take. */
  speak = async () => {
    if (this.state.speaking || !this.state.service) return;
    const since = performance.now();
    audio(); // while the click is fresh: later a browser may refuse to play
    const take = this.newTake(bodyOf(this.state));
    const leaving = new AbortController();
    this.set({ speaking: leaving, refusals: {}, notice: null, tab: "takes", ...this.settled() });
    try {
      const onHead = (head) => this.#begin(take, head, since);
      for await (const samples of this.spoken(take.body, { signal: leaving.signal, onHead })) take.sound.push(samples);
      take.outcome = "done";
    } catch (error) {
      if (!this.#failed(take, error)) return;
    } finally {
      take.sound?.finish();
      this.set({ speaking: null });
    }
    // The service notices later that nobody listens any more; until then it has no report.
    await this.finish(take, { reported: take.outcome !== "cancelled" });
  };

  /** Return a request with what the page wants to know of every take. */
  asked(body) {
    return { ...body, trace: true, ...(this.state.service.wordTimes && { timestamps: "word" }) };
  }

  /** Yield the samples of a request, without word times from then on if the model has none. */
  async *spoken(body, options) {
    try {
      yield* spoken(this.asked(body), options);
    } catch (error) {
      if (error.param !== "timestamps") throw error;
      this.state.service.wordTimes = false;
      yield* spoken(this.asked(body), options);
    }
  }

  newTake(body) {
    const number = 1 + Math.max(0, ...this.state.takes.map((take) => take.number));
    return { key: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, number, created: Date.now(), body, outcome: "speaking" };
  }

  #begin(take, head, since) {
    take.id = head.get("x-request-id");
    take.seed = head.get("x-seed");
    take.sound = new Sound(Number(head.get("x-sample-rate")) || 24000);
    this.add(take);
    this.play(take, { since });
    const first = () => {
      if (this.player.sound !== take.sound) return;
      take.firstSoundMs = this.player.firstSoundMs;
      [take.gaps, take.gapMs] = [this.player.gaps, this.player.gapMs];
      this.onChange();
    };
    take.sound.onGrowth.add(first);
  }

  add(take) {
    this.set({ takes: [take, ...this.state.takes].slice(0, SHOWN_TAKES), open: take.key });
  }

  /** Note why a take failed; return whether there is anything of it to keep. */
  #failed(take, error) {
    if (error.name === "AbortError") take.outcome = "cancelled";
    else {
      take.outcome = "failed";
      this.refuse(error);
    }
    return Boolean(take.sound?.length);
  }

  /** Show a refusal at the knobs that it is about, else above all of them. */
  refuse(error) {
    const refusals = error instanceof Refusal ? refusalsOf(error, this.state.service) : {};
    const placed = Object.keys(refusals);
    this.set({ refusals, notice: placed.length ? null : error.message, search: placed.length ? "" : this.state.search });
    if (placed.length) {
      requestAnimationFrame(() => requestAnimationFrame(() => {
        const knob = document.querySelector(`[data-knob="${CSS.escape(placed[0])}"]`);
        knob?.scrollIntoView({ block: "center" });
        knob?.querySelector("[aria-invalid]")?.focus();
      }));
    }
  }

  /** Read the report of a take whose sound is complete, and keep it. */
  async finish(take, { reported = true } = {}) {
    take.lufs = loudness(take.sound);
    this.tell(`Take ${take.number}: ${take.sound.seconds.toFixed(1)} seconds, ${take.outcome}`);
    if (!reported) return;
    try {
      take.report = await getJson(`v1/audio/speech/${encodeURIComponent(take.id)}`);
    } catch (error) {
      take.reportError = error.message;
    }
    this.onChange();
    if (take.outcome !== "done") return;
    const { sound, ...record } = take;
    localStorage.keepsTakes = "yes";
    const { keep } = await store();
    await keep({ ...record, samples: sound.samples.slice(), rate: sound.rate }).catch(() => {});
  }

  async #remember() {
    if (!localStorage.keepsTakes) return; // the first visit loads nothing for it
    const { kept } = await store();
    const takes = (await kept().catch(() => [])).map(({ samples, rate, ...take }) => ({ ...take, sound: Sound.of(samples, rate) }));
    if (!takes.length) return;
    const known = new Set(this.state.takes.map((take) => take.key));
    this.set({ takes: [...this.state.takes, ...takes.filter((take) => !known.has(take.key))], open: this.state.open ?? takes[0].key });
  }

  cancel = () => this.state.speaking?.abort();

  take = (name) => this.state.takes.find((take) => take.key === name) ?? null;

  play(take, options = {}) {
    this.player.play(take.sound, { decibels: this.gainOf(take), ...options });
  }

  /** Decibels that bring one of A and B down to the loudness of the other. */
  gainOf(take) {
    const pair = [this.state.a, this.state.b].map(this.take);
    if (!pair.includes(take) || pair.some((one) => !one || one.lufs == null)) return 0;
    return Math.min(pair[0].lufs, pair[1].lufs) - take.lufs;
  }

  toggle(take) {
    if (this.player.sound === take.sound) this.player.stop();
    else this.play(take, { at: take.point && take.point < take.sound.seconds - 0.05 ? take.point : 0 });
  }

  drop(take) {
    if (this.player.sound === take.sound) this.player.stop();
    store().then(({ forget }) => forget(take.key)).catch(() => {});
    const { takes, a, b } = this.state;
    this.set({ takes: takes.filter((one) => one !== take), a: a === take.key ? null : a, b: b === take.key ? null : b });
  }

  /** Put the request of a take back into the page, with its seed if asked. */
  restore(take, patch = {}) {
    const { continue_from: _, ...body } = take.body;
    this.edit({ ...stateOf(body, this.state.service), goOn: null, ...patch });
    this.set(this.settled());
  }

  /** Let the next take keep this one up to a frame. */
  goOnFrom(take, utterance, frame, seconds) {
    const label = `take ${take.number} at ${seconds.toFixed(2)} s`;
    this.restore(take, { goOn: { from: { id: take.id, utterance, frame }, label } });
    this.tell(`The next take goes on from ${label}`);
  }

  theme() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = this.state.theme ?? (dark ? "dark" : "light");
    localStorage.theme = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = localStorage.theme; // before all is drawn in its colours
    this.set({ theme: localStorage.theme });
  }
}

const PANES = {
  takes: TakesPane,
  live: later(() => import("./live.js"), "LivePane"),
  sweep: later(() => import("./sweep.js"), "SweepPane"),
};
const DIALOGS = {
  away: later(() => import("./away.js"), "AwayDialog"),
  voices: later(() => import("./voices.js"), "VoicesDialog"),
  keys: KeysHelp,
};

function App({ studio }) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    studio.onChange = redraw;
    studio.start().catch((error) => studio.set({ waiting: null, notice: error.message }));
    if (studio.state.theme) document.documentElement.dataset.theme = studio.state.theme;
    matchMedia("(prefers-color-scheme: dark)").onchange = redraw;
    const pressed = (event) => keyPressed(studio, event);
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  const { state } = studio;
  const Pane = PANES[state.tab];
  const Dialog = state.dialog && DIALOGS[state.dialog.name];
  return html`
    <header>
      <h1>valle-serve <span>studio</span></h1>
      <p class="status">${state.waiting ?? state.model}</p>
      <nav aria-label="Page">
        <button class="plain" onClick=${() => studio.show("keys")} aria-label="Keyboard" title="Keyboard">⌨</button>
        <button class="plain" onClick=${() => studio.theme()} aria-label="Dark or light" title="Dark or light">◐</button>
        ${key.get() && html`<button class="plain" title="Forget the API key" onClick=${() => { key.forget(); studio.onChange(); }}>Forget key</button>`}
        <a href="docs">API</a>
      </nav>
    </header>
    <main>
      <${RequestPane} app=${studio} />
      <section class="right">
        <div class="tabs" role="tablist" aria-label="What to do">
          ${Object.entries(TABS).map(([name, title]) => html`
            <button role="tab" id="tab-${name}" aria-controls="pane" aria-selected=${state.tab === name}
              tabindex=${state.tab === name ? 0 : -1} onClick=${() => studio.set({ tab: name })}
              onKeyDown=${(event) => otherTab(studio, event)}>${title}</button>`)}
        </div>
        <div id="pane" role="tabpanel" aria-labelledby="tab-${state.tab}">
          ${state.service && html`<${Pane} app=${studio} />`}
        </div>
      </section>
    </main>
    <p class="unseen" role="status">${state.told}</p>
    ${Dialog && html`<${Dialog} app=${studio} subject=${state.dialog.subject} />`}
    ${state.keyAsked && html`<${KeyPrompt} ...${state.keyAsked} />`}`;
}

function otherTab(studio, event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const names = Object.keys(TABS);
  const name = names[(names.indexOf(studio.state.tab) + step + names.length) % names.length];
  studio.set({ tab: name });
  document.getElementById(`tab-${name}`).focus();
}

const KEYS = [
  ["Ctrl + Enter", "speak"],
  ["Esc", "stop: the sound, or what is being made"],
  ["Space", "play or pause the open take"],
  ["X", "switch between A and B at the same word"],
  ["/", "search the knobs"],
  ["← →", "in a take: a frame back or on; with Shift ten"],
  ["Enter", "in a take: play from there"],
  ["G", "in a take: go on from there"],
];

function keyPressed(studio, event) {
  const { state, player } = studio;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    studio.speak();
    return;
  }
  if (event.key === "Escape") {
    if (!state.dialog && !state.keyAsked) studio.cancel();
    player.stop();
    return;
  }
  const typing = event.target.closest?.("input, textarea, select, button, summary, a, dialog, [role=slider]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("search")?.focus();
  } else if (event.key === " ") {
    event.preventDefault();
    const open = studio.take(state.open);
    if (open?.sound) studio.toggle(open);
  } else if (event.key === "x") {
    studio.switch?.();
  }
}

function KeysHelp({ app }) {
  return html`
    <${Dialog} title="Keyboard" onClose=${() => app.show(null)}>
      <dl class="keys">${KEYS.map(([keys, does]) => html`<dt><kbd>${keys}</kbd></dt><dd>${does}</dd>`)}</dl>
    </${Dialog}>`;
}

function KeyPrompt({ answered, known }) {
  const field = useRef();
  const sent = (event) => { event.preventDefault(); answered(field.current.value.trim() || null); };
  return html`
    <${Dialog} title="API key" onClose=${() => answered(null)}>
      <form onSubmit=${sent}>
        <label for="key">${known ? "That key is not known here." : "This service asks for a key."}
          It is kept in this tab, and gone with it.</label>
        <input id="key" type="password" autocomplete="off" ref=${field} />
        <button type="submit">Use it</button>
      </form>
    </${Dialog}>`;
}

const studio = new Studio();
preact.render(html`<${App} studio=${studio} />`, document.getElementById("studio"));
