/** What a report says, by the time of the sound: utterances, words, tokens that were kept, markers. */

/** What can be seen to have happened in a token's record: name, and whether it did. */
const EVENTS = [
  ["ban", (token) => token.banned > 0],
  ["second draw (RAS)", (token) => token.repeated],
  ...["LELV", "HELV", "LEHV", "HEHV", "adaptive"].map((name, state) => [
    `entropix ${name}`,
    (token) => token.entropix_state === state,
  ]),
  ["pause inserted", (token) => token.paused],
  ["branched", (token) => token.branched],
  ["no code left", (token) => token.all_masked],
  ["NaN or infinity", (token) => token.saw_nan || token.saw_inf],
];

const known = new WeakMap();

/**
 * Return the utterances of a take as its report has them, or null without one; of `tokens` one of
 * each frame, and the stop. Each has its `number`; where its frames `begin`, whose silence at both
 * ends is not in the sound; where it `end`s; `heard`, the words that were said; and `markers`.
 */
export function utterancesOf({ report }) {
  if (!report) return null;
  if (!known.has(report)) known.set(report, report.utterances.map(analysed));
  return known.get(report);
}

function analysed(one, number) {
  const tokens = keptTokens(one.tokens ?? []);
  return {
    ...one,
    number,
    tokens,
    begin: one.start_s - one.trimmed_s,
    end: one.start_s + one.duration_s,
    words: one.words ?? [],
    heard: (one.words ?? []).filter(({ missing }) => !missing),
    markers: markersOf(one, tokens),
  };
}

/**
 * Return the last token that was drawn for each frame, by its frame: those before a rewind are gone,
 * and there is none where an earlier take's frames were kept.
 */
function keptTokens(tokens) {
  const kept = [];
  for (const token of tokens) {
    kept.length = token.frame;
    kept.push(token);
  }
  return kept;
}

/** Return the frames at which each thing happened: a list of `{ name, frame, detail }`. */
function markersOf({ backtracks, takes }, tokens) {
  const markers = [];
  tokens.forEach((token) => { // which leaves out frames without one
    for (const [name, happened] of EVENTS) if (happened(token)) markers.push({ name, frame: token.frame });
  });
  for (const { cause, frames, kept, code } of backtracks) {
    markers.push({ name: `rewound (${cause})`, frame: kept, detail: `from frame ${frames} to ${kept}, without code ${code}` });
  }
  const first = tokens.findIndex(Boolean);
  if (first > 0) markers.push({ name: "continued from here", frame: first });
  const best = takes.findIndex(({ kept }) => kept);
  if (best >= 0) markers.push({ name: "best take chosen", frame: 0, detail: `number ${best + 1} of ${takes.length}` });
  return markers;
}

/** Seconds of the sound at which a frame of an utterance begins. */
export function timeOf(utterance, frame) {
  return utterance.begin + utterance.frame_s * frame;
}

/** The same, but of a frame in the silence that was cut off the nearest that is heard. */
export function heardAt(utterance, frame) {
  return Math.min(utterance.end, Math.max(utterance.start_s, timeOf(utterance, frame)));
}

/** Return the utterance that is heard at a time, and its frame; the nearest in a pause. */
export function placeOf(utterances, seconds) {
  const utterance = utterances.findLast(({ start_s: start }) => start <= seconds) ?? utterances[0];
  if (!utterance) return null;
  const last = Math.max(0, utterance.codes.length - 1);
  const frame = Math.floor((seconds - utterance.begin) / utterance.frame_s + 1e-6);
  return { utterance, frame: Math.min(last, Math.max(0, frame)) };
}

/** Return the time in another take at which the same word is as far spoken as here. */
export function sameWord(from, seconds, to) {
  const [one, other] = [from, to].map((take) => utterancesOf(take) ?? []);
  const [here, there] = [one, other].map((utterances) => utterances.flatMap(({ heard }) => heard));
  const index = here.findLastIndex(({ start_s: start }) => start <= seconds);
  if (index >= 0 && there.length === here.length) return moved(seconds, span(here[index]), span(there[index]));
  const place = other.length === one.length && placeOf(one, seconds);
  if (place) return moved(seconds, area(place.utterance), area(other[place.utterance.number]));
  return moved(seconds, [0, from.sound.seconds], [0, to.sound.seconds]);
}

const span = ({ start_s: start, end_s: end }) => [start, end];
const area = ({ start_s: start, end }) => [start, end];

function moved(seconds, [from, to], [otherFrom, otherTo]) {
  const share = Math.min(1, Math.max(0, (seconds - from) / Math.max(1e-9, to - from)));
  return otherFrom + share * (otherTo - otherFrom);
}
