/** Which steps a person expanded or collapsed, for as long as the tab lives. */
const STORAGE_KEY = 'sessionary.folds'
const MAX_STATES = 400

function read(): Map<string, boolean> {
  try {
    return new Map(JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? '[]') as [string, boolean][])
  } catch {
    return new Map()
  }
}

const states = read()

export function getExpanded(key: string): boolean | null {
  return states.get(key) ?? null
}

export function setExpanded(key: string, open: boolean): void {
  states.delete(key)
  states.set(key, open)
  for (const old of [...states.keys()].slice(0, Math.max(0, states.size - MAX_STATES))) states.delete(old)
  try {
    sessionStorage.setItem(STORAGE_KEY, JSON.stringify([...states]))
  } catch {
    // Without storage this lasts until the page is closed.
  }
}
