/** The studio: its state, what can be done to it, and its frame. */

import { Dialog, html, later, part, pause, useEffect, useRedraw, useRef } from "./parts.js";
import { bodyOf, refusalsOf, RequestPane, stateOf } from "./request.js";
import { audio, decoded, loudness, Player, Sound } from "./sound.js";
import { TakesPane } from "./takes.js";
import { Away, call, getJson, hooks, key, parse, Refusal, readService, spoken } from "./wire.js";

const store = () => part("./store.js");

const TABS = { takes: "Takes", live: "Live", study: "Study" };
const EXAMPLE = "Hello there. This voice was trained from scratch, on two processor cores.";

/** The state of the page and what changes it. Every change draws the page anew. */
class Studio {
  state = {
    service: null, voices: [], presets: [], model: null, waiting: "connecting", away: null,
    text: EXAMPLE, voice: null, knobs: {}, goOn: null,
    search: "", groups: {}, first: new Set(), refusals: {}, notice: null, said: "", knobsOpen: Boolean(localStorage.knobs),
    takes: [], open: null, a: null, b: null, deleted: null, speaking: null, tab: "takes", dialog: null, keyAsked: null,
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
    this.state = { ...this.state, ...patch };
    this.onChange();
  };

  /** Change the request; what was refused before may be right now. */
  edit = (patch) => {
    const { knobs, refusals } = this.state;
    const unchanged = ([name]) => !(name in patch || (name === "input" && "text" in patch)) && (patch.knobs ?? knobs)[name] === knobs[name];
    this.set({ ...patch, refusals: Object.fromEntries(Object.entries(refusals).filter(unchanged)), notice: null });
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
    if (!localStorage.keepsTakes && location.hash.length < 2) await this.speak({ aloud: false }); // a take to begin with
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
        this.set({ service: await readService() });
        this.readLink();
      }
      const ready = await fetch("ready");
      if (!ready.ok) {
        this.set({ waiting: (await ready.json()).error.message });
        return false;
      }
      const { model, word_times: wordTimes } = await ready.json();
      await this.readVoices();
      const { presets } = await getJson("v1/presets");
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

  /** Speak what the page shows, as a new take. */
  speak = async ({ aloud = true } = {}) => {
    if (this.state.speaking || !this.state.service) return;
    const since = performance.now();
    const take = this.newTake(bodyOf(this.state));
    const leaving = new AbortController();
    if (aloud) {
      audio(); // while the click is fresh: later a browser may refuse to play
      this.set({ speaking: leaving, refusals: {}, notice: null, deleted: null, tab: "takes", ...this.settled() });
    }
    const began = () => {
      this.add(take);
      if (aloud) this.meter(take, since);
    };
    await this.make(take, leaving.signal, began).catch((error) => aloud && error.name !== "AbortError" && this.refuse(error));
    if (aloud) this.set({ speaking: null });
    if (take.sound?.length) await this.finish(take);
  };

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

