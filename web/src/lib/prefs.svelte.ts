/** View state of this browser: nothing here is part of the record. */
export type Theme = 'system' | 'light' | 'dark'

interface Kept {
  theme: Theme
  size: 13 | 15 | 17 | 19
  language: string
  letters: boolean
  enterSends: boolean
  list: boolean
  inspector: boolean
  listWidth: number
  inspectorWidth: number
  redact: boolean
  closedGroups: string[]
}

const NAME = 'sessionary.view'
const FIRST: Kept = {
  theme: 'system',
  size: 15,
  language: 'auto',
  letters: true,
  enterSends: true,
  list: true,
  inspector: false,
  listWidth: 300,
  inspectorWidth: 320,
  redact: true,
  closedGroups: [],
}

function read(): Kept {
  try {
    return { ...FIRST, ...(JSON.parse(localStorage.getItem(NAME) ?? '{}') as Partial<Kept>) }
  } catch {
    return { ...FIRST }
  }
}

export const prefs = $state<Kept>(read())

export function keepPrefs(): void {
  $effect(() => {
    const text = JSON.stringify(prefs)
    try {
      localStorage.setItem(NAME, text)
    } catch {
      // A browser without storage forgets the view, nothing else.
    }
  })
  $effect(() => {
    const root = document.documentElement
    if (prefs.theme === 'system') delete root.dataset['theme']
    else root.dataset['theme'] = prefs.theme
    root.style.setProperty('--size', `${prefs.size}px`)
  })
}
