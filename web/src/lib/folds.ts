/** What is folded and what is open, for as long as the tab lives. */
const NAME = 'sessionary.folds'
const MOST = 400

function read(): Map<string, boolean> {
  try {
    return new Map(JSON.parse(sessionStorage.getItem(NAME) ?? '[]') as [string, boolean][])
  } catch {
    return new Map()
  }
}

const kept = read()

export function folded(key: string): boolean | null {
  return kept.get(key) ?? null
}

export function keepFold(key: string, open: boolean): void {
  kept.delete(key)
  kept.set(key, open)
  for (const old of [...kept.keys()].slice(0, Math.max(0, kept.size - MOST))) kept.delete(old)
  try {
    sessionStorage.setItem(NAME, JSON.stringify([...kept]))
  } catch {
    // Without storage folds last until the page is left.
  }
}