  /** Show a refusal at the knobs that it is about, else above all of them. */
  refuse(error) {
    if (error instanceof Away) return this.set({ notice: "That did not reach the service. Try again when it answers." });
    const refusals = error instanceof Refusal ? refusalsOf(error, this.state.service) : {};
    const placed = Object.keys(refusals);
    this.set({ refusals, notice: placed.length ? null : error.message, search: placed.length ? "" : this.state.search });
    if (placed.length) {
      requestAnimationFrame(() => requestAnimationFrame(() => {
        const knob = document.querySelector(`[data-knob="${CSS.escape(placed[0])}"]`);
        knob?.closest("details.knobs")?.setAttribute("open", "");
        knob?.scrollIntoView({ block: "center" });
        knob?.querySelector("[aria-invalid]")?.focus();
      }));
    }
    return undefined;
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
    localStorage.keepsTakes = "yes";
    const { keep } = await store();
    const left = await keep({ ...record, samples: sound.samples.slice(), rate: sound.rate }).catch(() => [take.key]);
    take.unkept = false;
    for (const name of left) Object.assign(this.take(name) ?? {}, { unkept: true });
    this.onChange();
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

  delete(take) {
    if (this.player.sound === take.sound) this.player.stop();
    store().then(({ forget }) => forget(take.key)).catch(() => {});
    const { takes, a, b } = this.state;
    this.set({ takes: takes.filter((one) => one !== take), deleted: take, a: a === take.key ? null : a, b: b === take.key ? null : b });
  }

  undelete() {
    const { deleted, takes } = this.state;
    this.set({ takes: [...takes, deleted].sort((one, other) => other.number - one.number), deleted: null, open: deleted.key });
    return this.keep(deleted);
  }

  star(take) {
    take.starred = !take.starred;
    return this.keep(take);
  }

  /** Make a request the page's own; `goOn` is the place from which it continues. */
  restore(body, goOn = null) {
    this.edit({ ...stateOf(body, this.state.service), goOn });
    this.set(this.settled());
  }

  /** Let the next take keep this one up to a frame. */
  goOnFrom(take, utterance, frame, seconds) {
    const label = `take ${take.number} from ${seconds.toFixed(2)} s`;
    this.restore(take.body, { from: { id: take.id, utterance, frame }, label });
    this.say(`The next take continues ${label}`);
  }
}

const PANES = { takes: TakesPane, live: later("./live.js", "LivePane"), study: later("./study.js", "StudyPane") };
const DIALOGS = { export: later("./export.js", "ExportDialog"), voices: later("./voices.js", "VoicesDialog"), keys: KeysHelp };

function App({ studio }) {
  const redraw = useRedraw();
  useEffect(() => {
    studio.onChange = redraw;
    studio.start();
    matchMedia("(prefers-color-scheme: dark)").onchange = redraw;
    addEventListener("keydown", (event) => keyPressed(studio, event));
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => dropped(studio, event));
  }, []);
  const { state } = studio;
  const Pane = PANES[state.tab];
  const Dialog = state.dialog && DIALOGS[state.dialog.name];
  return html`
    <header>
      <h1>valle-serve <span>studio</span></h1>
      <p class="status">${state.away ? "not connected" : state.waiting ?? state.model}</p>
      <nav aria-label="Page">
        <button class="plain" onClick=${() => studio.show("keys")} aria-label="Keyboard" title="Keyboard">⌨</button>
        ${key.get() && html`<button class="plain" title="Forget the API key" onClick=${() => { key.forget(); studio.onChange(); }}>Forget key</button>`}
        <a href="docs">API</a>
      </nav>
    </header>
    ${state.away && html`<p class="banner" role="alert">${state.away}</p>`}
    <main>
      <${RequestPane} app=${studio} />
      <section class="right">
        <nav class="tabs" aria-label="Views">
          ${Object.entries(TABS).map(([name, title]) => html`
            <button id="tab-${name}" aria-current=${state.tab === name ? "page" : null} onClick=${() => studio.set({ tab: name })}>${title}</button>`)}
        </nav>
        ${state.service && html`<${Pane} app=${studio} />`}
      </section>
    </main>
    <p class="unseen" role="status">${state.said}</p>
    ${Dialog && html`<${Dialog} app=${studio} subject=${state.dialog.subject} />`}
    ${state.keyAsked && html`<${KeyPrompt} ...${state.keyAsked} />`}`;
}

const KEYS = [
  ["Ctrl + Enter", "speak"],
  ["Esc", "stop: the sound, or what is being made"],
  ["Space", "play or pause the open take"],
  ["X", "switch between A and B at the same word"],
  ["A, B, X", "in a blind test: play; 1 and 2 answer that X is A or B"],
  ["/", "search the knobs"],
  ["← →", "in a take: a frame back or on; with Shift ten"],
  ["Enter, G", "in a take: play, or continue, from there"],
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
  const at = (elements) => event.target.closest?.(elements);
  if (at("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  const open = studio.take(state.open);
  const press = {
    "/": () => {
      const search = document.getElementById("search");
      search?.closest("details").setAttribute("open", "");
      search?.focus(); // at once: what is typed next belongs there
    },
    " ": !at("button, summary, a, [role=slider]") && open?.sound && (() => studio.toggle(open)),
    ...studio.compareKeys,
  }[event.key.toLowerCase()];
  if (!press) return;
  event.preventDefault();
  press();
}

/** A recording that is dropped on the page becomes a voice. */
function dropped(studio, event) {
  const file = event.dataTransfer?.files[0];
  if (!file) return;
  event.preventDefault();
  studio.show("voices", file);
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
          It is kept until this tab is closed.</label>
        <input id="key" type="password" autocomplete="off" ref=${field} />
        <button type="submit">Save</button>
      </form>
    </${Dialog}>`;
}

const studio = new Studio();
preact.render(html`<${App} studio=${studio} />`, document.getElementById("studio"));
