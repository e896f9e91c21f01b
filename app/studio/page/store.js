/** The newest takes and those with a star, kept in the browser's own database so that they survive a reload. */

const NAME = "valle-serve.takes";
const KEPT = 24;

function finished(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function within(mode, work) {
  const opening = indexedDB.open(NAME, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("takes", { keyPath: "key" });
  const database = await finished(opening);
  try {
    return await work(database.transaction("takes", mode).objectStore("takes"));
  } finally {
    database.close();
  }
}

/** Keep a take; return the keys of those that are no longer kept: the oldest without a star. */
export function keep(record) {
  return within("readwrite", async (store) => {
    await finished(store.put(record));
    const plain = newestFirst(await finished(store.getAll())).filter(({ starred }) => !starred);
    return plain.slice(KEPT).map(({ key }) => { store.delete(key); return key; });
  });
}

export function forget(key) {
  return within("readwrite", (store) => finished(store.delete(key)));
}

/** Return the takes that were kept, the newest first. */
export async function kept() {
  return newestFirst(await within("readonly", (store) => finished(store.getAll())));
}

const newestFirst = (takes) => takes.sort((one, other) => other.created - one.created);
