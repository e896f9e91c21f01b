/** The last takes, kept in the browser's own database so that they survive a reload. */

const NAME = "valle-serve.takes";
const KEPT = 12;

function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore("takes", { keyPath: "key" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function finished(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function within(mode, work) {
  const database = await opened();
  try {
    return await work(database.transaction("takes", mode).objectStore("takes"));
  } finally {
    database.close();
  }
}

/** Keep a take, and forget the oldest beyond the number that is kept. */
export function keep(record) {
  return within("readwrite", async (store) => {
    await finished(store.put(record));
    const all = await finished(store.getAll());
    all.sort((one, other) => other.created - one.created);
    for (const { key } of all.slice(KEPT)) store.delete(key);
  });
}

export function forget(key) {
  return within("readwrite", (store) => finished(store.delete(key)));
}

/** Return the takes that were kept, the newest first. */
export async function kept() {
  const all = await within("readonly", (store) => finished(store.getAll()));
  return all.sort((one, other) => other.created - one.created);
}
