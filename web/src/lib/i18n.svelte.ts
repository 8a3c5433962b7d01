/** Words for people. English is always there; other languages come when they are chosen. */
import english from '../locales/en.json'
import { prefs } from './prefs.svelte'

export type Key = keyof typeof english
type Words = Partial<Record<Key, string>>

export const LANGUAGES = { auto: 'System', en: 'English', de: 'Deutsch', ru: 'Русский', 'zh-Hans': '简体中文' } as const

const LOADERS: Record<string, () => Promise<{ default: Words }>> = {
  de: () => import('../locales/de.json'),
  ru: () => import('../locales/ru.json'),
  'zh-Hans': () => import('../locales/zh-Hans.json'),
}

let words = $state.raw<Words>(english)
let current = $state('en')

export function language(): string {
  return current
}

export function chosen(wish: string, offered: readonly string[]): string {
  if (wish !== 'auto') return wish
  for (const each of offered) {
    if (each.toLowerCase().startsWith('zh')) return 'zh-Hans'
    const short = each.split('-')[0] ?? 'en'
    if (short === 'en' || short in LOADERS) return short
  }
  return 'en'
}

export async function useLanguage(): Promise<void> {
  const name = chosen(prefs.language, navigator.languages)
  const load = LOADERS[name]
  try {
    words = load ? { ...english, ...(await load()).default } : english
    current = load ? name : 'en'
  } catch {
    words = english
    current = 'en'
  }
  document.documentElement.lang = current
}

type Values = Record<string, string | number>

export function t(key: Key, values: Values = {}): string {
  return fill(words[key] ?? english[key] ?? key, values)
}

/** A word that depends on a number: `key_one`, `key_few`, `key_many`, `key_other`. */
export function n(key: string, count: number, values: Values = {}): string {
  const form = new Intl.PluralRules(current).select(count)
  const found = words[`${key}_${form}` as Key] ?? words[`${key}_other` as Key] ?? key
  return fill(found, { n: count.toLocaleString(current), ...values })
}

export function fill(text: string, values: Values): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole))
}
