/** Preferences of this browser, kept in its local storage. */
export type Theme = 'system' | 'light' | 'dark'

interface Preferences {
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

const STORAGE_KEY = 'sessionary.view'
const DEFAULTS: Preferences = {
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

function read(): Preferences {
  try {
    return { ...DEFAULTS, ...(JSON.parse(localStorage.getItem(STORAGE_KEY) ?? '{}') as Partial<Preferences>) }
  } catch {
    return { ...DEFAULTS }
  }
}

export const preferences = $state<Preferences>(read())

export function applyPreferences(): void {
  $effect(() => {
    const text = JSON.stringify(preferences)
    try {
      localStorage.setItem(STORAGE_KEY, text)
    } catch {
      // Without storage the preferences last until the page is closed.
    }
  })
  $effect(() => {
    const root = document.documentElement
    if (preferences.theme === 'system') delete root.dataset['theme']
    else root.dataset['theme'] = preferences.theme
    root.style.setProperty('--size', `${preferences.size}px`)
  })
}
