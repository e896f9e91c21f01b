/** Search of knobs: by name first, then by what they are commonly called, then by what is said of them. */

/** What there is no knob for: words, and what helps. */
const ANSWERS = [
  ["emotion mood feeling happy sad angry excited calm style expressive whisper shout laugh cry sarcastic", "No knob sets a feeling: the voice has that of its recording. Choose or clone another voice; a higher liveliness makes any voice more varied."],
  ["pitch tone deep deeper high higher low lower octave", "No knob sets the pitch: it is the voice's. Choose or clone another voice."],
  ["quality clear clearer clean noise noisy artifact artefact glitch robotic metallic better best improve natural realistic", "No one knob makes all better. Try other seeds, the best of several takes, or more closeness to the text; a cloned voice is as clean as its recording."],
  ["accent age old young child gender male female man woman speaker narrator character", "Who speaks is chosen above, under Voice; + Clone adds one."],
  ["echo reverb room effect distortion equalizer eq bass treble compressor", "There are no effects: the sound is as the model makes it."],
  ["sing song music melody rhythm background ambience", "The model speaks: it neither sings nor plays."],
  ["emphasis stress emphasise emphasize pronounce pronunciation spelling spell phoneme ipa", "In the text: [[…]] holds the phonemes of a word. What a text may contain is in docs/text.md."],
  ["bitrate mp3 download file export format", "A take is saved by its own buttons: WAV or MP3."],
  ["stability stable similarity consistent consistency", "The same seed gives the same speech. A lower liveliness, or the preset “stable”, is steadier."],
];

const ENDS = /(iness|ness|ing|ition|ers?|est|ed|ly|es|s)$/;

/** Return a word without its ending, by which it is compared: louder and loudness are one. */
function stem(word) {
  const cut = word.replace(ENDS, "");
  return cut.length < 3 ? word : cut.replace(/(.)\1$/, "$1").replace(/(?<=...)e$/, "");
}

const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
const alike = (one, other) => one === other || stem(one) === stem(other);

const indexed = new WeakMap();

function indexOf(field) {
  if (!indexed.has(field)) {
    const named = wordsOf(`${field.name} ${field.label ?? ""}`);
    indexed.set(field, { name: wordsOf(field.name).join(" "), named, called: wordsOf(field.synonyms), group: wordsOf(field.group), help: wordsOf(field.help) });
  }
  return indexed.get(field);
}

/** Return how far a word is from a field: 0 is its name or what it is called, Infinity is nowhere. */
function distance(word, { named, called, group, help }) {
  if (named.includes(word) || called.includes(word)) return 0;
  if ([...named, ...called].some((one) => alike(one, word))) return 0.5;
  if (named.some((one) => one.startsWith(word))) return 1;
  if (word.length < 3) return Infinity;
  if (called.some((one) => one.startsWith(word))) return 1.5;
  if (named.some((one) => one.includes(word))) return 2;
  if (group.some((one) => one.startsWith(word) || alike(one, word))) return 4;
  if (help.some((one) => one.startsWith(word) || alike(one, word))) return 6;
  return Infinity;
}

/**
 * Return the fields that a search finds, the nearest first, with how near each is: those that have all of its words, or
 * where there are none those that have most of them.
 */
export function ranked(fields, search) {
  const words = wordsOf(search);
  const whole = words.join(" ");
  const scored = fields.map((field, place) => {
    const index = indexOf(field);
    const found = words.map((word) => distance(word, index)).filter((far) => far < Infinity);
    const far = found.reduce((sum, one) => sum + one, 0);
    return { field, place, count: found.length, far: index.name === whole ? -2 : index.name.startsWith(`${whole} `) ? -1 : far };
  });
  const most = Math.max(1, ...scored.map(({ count }) => count));
  return scored.filter(({ count }) => count === most).sort((one, other) => one.far - other.far || one.place - other.place);
}

/** Return what is said of a search for which there is no knob. */
export function answersTo(search) {
  const words = wordsOf(search).filter((word) => word.length > 2);
  return ANSWERS.filter(([about]) => words.some((word) => wordsOf(about).some((one) => alike(one, word)))).map(([, answer]) => answer);
}

/** Return the fields whose names are the likeliest to be meant by a search with typing errors. */
export function nearest(fields, search) {
  const typed = wordsOf(search).join("");
  const most = typed.length < 4 ? 0 : typed.length < 8 ? 1 : 2;
  const near = (field) => {
    const { name, named, called } = indexOf(field);
    return Math.min(...[name.replaceAll(" ", ""), ...named, ...called].map((one) => typos(typed, one)));
  };
  return fields.filter((field) => near(field) <= most).sort((one, other) => near(one) - near(other));
}

/** Return how many letters must be changed, added, left out or swapped with their neighbour to make one word another. */
function typos(one, other) {
  let [older, old] = [[], Array.from({ length: other.length + 1 }, (_, n) => n)];
  for (let n = 1; n <= one.length; n++) {
    const row = [n];
    for (let m = 1; m <= other.length; m++) {
      row[m] = Math.min(row[m - 1] + 1, old[m] + 1, old[m - 1] + Number(one[n - 1] !== other[m - 1]));
      if (one[n - 1] === other[m - 2] && one[n - 2] === other[m - 1]) row[m] = Math.min(row[m], older[m - 2] + 1);
    }
    [older, old] = [old, row];
  }
  return old[other.length];
}
